-- Backfills: starting one, the step of the pass, changing its state, and looking at it.

-- name: insert_backfill
INSERT INTO backfills (backfill_id, location, target, job, shard, snapshot_id, over, range_json, inputs_json, max_parallel, state,
                       requested_by, request_json, created_at)
VALUES (:backfill_id, :location, :target, :job, :shard, :snapshot_id, :over, :range::jsonb, :inputs::jsonb, :max_parallel, 'active',
        :requested_by, :request::jsonb, :now)
ON CONFLICT (backfill_id) DO NOTHING;

-- name: request_of_backfill
SELECT requested_by, request_json FROM backfills WHERE backfill_id = :backfill_id;

-- name: current_job
SELECT j.snapshot_id, j.shard, sj.definition
FROM jobs j JOIN snapshot_jobs sj ON sj.snapshot_id = j.snapshot_id AND sj.job = j.job
WHERE j.location = :location AND j.target = :target AND j.job = :job;

-- name: shard_of_job
SELECT shard FROM jobs WHERE location = :location AND target = :target AND job = :job;

-- name: shard_of_backfill
SELECT shard FROM backfills WHERE backfill_id = :backfill_id;

-- ------------------------------------------------------------------ the pass

-- name: open_backfills
-- Oldest first. The definition is read only where an item may begin: it can be large.
SELECT b.backfill_id, b.created_at, b.location, b.target, b.job, b.shard, b.snapshot_id, b.range_json, b.inputs_json, b.max_parallel,
       b.state, b.cursor, b.waits_json, b.requested_by, u.unfinished, j.room AS job_room, j.waits AS job_waits,
       CASE WHEN b.state = 'active' AND u.unfinished < b.max_parallel AND j.room > 0 AND NOT j.waits THEN j.definition END AS definition,
       ARRAY(SELECT i.item FROM backfill_items i
             WHERE i.backfill_id = b.backfill_id AND (b.cursor IS NULL OR i.item > b.cursor) ORDER BY i.item) AS made_ahead
FROM backfills b
CROSS JOIN LATERAL (
    SELECT count(*)::integer AS unfinished FROM runs r
    WHERE r.backfill_id = b.backfill_id AND r.status IN ('queued', 'claimed', 'running')
) u
CROSS JOIN LATERAL (
    SELECT sj.definition, (sj.definition ->> 'concurrency')::integer - (
               SELECT count(*)::integer FROM runs a
               WHERE a.location = b.location AND a.target = b.target AND a.job = b.job AND a.status IN ('claimed', 'running')) AS room,
           EXISTS (
               SELECT 1 FROM runs q
               WHERE q.location = b.location AND q.target = b.target AND q.job = b.job AND q.status = 'queued'
                 AND (q.not_before IS NULL OR q.not_before <= :now)) AS waits
    FROM snapshot_jobs sj WHERE sj.snapshot_id = b.snapshot_id AND sj.job = b.job LIMIT 1
) j
WHERE b.shard = :shard AND b.finished_at IS NULL AND (b.created_at, b.backfill_id) > (:after_at::timestamptz, :after_id::text)
ORDER BY b.created_at, b.backfill_id LIMIT :batch
FOR UPDATE OF b SKIP LOCKED;

-- name: blockers_of_runs
SELECT run_id, code, subject, detail FROM run_blockers WHERE run_id = ANY(:run_ids::text[]) ORDER BY run_id, code, subject;

-- name: drop_unclaimed
DELETE FROM runs WHERE run_id = ANY(:run_ids::text[]) AND status = 'queued';

-- name: insert_items
INSERT INTO backfill_items (backfill_id, item, run_id)
SELECT i.backfill_id, i.item, i.run_id FROM jsonb_to_recordset(:rows::jsonb) AS i(backfill_id text, item text, run_id text);

-- name: move_backfills
UPDATE backfills b SET cursor = m.cursor, waits_json = m.waits, state = m.state,
    finished_at = CASE WHEN m.state IN ('completed', 'cancelled') THEN :now::timestamptz END
FROM jsonb_to_recordset(:rows::jsonb) AS m(backfill_id text, cursor text, waits jsonb, state text)
WHERE b.backfill_id = m.backfill_id;

-- name: unfinished_runs
-- Runs of cancelled backfills that were not asked to stop yet.
SELECT run_id FROM runs
WHERE backfill_id = ANY(:backfill_ids::text[]) AND status IN ('queued', 'claimed', 'running') AND cancel_requested_at IS NULL
ORDER BY created_at, run_id;

-- ------------------------------------------------------------------ people

-- name: lock_backfill
SELECT b.state, u.unfinished
FROM backfills b
CROSS JOIN LATERAL (
    SELECT count(*)::integer AS unfinished FROM runs r
    WHERE r.backfill_id = b.backfill_id AND r.status IN ('queued', 'claimed', 'running')
) u
WHERE b.backfill_id = :backfill_id
FOR UPDATE OF b;

-- name: set_state
UPDATE backfills SET state = :state, waits_json = '[]',
    finished_at = CASE WHEN :state::text IN ('completed', 'cancelled') THEN :now::timestamptz END
WHERE backfill_id = :backfill_id;

-- name: one_backfill
SELECT backfill_id, location, target, job, snapshot_id, over, range_json, inputs_json, max_parallel, state, cursor, waits_json,
       requested_by, created_at, finished_at
FROM backfills WHERE backfill_id = :backfill_id;

-- name: list_backfills
SELECT backfill_id, location, target, job, snapshot_id, over, range_json, inputs_json, max_parallel, state, cursor, waits_json,
       requested_by, created_at, finished_at
FROM backfills
WHERE (:location::text IS NULL OR location = :location) AND (:target::text IS NULL OR target = :target)
  AND (:job::text IS NULL OR job = :job) AND (:state::text IS NULL OR state = :state)
  AND (:key_at::timestamptz IS NULL OR (created_at, backfill_id) < (:key_at, :key_id::text))
ORDER BY created_at DESC, backfill_id DESC LIMIT :limit;

-- name: counts_of_backfills
-- Each item by its newest run: one that was retried counts as its retry.
SELECT r.backfill_id, r.status, count(*)::integer AS runs
FROM runs r
WHERE r.backfill_id = ANY(:backfill_ids::text[]) AND NOT EXISTS (SELECT 1 FROM runs n WHERE n.retry_of = r.run_id)
GROUP BY r.backfill_id, r.status;

-- name: items_made
SELECT i.backfill_id, count(*)::integer AS made FROM backfill_items i
WHERE i.backfill_id = ANY(:backfill_ids::text[]) GROUP BY i.backfill_id;

-- name: waits_of_job
-- What holds an active backfill back right now, beside what its last attempt found.
SELECT (sj.definition ->> 'concurrency')::integer AS concurrency,
       ARRAY(SELECT r.run_id FROM runs r WHERE r.backfill_id = b.backfill_id AND r.status IN ('queued', 'claimed', 'running')
             ORDER BY r.run_id LIMIT :named) AS unfinished,
       ARRAY(SELECT a.run_id FROM runs a WHERE a.location = b.location AND a.target = b.target AND a.job = b.job
             AND a.status IN ('claimed', 'running') ORDER BY a.run_id LIMIT :named) AS active,
       ARRAY(SELECT q.run_id FROM runs q WHERE q.location = b.location AND q.target = b.target AND q.job = b.job AND q.status = 'queued'
             AND (q.not_before IS NULL OR q.not_before <= :now) ORDER BY q.created_at, q.run_id LIMIT 1) AS queued
FROM backfills b JOIN snapshot_jobs sj ON sj.snapshot_id = b.snapshot_id AND sj.job = b.job
WHERE b.backfill_id = :backfill_id;

-- name: items_of_backfill
SELECT i.item, i.run_id AS first_run_id, c.run_id, c.state, c.end_reason, c.retry_number
FROM backfill_items i
LEFT JOIN LATERAL (
    WITH RECURSIVE chain AS (
        SELECT r.run_id, r.status AS state, r.end_reason, r.retry_number FROM runs r WHERE r.run_id = i.run_id
        UNION ALL
        SELECT n.run_id, n.status, n.end_reason, n.retry_number FROM chain p JOIN runs n ON n.retry_of = p.run_id
    )
    SELECT * FROM chain ORDER BY retry_number DESC LIMIT 1
) c ON true
WHERE i.backfill_id = :backfill_id AND (:key_item::text IS NULL OR i.item > :key_item)
ORDER BY i.item LIMIT :limit;
