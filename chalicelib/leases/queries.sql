-- The fence and the hint's sequence. READ COMMITTED only, on the writer only: a snapshot older than the lock would let a
-- stale commit through.

-- name: lock_shard_exclusively
SELECT 1 AS locked FROM (SELECT pg_advisory_xact_lock(:lock_class::integer, :shard::integer)) AS lock;

-- name: bump_epoch
-- A repeat after a lost COMMIT reply finds its own token and bumps no further.
UPDATE scheduler_shards
SET epoch = CASE WHEN owner_token = :token THEN epoch ELSE GREATEST(epoch, :epoch_seen::bigint) + 1 END, owner_token = :token
WHERE shard = :shard RETURNING epoch;

-- name: lock_shard_shared
SELECT 1 AS locked FROM (SELECT pg_advisory_xact_lock_shared(:lock_class::integer, :shard::integer)) AS lock;

-- name: check_epoch
-- The owner too: after a failover that lost a bump, a late bump could otherwise make the same epoch again.
SELECT shard FROM scheduler_shards WHERE shard = :shard AND epoch = :epoch AND owner_token = :token FOR SHARE;

-- name: all_shards
SELECT shard FROM scheduler_shards ORDER BY shard;

-- name: hint_sequences
SELECT shard, hint_seq FROM scheduler_shards WHERE shard = ANY(:shards::integer[]) ORDER BY shard;

-- name: lock_hints_shared
SELECT s.shard FROM (SELECT unnest(:shards::integer[]) AS shard ORDER BY 1) AS s,
    LATERAL (SELECT pg_advisory_xact_lock_shared(:lock_class::integer, s.shard)) AS lock;

-- name: try_lock_hint
SELECT pg_try_advisory_xact_lock(:lock_class::integer, :shard::integer) AS granted;

-- name: move_hint_sequence
UPDATE scheduler_shards SET hint_seq = hint_seq + 1 WHERE shard = :shard;
