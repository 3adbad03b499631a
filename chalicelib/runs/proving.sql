-- Proofs by the container service that a task, and with it every process of its claims, has ended (scheduler.md 7.3).

-- name: marked_tasks
-- The tasks of runs that were marked lost and that nobody has proved ended yet, by the boots that a shard serves.
SELECT DISTINCT c.started_ref
FROM claims c JOIN runs r ON r.run_id = c.run_id
WHERE c.boot_partition = ANY(:partitions::integer[]) AND c.ended_at IS NULL AND c.boot_id IS NOT NULL
  AND c.started_ref IS NOT NULL AND c.process_ended_at IS NULL
  AND r.status IN ('claimed', 'running') AND r.heartbeat_lost_at IS NOT NULL
ORDER BY c.started_ref LIMIT :batch;

-- name: runs_of_tasks
SELECT r.run_id, r.status, r.cancel_requested_at
FROM claims c JOIN runs r ON r.run_id = c.run_id
WHERE c.started_ref = ANY(:tasks::text[]) AND c.ended_at IS NULL
ORDER BY r.run_id FOR UPDATE OF r;

-- name: shards_freed_by_tasks
SELECT r.shard FROM claims c JOIN runs r ON r.run_id = c.run_id WHERE c.started_ref = ANY(:tasks::text[]) AND c.ended_at IS NULL
UNION SELECT s.shard FROM scheduler_shards s WHERE (SELECT true FROM runs q WHERE q.shard = s.shard AND q.status = 'queued' LIMIT 1) ORDER BY 1;
