-- What a pass needs beside the queries of the domains: looking ahead, and the time for the hint.

-- name: look_ahead
-- The due seconds of the next window that no message was made for yet, by whichever epoch.
INSERT INTO due_messages (shard, due_second)
SELECT DISTINCT :shard::integer, date_trunc('second', w.due_at + interval '999999 microseconds')
FROM (
    SELECT s.next_at AS due_at FROM trigger_state s
    WHERE s.shard = :shard AND s.enabled AND s.next_at > :pass_now::timestamptz AND s.next_at <= :pass_now::timestamptz + make_interval(secs => :window_seconds)
    UNION ALL
    SELECT c.release_after FROM write_claims c JOIN runs r ON r.run_id = c.run_id
    WHERE r.shard = :shard AND c.release_after > :pass_now::timestamptz AND c.release_after <= :pass_now::timestamptz + make_interval(secs => :window_seconds)
    UNION ALL
    SELECT d.not_before FROM runs d
    WHERE d.shard = :shard AND d.status = 'queued' AND d.not_before > :pass_now::timestamptz AND d.not_before <= :pass_now::timestamptz + make_interval(secs => :window_seconds)
    UNION ALL
    -- the platform scan while a run is active, on a grid: any number of passes ask for one message each half minute
    SELECT to_timestamp((floor(extract(epoch FROM :pass_now::timestamptz) / :scan_seconds) + 1) * :scan_seconds)
    WHERE EXISTS (SELECT 1 FROM runs a WHERE a.shard = :shard AND a.status = 'running')
       OR EXISTS (SELECT 1 FROM runs a WHERE a.shard = :shard AND a.status = 'claimed')
) w
ON CONFLICT ON CONSTRAINT due_messages_one_per_second DO NOTHING
RETURNING due_second;

-- name: forget_due_messages
-- By the moment of the pass, as look_ahead: one held up for hours would forget a second and send its message again.
DELETE FROM due_messages WHERE shard = :shard AND due_second < :pass_now::timestamptz - make_interval(secs => :kept_seconds);

-- name: next_work
-- The earliest moment at which this shard may have work; NULL when nothing is ahead.
SELECT LEAST(
    (SELECT min(s.next_at) FROM trigger_state s WHERE s.shard = :shard AND s.enabled AND s.next_at IS NOT NULL),
    (SELECT min(CASE WHEN o.sent_at IS NULL THEN o.queued_at
                     WHEN c.accepted_at IS NOT NULL THEN c.accepted_at + make_interval(secs => :start_seconds)
                     WHEN c.worker_kind = 'lambda' THEN o.sent_at + make_interval(secs => :accept_lambda_seconds)
                     ELSE o.sent_at + make_interval(secs => :accept_container_seconds) END)
     FROM runs r JOIN claims c ON c.run_id = r.run_id AND c.ended_at IS NULL JOIN outbox o ON o.claim_id = c.claim_id
     WHERE r.shard = :shard AND r.status = 'claimed'),
    -- what became due since the pass began may have been left out of it; an older one waits for something else
    (SELECT min(d.not_before) FROM runs d WHERE d.shard = :shard AND d.status = 'queued' AND d.not_before > :since::timestamptz),
    (SELECT min(w.release_after) FROM write_claims w JOIN runs r ON r.run_id = w.run_id WHERE r.shard = :shard AND w.release_after IS NOT NULL),
    (SELECT :now::timestamptz FROM runs r WHERE r.shard = :shard AND r.status IN ('claimed', 'running') AND r.cancel_requested_at IS NOT NULL LIMIT 1),
    (SELECT :now::timestamptz FROM backfills b
     WHERE b.shard = :shard AND b.finished_at IS NULL AND (b.state = 'cancelling' OR (b.state = 'active' AND b.max_parallel > (
         SELECT count(*) FROM runs u WHERE u.backfill_id = b.backfill_id AND u.status IN ('queued', 'claimed', 'running')))) LIMIT 1),
    -- the platform scan: while a run is active, and when one has waited for too long
    (SELECT :now::timestamptz + make_interval(secs => :scan_seconds) FROM runs a WHERE a.shard = :shard AND a.status = 'running' LIMIT 1),
    (SELECT :now::timestamptz + make_interval(secs => :scan_seconds) FROM runs a WHERE a.shard = :shard AND a.status = 'claimed' LIMIT 1),
    (SELECT min(q.created_at) + make_interval(secs => :waiting_seconds) FROM runs q
     WHERE q.shard = :shard AND q.status = 'queued' AND q.created_at > :now::timestamptz - make_interval(secs => :waiting_seconds)),
    (SELECT m.asked_at + interval '1 day' FROM maintenance m WHERE :shard = 0 AND m.task = 'retention')
) AS next_at;

-- name: watches_boots
-- Whether a boot of these partitions has an accepted claim, so that its lease must be watched.
SELECT EXISTS (SELECT 1 FROM claims c WHERE c.ended_at IS NULL AND c.boot_id IS NOT NULL AND c.boot_partition = ANY(:partitions::integer[])) AS active;

-- ------------------------------------------------------------------ another number of shards

-- name: lift_statement_limit
SELECT set_config('statement_timeout', '0', true) AS lifted;

-- name: lock_shards
SELECT s.shard FROM generate_series(0, :highest::integer) AS s(shard),
    LATERAL (SELECT pg_advisory_xact_lock(:lock_class::integer, s.shard)) AS lock;

-- name: add_shards
INSERT INTO scheduler_shards (shard, epoch, owner_token, hint_seq, tzdata_version)
SELECT n, (SELECT max(epoch) FROM scheduler_shards), '', 0, (SELECT min(tzdata_version) FROM scheduler_shards)
FROM generate_series(0, :count::integer - 1) AS n
ON CONFLICT (shard) DO NOTHING;

-- name: move_epochs
-- Every leader of before is fenced, and every writer that has lowered a hint lowers again.
UPDATE scheduler_shards SET epoch = epoch + 1, owner_token = '', hint_seq = hint_seq + 1;

-- name: jobs_with_work
SELECT location, target, job FROM jobs
UNION SELECT location, target, job FROM triggers
UNION SELECT location, target, job FROM backfills WHERE finished_at IS NULL
UNION SELECT location, target, job FROM runs WHERE status IN ('queued', 'claimed', 'running');

-- name: move_jobs
UPDATE jobs j SET shard = m.shard
FROM jsonb_to_recordset(:rows::jsonb) AS m(location text, target text, job text, shard integer)
WHERE j.location = m.location AND j.target = m.target AND j.job = m.job AND j.shard <> m.shard;

-- name: move_triggers
UPDATE trigger_state s SET shard = m.shard
FROM triggers t JOIN jsonb_to_recordset(:rows::jsonb) AS m(location text, target text, job text, shard integer)
    ON t.location = m.location AND t.target = m.target AND t.job = m.job
WHERE s.trigger_id = t.trigger_id AND s.shard <> m.shard;

-- name: move_runs
UPDATE runs r SET shard = m.shard
FROM jsonb_to_recordset(:rows::jsonb) AS m(location text, target text, job text, shard integer)
WHERE r.location = m.location AND r.target = m.target AND r.job = m.job AND r.shard <> m.shard
  AND r.status IN ('queued', 'claimed', 'running');

-- name: move_open_backfills
UPDATE backfills b SET shard = m.shard
FROM jsonb_to_recordset(:rows::jsonb) AS m(location text, target text, job text, shard integer)
WHERE b.location = m.location AND b.target = m.target AND b.job = m.job AND b.shard <> m.shard AND b.finished_at IS NULL;

-- name: remove_due_messages
-- Look-ahead messages name the shard of before: the passes that follow look ahead again.
DELETE FROM due_messages;

-- name: remove_shards
DELETE FROM scheduler_shards WHERE shard >= :count::integer;
