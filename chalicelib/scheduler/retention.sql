-- Retention (scheduler.md 16): what is past its keeping time, a page per transaction. Rows that somebody else has locked
-- are left to the next page; a guard is checked again by the statement that deletes, after the rows were locked.

-- name: retention_asked
SELECT asked_at FROM maintenance WHERE task = 'retention';

-- name: ask_for_retention
INSERT INTO maintenance (task, asked_at) VALUES ('retention', :now)
ON CONFLICT (task) DO UPDATE SET asked_at = excluded.asked_at;

-- name: finish_retention
INSERT INTO maintenance (task, asked_at, finished_at) VALUES ('retention', :now, :now)
ON CONFLICT (task) DO UPDATE SET finished_at = excluded.finished_at;

-- name: retention_state
SELECT asked_at, finished_at FROM maintenance WHERE task = 'retention';

-- ------------------------------------------------------------------ by age alone

-- name: remove_ticks
-- The cursor is not here, so what goes makes nothing due (S19).
DELETE FROM ticks WHERE ctid = ANY(ARRAY(
    SELECT k.ctid FROM ticks k WHERE k.recorded_at < :before::timestamptz ORDER BY k.recorded_at LIMIT :page FOR UPDATE SKIP LOCKED));

-- name: remove_heartbeats
DELETE FROM heartbeat_observations WHERE ctid = ANY(ARRAY(
    SELECT h.ctid FROM heartbeat_observations h WHERE h.observed_at < :before::timestamptz ORDER BY h.observed_at LIMIT :page
    FOR UPDATE SKIP LOCKED));

-- name: remove_alerts
-- The newest numbered episode of a condition stays: the next one counts from it, and a number is never used twice.
DELETE FROM platform_alerts WHERE ctid = ANY(ARRAY(
    SELECT a.ctid FROM platform_alerts a
    WHERE a.closed_at < :before::timestamptz
      AND (a.episode !~ '^[0-9]{1,9}$' OR EXISTS (
          SELECT 1 FROM platform_alerts n
          WHERE n.condition = a.condition AND n.subject = a.subject
            AND n.episode ~ '^[0-9]{1,9}$' AND (length(n.episode), n.episode) > (length(a.episode), a.episode)))
    ORDER BY a.closed_at LIMIT :page FOR UPDATE SKIP LOCKED));

-- name: remove_tokens
DELETE FROM access_tokens WHERE ctid = ANY(ARRAY(
    SELECT t.ctid FROM access_tokens t WHERE LEAST(t.expires_at, t.revoked_at) < :before::timestamptz
    ORDER BY LEAST(t.expires_at, t.revoked_at) LIMIT :page FOR UPDATE SKIP LOCKED));

-- name: remove_backfills
-- With their items. What was created too late cannot have ended early enough: hence the index by creation.
DELETE FROM backfills WHERE backfill_id = ANY(ARRAY(
    SELECT b.backfill_id FROM backfills b
    WHERE b.created_at < :before::timestamptz AND b.finished_at < :before::timestamptz
    ORDER BY b.created_at, b.backfill_id LIMIT :page FOR UPDATE SKIP LOCKED));

-- ------------------------------------------------------------------ runs, with all that hangs on them

-- name: lock_ended_runs
-- Kept: what holds a write claim, what a live run retries, and what belongs to a backfill, which goes first.
SELECT r.created_at, r.run_id FROM runs r
WHERE r.created_at < :before::timestamptz AND (r.created_at, r.run_id) > (:after_at::timestamptz, :after_id::text)
  AND r.finished_at < :before::timestamptz
  AND NOT EXISTS (SELECT 1 FROM write_claims w WHERE w.run_id = r.run_id)
  AND NOT EXISTS (SELECT 1 FROM runs n WHERE n.retry_of = r.run_id AND n.finished_at IS NULL)
  AND NOT EXISTS (SELECT 1 FROM backfills b WHERE b.backfill_id = r.backfill_id)
ORDER BY r.created_at, r.run_id LIMIT :page
FOR UPDATE OF r SKIP LOCKED;

-- name: remove_runs
-- Of the locked ones, oldest first, as many as have together no more nodes than a transaction has time for.
WITH sized AS (
    SELECT r.run_id, sum(n.nodes) OVER (ORDER BY r.created_at, r.run_id) - n.nodes AS nodes_before
    FROM runs r CROSS JOIN LATERAL (SELECT count(*) AS nodes FROM run_nodes m WHERE m.run_id = r.run_id) n
    WHERE r.run_id = ANY(:run_ids::text[])
)
DELETE FROM runs r USING sized s
WHERE r.run_id = s.run_id AND s.nodes_before < :nodes
  AND NOT EXISTS (SELECT 1 FROM write_claims w WHERE w.run_id = r.run_id)
  AND NOT EXISTS (SELECT 1 FROM runs n WHERE n.retry_of = r.run_id AND n.finished_at IS NULL)
  AND NOT EXISTS (SELECT 1 FROM backfills b WHERE b.backfill_id = r.backfill_id)
RETURNING r.created_at, r.run_id;

-- ------------------------------------------------------------------ snapshots, with their publications

-- name: note_snapshots_in_use
-- No time is stored when a snapshot stops being current: it was last used when it was last seen here.
UPDATE snapshots s SET last_used_at = :now FROM current_snapshots c WHERE c.snapshot_id = s.snapshot_id;

-- name: lock_unused_snapshots
SELECT COALESCE(s.last_used_at, s.created_at) AS used_at, s.snapshot_id FROM snapshots s
WHERE COALESCE(s.last_used_at, s.created_at) < :before::timestamptz
  AND (COALESCE(s.last_used_at, s.created_at), s.snapshot_id) > (:after_at::timestamptz, :after_id::text)
  AND NOT EXISTS (SELECT 1 FROM current_snapshots c WHERE c.snapshot_id = s.snapshot_id)
  AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.snapshot_id = s.snapshot_id)
  AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.snapshot_id = s.snapshot_id)
  AND NOT EXISTS (SELECT 1 FROM backfills b WHERE b.snapshot_id = s.snapshot_id)
ORDER BY COALESCE(s.last_used_at, s.created_at), s.snapshot_id LIMIT :page
FOR UPDATE OF s SKIP LOCKED;

-- name: remove_snapshots
WITH gone AS (
    DELETE FROM snapshots s
    WHERE s.snapshot_id = ANY(:snapshot_ids::text[])
      AND NOT EXISTS (SELECT 1 FROM current_snapshots c WHERE c.snapshot_id = s.snapshot_id)
      AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.snapshot_id = s.snapshot_id)
      AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.snapshot_id = s.snapshot_id)
      AND NOT EXISTS (SELECT 1 FROM backfills b WHERE b.snapshot_id = s.snapshot_id)
    RETURNING s.snapshot_id
), forgotten AS (
    DELETE FROM publications p USING gone g WHERE p.snapshot_id = g.snapshot_id
)
SELECT snapshot_id FROM gone;
