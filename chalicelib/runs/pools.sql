-- Pools as people see and set them; the claim pass has its own statements.

-- name: pools_page
-- Which runs hold slots is shown as far as the caller reaches; how much is in use is shown in any case.
SELECT p.pool, p.slot_limit, COALESCE(u.used, 0) AS used, ARRAY(
           SELECT h.run_id FROM slots h JOIN runs r ON r.run_id = h.run_id
           WHERE h.pool = p.pool AND (:location::text IS NULL OR r.location = :location) AND (:target::text IS NULL OR r.target = :target)
           ORDER BY h.run_id LIMIT :holders) AS holders
FROM pools p
CROSS JOIN LATERAL (SELECT sum(s.weight)::integer AS used FROM slots s WHERE s.pool = p.pool) u
WHERE p.pool > :after::text AND (:name::text IS NULL OR p.pool = :name)
ORDER BY p.pool LIMIT :limit;

-- name: lock_pool
SELECT slot_limit FROM pools WHERE pool = :pool FOR UPDATE;

-- name: add_pool
INSERT INTO pools (pool, slot_limit) VALUES (:pool, :slot_limit) ON CONFLICT (pool) DO NOTHING RETURNING pool;

-- name: set_limit
UPDATE pools SET slot_limit = :slot_limit WHERE pool = :pool;
