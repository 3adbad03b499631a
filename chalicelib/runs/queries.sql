-- Runs: queueing, working, ending, cancelling, reading; the claim pass has its own file.
-- Rows travel as JSON through jsonb_to_recordset, so that a batch is one statement.

-- ------------------------------------------------------------------ queueing

-- name: current_job
SELECT j.snapshot_id, j.shard, sj.definition
FROM jobs j JOIN snapshot_jobs sj ON sj.snapshot_id = j.snapshot_id AND sj.job = j.job
WHERE j.location = :location AND j.target = :target AND j.job = :job;

-- name: insert_runs
INSERT INTO runs (run_id, location, target, job, shard, snapshot_id, inputs_json, selection, origin, trigger_id, scheduled_for,
                  requested_by, request_json, rerun_of, retry_of, retry_number, backfill_id, not_before, status, created_at)
SELECT r.run_id, r.location, r.target, r.job, r.shard, r.snapshot_id, r.inputs, r.selection, r.origin, r.trigger_id, r.scheduled_for,
       r.requested_by, r.request, r.rerun_of, r.retry_of, r.retry_number, r.backfill_id, r.not_before, 'queued', :now
FROM jsonb_to_recordset(:rows::jsonb) AS r(run_id text, location text, target text, job text, shard integer, snapshot_id text,
     inputs jsonb, selection jsonb, origin text, trigger_id text, scheduled_for timestamptz, requested_by text, request jsonb,
     rerun_of text, retry_of text, retry_number integer, backfill_id text, not_before timestamptz)
ON CONFLICT ON CONSTRAINT runs_pkey DO NOTHING
RETURNING run_id;

-- name: insert_events
INSERT INTO run_events (event_id, run_id, kind, occurred_at, payload)
SELECT e.event_id, e.run_id, e.kind, :now, e.payload
FROM jsonb_to_recordset(:rows::jsonb) AS e(event_id text, run_id text, kind text, payload jsonb);

-- name: request_of_run
SELECT requested_by, request_json FROM runs WHERE run_id = :run_id;

-- name: shard_of_job
SELECT shard FROM jobs WHERE location = :location AND target = :target AND job = :job;

-- name: shard_of_run
SELECT shard FROM runs WHERE run_id = :run_id;

-- name: shards_freed_by_run
-- The run's own shard, and those whose runs may wait for what it holds: a look-up per shard, however many runs wait.
SELECT shard FROM runs WHERE run_id = :run_id
UNION SELECT s.shard FROM scheduler_shards s WHERE (SELECT true FROM runs q WHERE q.shard = s.shard AND q.status = 'queued' LIMIT 1) ORDER BY 1;

-- name: shards_freed_by_boot
SELECT r.shard FROM claims c JOIN runs r ON r.run_id = c.run_id WHERE c.boot_id = :boot_id AND c.ended_at IS NULL
UNION SELECT s.shard FROM scheduler_shards s WHERE (SELECT true FROM runs q WHERE q.shard = s.shard AND q.status = 'queued' LIMIT 1) ORDER BY 1;

-- name: shards_waiting_beside_claimed
-- Shards whose runs may wait for what a claim of this shard holds, when there is one that may expire.
SELECT s.shard FROM scheduler_shards s WHERE (SELECT true FROM runs q WHERE q.shard = s.shard AND q.status = 'queued' LIMIT 1)
  AND s.shard <> :shard AND EXISTS (SELECT 1 FROM runs c WHERE c.shard = :shard AND c.status = 'claimed')
ORDER BY 1;

-- name: shards_waiting_beside_settled
-- The same for write claims of this shard whose settle time is over.
SELECT s.shard FROM scheduler_shards s WHERE (SELECT true FROM runs q WHERE q.shard = s.shard AND q.status = 'queued' LIMIT 1)
  AND s.shard <> :shard AND EXISTS (
    SELECT 1 FROM write_claims w JOIN runs r ON r.run_id = w.run_id WHERE r.shard = :shard AND w.release_after <= :now)
ORDER BY 1;

-- ------------------------------------------------------------------ working

-- name: lock_run
SELECT r.run_id, r.location, r.target, r.job, r.shard, r.snapshot_id, r.inputs_json, r.origin, r.trigger_id, r.status, r.end_reason,
       r.cancel_id, r.cancel_requested_at, r.cancel_requested_by, r.cancel_response, r.heartbeat_lost_at
FROM runs r WHERE r.run_id = :run_id FOR UPDATE;

-- name: claim_of_run
SELECT c.claim_id, c.boot_id, c.boot_partition, c.accepted_at, c.ended_at, (sj.definition ->> 'timeout_seconds')::integer AS timeout_seconds
FROM claims c JOIN runs r ON r.run_id = c.run_id
JOIN snapshot_jobs sj ON sj.snapshot_id = r.snapshot_id AND sj.job = r.job
WHERE c.claim_id = :claim_id AND c.run_id = :run_id;

-- name: claim_of_report
-- The claim, and what was answered to this report of it before.
SELECT c.claim_id, c.boot_id, c.accepted_at, c.ended_at, p.digest, p.response
FROM claims c LEFT JOIN run_reports p ON p.claim_id = c.claim_id AND p.report_key = :report_key
WHERE c.claim_id = :claim_id AND c.run_id = :run_id;

-- name: accept_claim
UPDATE claims SET boot_id = :boot_id, boot_partition = :boot_partition, accepted_at = COALESCE(accepted_at, :now),
    started_ref = COALESCE(started_ref, :started_ref)
WHERE claim_id = :claim_id AND ended_at IS NULL AND (boot_id IS NULL OR boot_id = :boot_id)
RETURNING claim_id;

-- name: inputs_of_claim
SELECT r.run_id, c.claim_id, r.location, r.target, r.job, r.origin, r.snapshot_id, r.inputs_json, s.tool, s.tool_version,
       s.baseline_hash, s.git_revision, s.git_dirty, sj.definition, r.selection, t.environment, t.settle_seconds, r.scheduled_for
FROM claims c
JOIN runs r ON r.run_id = c.run_id
JOIN snapshots s ON s.snapshot_id = r.snapshot_id
JOIN snapshot_jobs sj ON sj.snapshot_id = r.snapshot_id AND sj.job = r.job
JOIN targets t ON t.location = r.location AND t.target = r.target
WHERE c.claim_id = :claim_id AND c.run_id = :run_id AND c.ended_at IS NULL AND c.accepted_at IS NOT NULL;

-- name: drift_keys
SELECT n.node, n.drift_key
FROM snapshot_nodes n
WHERE n.snapshot_id = :snapshot_id AND n.node = ANY(:nodes::text[]);

-- name: mark_running
UPDATE runs SET status = 'running', started_at = :now WHERE run_id = :run_id AND status = 'claimed' AND cancel_requested_at IS NULL
RETURNING run_id;

-- name: store_report
INSERT INTO run_reports (claim_id, report_key, digest, response) VALUES (:claim_id, :report_key, :digest, :response::jsonb);

-- name: keep_nodes
INSERT INTO run_nodes (run_id, node, status, started_at, finished_at, duration_seconds, error_code, message)
SELECT :run_id, n.node, n.status, n.started_at, n.finished_at, n.duration_seconds, n.error_code, n.message
FROM jsonb_to_recordset(:rows::jsonb) AS n(node text, status text, started_at timestamptz, finished_at timestamptz,
     duration_seconds double precision, error_code text, message text)
ON CONFLICT (run_id, node) DO UPDATE SET status = excluded.status, started_at = excluded.started_at, finished_at = excluded.finished_at,
    duration_seconds = excluded.duration_seconds, error_code = excluded.error_code, message = excluded.message;

-- ------------------------------------------------------------------ ending

-- name: end_runs
UPDATE runs r SET status = e.state, end_reason = e.end_reason, reported_outcome = e.reported_outcome, warnings = e.warnings,
    summary = e.summary, finished_at = :now
FROM jsonb_to_recordset(:rows::jsonb) AS e(run_id text, state text, end_reason text, reported_outcome text, warnings integer, summary jsonb,
     sources jsonb)
WHERE r.run_id = e.run_id AND e.sources ? r.status
RETURNING r.run_id, r.location, r.target, r.job, r.shard;

-- name: release_ended
-- The claims end; of write claims what does not settle goes, and what has waited for something waits no more.
WITH ended AS (
    UPDATE claims SET ended_at = :now, process_ended_at = COALESCE(process_ended_at, CASE WHEN :proved THEN :now::timestamptz END)
    WHERE run_id = ANY(:run_ids::text[]) AND ended_at IS NULL
), released AS (
    DELETE FROM write_claims WHERE run_id = ANY(:run_ids::text[]) AND release_after IS NULL
), unblocked AS (
    DELETE FROM run_blockers WHERE run_id = ANY(:run_ids::text[])
)
SELECT 1 AS done;

-- name: free_slots
DELETE FROM slots WHERE run_id = ANY(:run_ids::text[]);

-- name: settle_write_claims
-- Not settled: the warehouse may still work for that run, so the claims stay until the settle time is over.
UPDATE write_claims w SET release_after = :now::timestamptz + make_interval(secs => t.settle_seconds)
FROM runs r JOIN targets t ON t.location = r.location AND t.target = r.target
WHERE w.run_id = ANY(:run_ids::text[]) AND r.run_id = w.run_id AND t.settle_seconds > 0 AND w.release_after IS NULL;

-- name: release_settled
DELETE FROM write_claims w USING (
    SELECT c.warehouse, c.relation FROM write_claims c JOIN runs r ON r.run_id = c.run_id
    WHERE c.release_after <= :now AND r.shard = :shard ORDER BY c.release_after LIMIT :batch
) due
WHERE w.warehouse = due.warehouse AND w.relation = due.relation AND w.release_after <= :now;

-- name: drop_blockers
DELETE FROM run_blockers WHERE run_id = ANY(:run_ids::text[]);

-- name: overdue_claims
SELECT r.run_id, r.cancel_requested_at, c.accepted_at
FROM claims c JOIN runs r ON r.run_id = c.run_id JOIN outbox o ON o.claim_id = c.claim_id
WHERE c.ended_at IS NULL AND r.shard = :shard AND r.status = 'claimed'
  AND CASE WHEN c.accepted_at IS NOT NULL THEN c.accepted_at + make_interval(secs => :start_seconds)
           WHEN c.worker_kind = 'lambda' THEN o.sent_at + make_interval(secs => :accept_lambda_seconds)
           ELSE o.sent_at + make_interval(secs => :accept_container_seconds) END <= :now
ORDER BY r.run_id LIMIT :batch
FOR UPDATE OF r SKIP LOCKED;

-- name: runs_of_boot
SELECT r.run_id, r.status, r.cancel_requested_at
FROM claims c JOIN runs r ON r.run_id = c.run_id
WHERE c.boot_id = :boot_id AND c.ended_at IS NULL AND (:location::text IS NULL OR r.location = :location)
ORDER BY r.run_id FOR UPDATE OF r;

-- name: live_boots
SELECT DISTINCT boot_id FROM claims WHERE ended_at IS NULL AND boot_id IS NOT NULL ORDER BY boot_id;

-- name: unaccepted_claim
SELECT r.run_id, r.cancel_requested_at
FROM claims c JOIN runs r ON r.run_id = c.run_id
WHERE c.claim_id = :claim_id AND c.run_id = :run_id AND c.ended_at IS NULL AND c.accepted_at IS NULL
FOR UPDATE OF r;

-- name: covered_ticks_of_runs
SELECT k.trigger_id, k.local_slot, k.scheduled_for, k.covered_by
FROM ticks k WHERE k.covered_by = ANY(:run_ids::text[]) ORDER BY k.scheduled_for, k.trigger_id;

-- name: latest_covered_ticks
-- Per run that never started: the latest tick that it covered and whose trigger is still enabled.
SELECT DISTINCT ON (k.covered_by) k.covered_by, k.trigger_id, k.local_slot, k.scheduled_for, r.location, r.target, r.job, r.shard,
       r.snapshot_id, r.inputs_json, r.selection
FROM ticks k JOIN trigger_state s ON s.trigger_id = k.trigger_id AND s.enabled JOIN runs r ON r.run_id = k.covered_by
WHERE k.covered_by = ANY(:run_ids::text[])
ORDER BY k.covered_by, k.scheduled_for DESC, k.trigger_id;

-- name: request_covered_ticks
UPDATE ticks k SET outcome = 'requested', run_id = n.run_id, covered_by = NULL
FROM jsonb_to_recordset(:rows::jsonb) AS n(trigger_id text, scheduled_for timestamptz, run_id text)
WHERE k.trigger_id = n.trigger_id AND k.scheduled_for = n.scheduled_for;

-- ------------------------------------------------------------------ cancelling

-- name: live_claim
SELECT claim_id, boot_id, boot_partition, accepted_at FROM claims WHERE run_id = :run_id AND ended_at IS NULL;

-- name: request_cancel
UPDATE runs SET cancel_requested_at = :now, cancel_requested_by = :cancelled_by, cancel_id = :cancel_id, cancel_response = :response::jsonb
WHERE run_id = :run_id;

-- name: retry_of_run
SELECT run_id, status FROM runs WHERE retry_of = :run_id;

-- name: pending_cancels
SELECT r.run_id, r.cancel_id, c.boot_id, c.boot_partition
FROM runs r JOIN claims c ON c.run_id = r.run_id AND c.ended_at IS NULL
WHERE r.status IN ('claimed', 'running') AND r.shard = :shard AND r.cancel_requested_at IS NOT NULL AND c.boot_id IS NOT NULL
ORDER BY r.cancel_requested_at, r.run_id LIMIT :batch;

-- ------------------------------------------------------------------ reading

-- name: list_runs
SELECT r.*, c.claim, (SELECT n.run_id FROM runs n WHERE n.retry_of = r.run_id) AS retried_by
FROM (
    SELECT * FROM runs
    WHERE (:location::text IS NULL OR location = :location) AND (:target::text IS NULL OR target = :target)
      AND (:job::text IS NULL OR job = :job) AND (:state::text IS NULL OR status = :state) AND (:origin::text IS NULL OR origin = :origin)
      AND (:after::timestamptz IS NULL OR created_at >= :after) AND (:before::timestamptz IS NULL OR created_at < :before)
      AND (:key_at::timestamptz IS NULL OR (created_at, run_id) < (:key_at, :key_run::text))
    ORDER BY created_at DESC, run_id DESC LIMIT :limit
) r
LEFT JOIN LATERAL (
    SELECT to_jsonb(v) AS claim FROM (
        SELECT c.claim_id, c.worker_kind, c.boot_id, o.sent_at, c.accepted_at, c.process_ended_at, c.ended_at
        FROM claims c JOIN outbox o ON o.claim_id = c.claim_id
        WHERE c.run_id = r.run_id ORDER BY o.queued_at DESC, c.claim_id DESC LIMIT 1
    ) v
) c ON true
ORDER BY r.created_at DESC, r.run_id DESC;

-- name: one_run
SELECT r.*, c.claim, (SELECT n.run_id FROM runs n WHERE n.retry_of = r.run_id) AS retried_by
FROM runs r
LEFT JOIN LATERAL (
    SELECT to_jsonb(v) AS claim FROM (
        SELECT c.claim_id, c.worker_kind, c.boot_id, o.sent_at, c.accepted_at, c.process_ended_at, c.ended_at
        FROM claims c JOIN outbox o ON o.claim_id = c.claim_id
        WHERE c.run_id = r.run_id ORDER BY o.queued_at DESC, c.claim_id DESC LIMIT 1
    ) v
) c ON true
WHERE r.run_id = :run_id;

-- name: nodes_of_run
SELECT node, status, started_at, finished_at, duration_seconds, error_code, message
FROM run_nodes WHERE run_id = :run_id AND node > :key_node ORDER BY node LIMIT :limit;

-- name: events_of_run
SELECT event_id, seq, kind, occurred_at, payload
FROM run_events WHERE run_id = :run_id AND seq > :key_seq::bigint ORDER BY seq LIMIT :limit;
