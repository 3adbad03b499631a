-- Silence of boots: marking runs, hearing of them again, and ending those that cannot go on (scheduler.md 9).

-- name: watched_boots
-- Boots with an accepted claim, and what is known of their runs.
SELECT c.boot_id, c.boot_partition, bool_or(r.heartbeat_lost_at IS NULL) AS unmarked, bool_or(r.heartbeat_lost_at IS NOT NULL) AS marked,
       bool_or(r.status = 'claimed') AS unstarted
FROM claims c JOIN runs r ON r.run_id = c.run_id
WHERE c.ended_at IS NULL AND c.boot_id IS NOT NULL AND c.boot_partition = ANY(:partitions::integer[])
GROUP BY c.boot_id, c.boot_partition ORDER BY c.boot_id;

-- name: shards_of_boots
SELECT DISTINCT r.shard FROM claims c JOIN runs r ON r.run_id = c.run_id
WHERE c.boot_id = ANY(:boots::text[]) AND c.ended_at IS NULL ORDER BY 1;

-- name: shards_beside_boots
-- Shards of the runs of these boots, and those whose runs may wait for what they hold.
SELECT r.shard FROM claims c JOIN runs r ON r.run_id = c.run_id WHERE c.boot_id = ANY(:boots::text[]) AND c.ended_at IS NULL
UNION SELECT s.shard FROM scheduler_shards s WHERE (SELECT true FROM runs q WHERE q.shard = s.shard AND q.status = 'queued' LIMIT 1) ORDER BY 1;

-- name: lock_runs_of_boots
-- Decided again under the lock of the run: who ended since is left alone (its row says so once the lock is had).
SELECT r.run_id, r.location, r.target, r.job, r.status, r.cancel_requested_at, c.claim_id, c.boot_id, c.boot_partition, c.worker_kind,
       c.accepted_at, c.process_ended_at
FROM claims c JOIN runs r ON r.run_id = c.run_id
WHERE c.boot_id = ANY(:boots::text[]) AND c.ended_at IS NULL AND r.status = ANY(:states::text[])
  AND (r.heartbeat_lost_at IS NOT NULL) = :marked AND r.run_id > :after::text
ORDER BY r.run_id LIMIT :batch
FOR UPDATE OF r;

-- name: mark_lost
UPDATE runs SET heartbeat_lost_at = :now WHERE run_id = ANY(:run_ids::text[]);

-- name: clear_lost
UPDATE runs SET heartbeat_lost_at = NULL WHERE run_id = ANY(:run_ids::text[]);

-- name: clear_lost_of_claim
UPDATE runs r SET heartbeat_lost_at = NULL FROM claims c
WHERE r.run_id = :run_id AND r.heartbeat_lost_at IS NOT NULL AND c.claim_id = :claim_id AND c.run_id = r.run_id AND c.ended_at IS NULL
RETURNING r.run_id;

-- name: note_heartbeats
-- A boot whose silence at that counter is known already gets no second row of it.
INSERT INTO heartbeat_observations (boot_id, observed_at, kind, counter)
SELECT b.boot_id, :now, b.kind, b.counter FROM jsonb_to_recordset(:rows::jsonb) AS b(boot_id text, kind text, counter bigint)
LEFT JOIN LATERAL (
    SELECT o.kind, o.counter FROM heartbeat_observations o WHERE o.boot_id = b.boot_id ORDER BY o.observed_at DESC LIMIT 1
) newest ON true
WHERE newest.kind IS DISTINCT FROM b.kind OR newest.counter IS DISTINCT FROM b.counter
ON CONFLICT (boot_id, observed_at, kind) DO NOTHING;

-- name: marked_started
-- Marked runs that had started: what a proof of the end of their process would end.
SELECT r.run_id, c.claim_id, c.boot_id, c.worker_kind, c.accepted_at, c.process_ended_at
FROM claims c JOIN runs r ON r.run_id = c.run_id
WHERE c.ended_at IS NULL AND c.boot_id IS NOT NULL AND c.boot_partition = ANY(:partitions::integer[]) AND r.status = 'running'
  AND r.heartbeat_lost_at IS NOT NULL AND (c.process_ended_at IS NOT NULL OR c.worker_kind = 'lambda')
ORDER BY c.accepted_at, r.run_id LIMIT :most;

-- name: boots_with_claims
SELECT DISTINCT c.boot_id FROM claims c WHERE c.boot_id = ANY(:boots::text[]) AND c.ended_at IS NULL;

-- name: ended_claims_at_work
-- Claims that have ended although their boot still has a process of theirs: it is told again to stop.
SELECT c.run_id, c.claim_id, c.boot_id, c.boot_partition
FROM jsonb_to_recordset(:rows::jsonb) AS w(boot_id text, run_id text)
JOIN claims c ON c.run_id = w.run_id AND c.boot_id = w.boot_id
WHERE c.ended_at IS NOT NULL;

-- name: heartbeats_of_run
SELECT o.boot_id, o.observed_at, o.kind, o.counter
FROM claims c JOIN heartbeat_observations o ON o.boot_id = c.boot_id
WHERE c.run_id = :run_id AND o.observed_at >= c.accepted_at AND (c.ended_at IS NULL OR o.observed_at <= c.ended_at)
ORDER BY o.observed_at, o.kind LIMIT :most;
