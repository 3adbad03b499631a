-- Triggers, their cursors, and ticks.

-- name: due_schedules
-- Oldest due first; rows that another pass is working on are left to it.
SELECT s.trigger_id, s.cursor_json, s.next_at, s.shard, t.location, t.target, t.job, t.spec, j.snapshot_id, 
       CASE WHEN sj.definition -> 'inputs' <> '{}'::jsonb THEN sj.definition END AS definition
FROM trigger_state s
JOIN triggers t ON t.trigger_id = s.trigger_id
JOIN jobs j ON j.location = t.location AND j.target = t.target AND j.job = t.job
JOIN snapshot_jobs sj ON sj.snapshot_id = j.snapshot_id AND sj.job = j.job
WHERE s.shard = :shard AND s.enabled AND s.next_at <= :pass_now AND (s.next_at, s.trigger_id) > (:after_at::timestamptz, :after_trigger::text)
ORDER BY s.next_at, s.trigger_id LIMIT :batch
FOR UPDATE OF s SKIP LOCKED;

-- name: covering_runs
-- A queued run that a tick's run would only repeat: the same nodes, now, and not an item of a backfill. A row that is being
-- claimed is skipped: once claimed, it covers nothing.
SELECT w.trigger_id, c.run_id
FROM jsonb_to_recordset(:rows::jsonb) AS w(trigger_id text, location text, target text, job text, snapshot_id text, inputs jsonb,
     selection jsonb)
CROSS JOIN LATERAL (
    SELECT r.run_id FROM runs r
    WHERE r.location = w.location AND r.target = w.target AND r.job = w.job AND r.status = 'queued'
      AND r.snapshot_id = w.snapshot_id AND r.inputs_json = w.inputs AND r.selection IS NOT DISTINCT FROM w.selection
      AND (r.not_before IS NULL OR r.not_before <= :pass_now) AND r.backfill_id IS NULL
    ORDER BY r.created_at, r.run_id LIMIT 1
    FOR SHARE SKIP LOCKED
) c;

-- name: insert_ticks
INSERT INTO ticks (trigger_id, local_slot, scheduled_for, outcome, run_id, covered_by, recorded_at, lateness_seconds, skipped)
SELECT k.trigger_id, k.local_slot, k.scheduled_for, k.outcome, k.run_id, k.covered_by, :now, k.lateness_seconds, k.skipped
FROM jsonb_to_recordset(:rows::jsonb) AS k(trigger_id text, local_slot text, scheduled_for timestamptz, outcome text, run_id text,
     covered_by text, lateness_seconds double precision, skipped integer)
ON CONFLICT DO NOTHING
RETURNING trigger_id;

-- name: move_cursors
UPDATE trigger_state s SET cursor_json = m.cursor, next_at = m.next_at
FROM jsonb_to_recordset(:rows::jsonb) AS m(trigger_id text, cursor jsonb, next_at timestamptz)
WHERE s.trigger_id = m.trigger_id;

-- name: shard_of_trigger
SELECT shard FROM trigger_state WHERE trigger_id = :trigger_id;

-- name: zone_data
SELECT tzdata_version FROM scheduler_shards WHERE shard = :shard;

-- name: keep_zone_data
UPDATE scheduler_shards SET tzdata_version = :version WHERE shard = :shard;

-- name: schedules_page
SELECT s.trigger_id, s.cursor_json, t.spec
FROM trigger_state s JOIN triggers t ON t.trigger_id = s.trigger_id
WHERE s.shard = :shard AND t.kind = 'schedule' AND s.trigger_id > :after
ORDER BY s.trigger_id LIMIT :batch
FOR UPDATE OF s;

-- name: triggers_of_target
SELECT t.trigger_id, t.spec, t.spec_hash, t.kind, t.job, s.enabled, s.cursor_json
FROM triggers t JOIN trigger_state s ON s.trigger_id = t.trigger_id
WHERE t.location = :location AND t.target = :target
ORDER BY t.trigger_id FOR UPDATE OF s;

-- name: remove_triggers
DELETE FROM triggers WHERE trigger_id = ANY(:trigger_ids::text[]);

-- name: keep_triggers
INSERT INTO triggers (trigger_id, location, target, name, job, kind, spec, spec_hash)
SELECT k.trigger_id, k.location, k.target, k.name, k.job, k.kind, k.spec, k.spec_hash
FROM jsonb_to_recordset(:rows::jsonb) AS k(trigger_id text, location text, target text, name text, job text, kind text, spec jsonb, spec_hash text)
ORDER BY k.trigger_id
ON CONFLICT (trigger_id) DO UPDATE SET job = excluded.job, kind = excluded.kind, spec = excluded.spec, spec_hash = excluded.spec_hash;

-- name: keep_states
-- enabled is only set for a new trigger: an operator's choice survives a publication.
INSERT INTO trigger_state (trigger_id, shard, enabled, cursor_json, next_at)
SELECT k.trigger_id, k.shard, k.enabled, k.cursor, k.next_at
FROM jsonb_to_recordset(:rows::jsonb) AS k(trigger_id text, shard integer, enabled boolean, cursor jsonb, next_at timestamptz)
ORDER BY k.trigger_id
ON CONFLICT (trigger_id) DO UPDATE SET shard = excluded.shard, cursor_json = excluded.cursor_json, next_at = excluded.next_at;

-- name: list_triggers
SELECT t.name, t.job, t.kind, t.spec, s.enabled, s.next_at
FROM triggers t JOIN trigger_state s ON s.trigger_id = t.trigger_id
WHERE t.location = :location AND t.target = :target
ORDER BY t.name;

-- name: lock_trigger
SELECT t.trigger_id, t.name, t.job, t.kind, t.spec, s.enabled, s.cursor_json, s.next_at
FROM triggers t JOIN trigger_state s ON s.trigger_id = t.trigger_id
WHERE t.location = :location AND t.target = :target AND t.name = :name
FOR UPDATE OF s;

-- name: set_enabled
UPDATE trigger_state SET enabled = :enabled, cursor_json = :cursor::jsonb, next_at = :next_at WHERE trigger_id = :trigger_id;

-- name: stored_request
SELECT digest, response FROM trigger_requests WHERE trigger_id = :trigger_id AND request_id = :request_id;

-- name: store_request
INSERT INTO trigger_requests (trigger_id, request_id, digest, response) VALUES (:trigger_id, :request_id, :digest, :response::jsonb);

-- name: list_ticks
SELECT scheduled_for, local_slot, outcome, run_id, covered_by, recorded_at, lateness_seconds, skipped
FROM ticks
WHERE trigger_id = :trigger_id AND (:key_at::timestamptz IS NULL OR scheduled_for < :key_at)
ORDER BY scheduled_for DESC LIMIT :limit;
