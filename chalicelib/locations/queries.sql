-- Locations and targets.

-- name: add_location
INSERT INTO locations (location, disabled) VALUES (:location::text, false)
ON CONFLICT (location) DO NOTHING;

-- name: set_disabled
UPDATE locations SET disabled = :disabled::boolean WHERE location = :location::text;

-- name: location_exists
SELECT location FROM locations WHERE location = :location::text;

-- name: locations_page
SELECT location, disabled
FROM locations
WHERE :after::text IS NULL OR location > :after::text
ORDER BY location
LIMIT :limit::integer;

-- name: targets_of_locations
SELECT location, target, warehouse, settle_seconds, single_writer, case_rule, environment
FROM targets
WHERE location = ANY (:locations::text[])
ORDER BY location, target;

-- Agreement between targets of one warehouse spans rows that do not exist yet, so one change at a time.
-- name: lock_settings
SELECT pg_advisory_xact_lock(7421, 2) IS NULL AS locked;

-- name: lock_target
SELECT location, target, warehouse, settle_seconds, single_writer, case_rule, environment
FROM targets
WHERE location = :location::text AND target = :target::text
FOR UPDATE;

-- name: count_targets
SELECT count(*) AS targets FROM targets WHERE location = :location::text;

-- name: has_live_claims
SELECT EXISTS (
    SELECT FROM write_claims w JOIN runs r ON r.run_id = w.run_id
    WHERE r.location = :location::text AND r.target = :target::text
      AND (w.release_after IS NULL OR w.release_after > :now::timestamptz)
) AS live;

-- name: others_of_warehouse
SELECT location, target, warehouse, settle_seconds, single_writer, case_rule, environment
FROM targets
WHERE warehouse = :warehouse::text AND (location, target) <> (:location::text, :target::text)
ORDER BY location, target
LIMIT :limit::integer;

-- name: put_target
INSERT INTO targets (location, target, warehouse, settle_seconds, single_writer, case_rule, environment)
VALUES (:location::text, :target::text, :warehouse::text, :settle_seconds::integer, :single_writer::boolean,
        :case_rule::text, :environment::jsonb)
ON CONFLICT (location, target) DO UPDATE
SET warehouse = excluded.warehouse, settle_seconds = excluded.settle_seconds, single_writer = excluded.single_writer,
    case_rule = excluded.case_rule, environment = excluded.environment;
