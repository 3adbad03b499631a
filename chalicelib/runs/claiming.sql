-- The claim pass (scheduler.md 7.2): who is a candidate, what it needs, who holds that, and the writes of a decision.
-- Rows travel as JSON through jsonb_to_recordset, so that a batch is one statement.

-- ------------------------------------------------------------------ candidates

-- name: candidate_keys
-- Per job the oldest runs that its concurrency leaves room for and that are due; beyond that a run is no candidate. One
-- look-up per step: from a candidate to the next run of its job, from the first that is none to the next job. So a pass
-- reads what it may claim, and never all that wait. A run never overtakes an older one of its job.
WITH RECURSIVE walked AS (
    (SELECT ''::text AS location, ''::text AS target, ''::text AS job, NULL::timestamptz AS created_at, ''::text AS run_id,
            0::bigint AS active, 0 AS ahead, false AS candidate)
    UNION ALL
    SELECT n.location, n.target, n.job, n.created_at, n.run_id, a.active, o.ahead, n.shard = :shard AND a.active + o.ahead < d.concurrency
    FROM walked w
    CROSS JOIN LATERAL (
        SELECT r.location, r.target, r.job, r.created_at, r.run_id, r.shard, r.snapshot_id FROM runs r
        WHERE r.status = 'queued' AND (r.not_before IS NULL OR r.not_before <= :now)
          AND (r.location, r.target, r.job, r.created_at, r.run_id)
              > (w.location, w.target, w.job, CASE WHEN w.candidate THEN w.created_at ELSE 'infinity' END, w.run_id)
        ORDER BY r.location, r.target, r.job, r.created_at, r.run_id LIMIT 1
    ) n
    CROSS JOIN LATERAL (SELECT (n.location, n.target, n.job) = (w.location, w.target, w.job) AS same) s
    CROSS JOIN LATERAL (SELECT CASE WHEN s.same THEN w.ahead + 1 ELSE 0 END AS ahead) o
    CROSS JOIN LATERAL (
        SELECT CASE WHEN s.same THEN w.active ELSE (
            SELECT count(*) FROM runs b
            WHERE b.location = n.location AND b.target = n.target AND b.job = n.job AND b.status IN ('claimed', 'running')
        ) END AS active
    ) a
    CROSS JOIN LATERAL (
        SELECT (sj.definition ->> 'concurrency')::integer AS concurrency
        FROM snapshot_jobs sj WHERE sj.snapshot_id = n.snapshot_id AND sj.job = n.job LIMIT 1
    ) d
)
SELECT created_at, run_id FROM walked
WHERE candidate AND (created_at, run_id) > (:after_at::timestamptz, :after_run::text)
ORDER BY created_at, run_id LIMIT :most;

-- name: candidates_of_runs
-- Of the runs named, those that still wait and are due, locked, oldest first. A run with a selection wants the relations
-- of its nodes and those that the job declares beside them.
SELECT r.run_id, r.created_at, GREATEST(r.created_at, r.not_before) AS due_at, r.location, r.target, r.job, t.location_disabled,
       t.warehouse, t.single_writer, (d.definition ->> 'concurrency')::integer AS concurrency, d.definition ->> 'worker' AS worker_kind,
       d.definition -> 'pools' AS pools,
       CASE WHEN r.selection IS NULL THEN d.definition -> 'relations' ELSE (
           SELECT COALESCE(d.definition -> 'also', '[]') || COALESCE(jsonb_agg(n.relation), '[]') FROM snapshot_nodes n
           WHERE n.snapshot_id = r.snapshot_id AND n.node = ANY(ARRAY(SELECT jsonb_array_elements_text(r.selection)))
             AND d.definition -> 'relations' ? n.relation
       ) END AS relations
FROM unnest(:run_ids::text[]) AS k(run_id)
CROSS JOIN LATERAL (
    -- The state is asked outside: while the statistics know of no queued run, their index would seem the shorter way.
    SELECT w.run_id, w.status, w.created_at, w.not_before, w.location, w.target, w.job, w.snapshot_id, w.selection FROM runs w
    WHERE w.run_id = k.run_id LIMIT 1
    FOR UPDATE SKIP LOCKED
) r
CROSS JOIN LATERAL (
    SELECT sj.definition FROM snapshot_jobs sj WHERE sj.snapshot_id = r.snapshot_id AND sj.job = r.job LIMIT 1
) d
CROSS JOIN LATERAL (
    -- A target whose warehouse is being changed is left alone until that is done; the next pass sees the new one.
    SELECT g.warehouse, g.single_writer, l.disabled AS location_disabled FROM targets g JOIN locations l ON l.location = g.location
    WHERE g.location = r.location AND g.target = r.target LIMIT 1
    FOR KEY SHARE OF g SKIP LOCKED
) t
WHERE r.status = 'queued' AND (r.not_before IS NULL OR r.not_before <= :now)
ORDER BY r.created_at, r.run_id;

-- name: waiting_long
-- The runs that younger ones of these warehouses must leave room for (the fairness hold), whichever shard decides them:
-- per target the oldest that were found to lack something and have waited long. A run that waits for more than others'
-- ends (a location that is enabled, a pool that is enlarged) holds nothing back.
SELECT w.run_id, w.created_at, t.warehouse, t.single_writer, d.definition ->> 'worker' AS worker_kind, d.definition -> 'pools' AS pools,
       CASE WHEN w.selection IS NULL THEN d.definition -> 'relations' ELSE (
           SELECT COALESCE(d.definition -> 'also', '[]') || COALESCE(jsonb_agg(n.relation), '[]') FROM snapshot_nodes n
           WHERE n.snapshot_id = w.snapshot_id AND n.node = ANY(ARRAY(SELECT jsonb_array_elements_text(w.selection)))
             AND d.definition -> 'relations' ? n.relation
       ) END AS relations,
       EXISTS (SELECT 1 FROM run_blockers b WHERE b.run_id = w.run_id AND b.code IN ('pool_full', 'no_worker_capacity')) AS lacks_pool
FROM targets t
JOIN locations l ON l.location = t.location AND NOT l.disabled
CROSS JOIN LATERAL (
    SELECT r.run_id, r.created_at, r.location, r.target, r.job, r.snapshot_id, r.selection FROM runs r
    WHERE r.location = t.location AND r.target = t.target AND r.status = 'queued' AND r.blocked AND r.created_at <= :long_before::timestamptz
      AND (r.not_before IS NULL OR r.not_before <= :long_before) AND r.run_id <> ALL(:run_ids::text[])
      AND NOT EXISTS (SELECT 1 FROM run_blockers b WHERE b.run_id = r.run_id AND b.code = 'pool_never_fits')
    ORDER BY r.created_at, r.run_id LIMIT :most
) w
CROSS JOIN LATERAL (
    SELECT sj.definition FROM snapshot_jobs sj WHERE sj.snapshot_id = w.snapshot_id AND sj.job = w.job LIMIT 1
) d
WHERE t.warehouse = ANY(:warehouses::text[]) AND (d.definition ->> 'concurrency')::integer > (
    SELECT count(*) FROM runs a
    WHERE a.location = w.location AND a.target = w.target AND a.job = w.job AND a.status IN ('claimed', 'running'))
ORDER BY w.created_at, w.run_id;

-- ------------------------------------------------------------------ what is taken

-- name: keep_worker_pools
INSERT INTO pools (pool, slot_limit)
SELECT p.pool, p.slot_limit FROM jsonb_to_recordset(:rows::jsonb) AS p(pool text, slot_limit integer)
ORDER BY p.pool
ON CONFLICT (pool) DO UPDATE SET slot_limit = excluded.slot_limit WHERE pools.slot_limit <> excluded.slot_limit;

-- name: lock_pools
SELECT pool, slot_limit FROM pools WHERE pool = ANY(:pools::text[]) ORDER BY pool FOR UPDATE;

-- name: pool_use
SELECT p.pool, u.used, ARRAY(SELECT h.run_id FROM slots h WHERE h.pool = p.pool ORDER BY h.run_id LIMIT :holders) AS holders
FROM unnest(:pools::text[]) AS p(pool)
CROSS JOIN LATERAL (SELECT sum(s.weight)::integer AS used FROM slots s WHERE s.pool = p.pool) u
WHERE u.used IS NOT NULL;

-- name: active_of_jobs
SELECT k.location, k.target, k.job, a.active
FROM jsonb_to_recordset(:jobs::jsonb) AS k(location text, target text, job text)
CROSS JOIN LATERAL (
    SELECT count(*)::integer AS active FROM runs r
    WHERE r.location = k.location AND r.target = k.target AND r.job = k.job AND r.status IN ('claimed', 'running')
) a;

-- name: holders
-- A look-up per key, by the primary key: in a burst the statistics do not know yet how many rows there are.
SELECT k.warehouse, k.relation, h.run_id, h.release_after
FROM jsonb_to_recordset(:keys::jsonb) AS k(warehouse text, relation text)
CROSS JOIN LATERAL (
    SELECT w.run_id, w.release_after FROM write_claims w WHERE w.warehouse = k.warehouse AND w.relation = k.relation LIMIT 1
) h;

-- ------------------------------------------------------------------ writing the decision

-- name: take_write_claims
-- In the order of the key, the older run first: two batches that want the same relations cannot deadlock.
INSERT INTO write_claims (warehouse, relation, run_id)
SELECT k.warehouse, k.relation, k.run_id
FROM jsonb_to_recordset(:rows::jsonb) AS k(warehouse text, relation text, run_id text, place integer)
ORDER BY k.warehouse, k.relation, k.place
ON CONFLICT ON CONSTRAINT write_claims_one_writer DO NOTHING
RETURNING run_id;

-- name: drop_write_claims
DELETE FROM write_claims WHERE run_id = ANY(:run_ids::text[]);

-- name: mark_claimed
UPDATE runs SET status = 'claimed', claimed_at = :now, blocked = false
WHERE run_id = ANY(:run_ids::text[]) AND status = 'queued' RETURNING run_id;

-- name: insert_claims
INSERT INTO claims (claim_id, run_id, worker_kind)
SELECT c.claim_id, c.run_id, c.worker_kind
FROM jsonb_to_recordset(:rows::jsonb) AS c(claim_id text, run_id text, worker_kind text);

-- name: insert_outbox
INSERT INTO outbox (claim_id, queue, queued_at)
SELECT c.claim_id, 'run-' || c.worker_kind, :now
FROM jsonb_to_recordset(:rows::jsonb) AS c(claim_id text, worker_kind text);

-- name: take_slots
INSERT INTO slots (pool, run_id, weight)
SELECT s.pool, s.run_id, s.weight FROM jsonb_to_recordset(:rows::jsonb) AS s(pool text, run_id text, weight integer)
ORDER BY s.pool, s.run_id;

-- name: mark_blocked
-- Written only when it changes: what the fairness hold finds old waiting runs by.
UPDATE runs r SET blocked = b.blocked
FROM jsonb_to_recordset(:rows::jsonb) AS b(run_id text, blocked boolean)
WHERE r.run_id = b.run_id AND r.blocked <> b.blocked;

-- name: remove_other_blockers
-- What no longer blocks goes; what still does keeps its row and its start time.
DELETE FROM run_blockers b
WHERE b.run_id = ANY(:run_ids::text[])
  AND NOT EXISTS (
      SELECT 1 FROM jsonb_to_recordset(:rows::jsonb) AS k(run_id text, code text, subject text)
      WHERE k.run_id = b.run_id AND k.code = b.code AND k.subject = b.subject);

-- name: keep_blockers
INSERT INTO run_blockers (run_id, code, subject, detail, since)
SELECT k.run_id, k.code, k.subject, k.detail, :now
FROM jsonb_to_recordset(:rows::jsonb) AS k(run_id text, code text, subject text, detail jsonb)
ON CONFLICT (run_id, code, subject) DO UPDATE SET detail = excluded.detail
WHERE run_blockers.detail ->> 'holder' IS DISTINCT FROM excluded.detail ->> 'holder'
   OR run_blockers.detail ->> 'older' IS DISTINCT FROM excluded.detail ->> 'older';
