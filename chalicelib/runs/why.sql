-- What a run waits for, and how far one has come: read when somebody asks (scheduler.md 7.2).

-- name: blockers_of_run
SELECT code, subject, detail, since FROM run_blockers WHERE run_id = :run_id ORDER BY since, code, subject;

-- name: limit_of_job
-- For the derived blocker: how many runs the job may have at once, which are active, and which are due before this one.
-- A run never overtakes an older one of its job: held by it also when that one has a lower limit, of an older snapshot.
WITH asked AS (
    SELECT r.run_id, r.created_at, r.location, r.target, r.job, (sj.definition ->> 'concurrency')::integer AS concurrency
    FROM runs r JOIN snapshot_jobs sj ON sj.snapshot_id = r.snapshot_id AND sj.job = r.job
    WHERE r.run_id = :run_id
), older AS (
    SELECT q.run_id, q.snapshot_id, q.job, row_number() OVER (ORDER BY q.created_at, q.run_id) - 1 AS place
    FROM asked a JOIN runs q ON q.location = a.location AND q.target = a.target AND q.job = a.job
    WHERE q.status = 'queued' AND (q.not_before IS NULL OR q.not_before <= :now) AND (q.created_at, q.run_id) < (a.created_at, a.run_id)
), live AS (
    SELECT b.run_id FROM asked a JOIN runs b ON b.location = a.location AND b.target = a.target AND b.job = a.job
    WHERE b.status IN ('claimed', 'running')
)
SELECT a.concurrency, ARRAY(SELECT run_id FROM live ORDER BY run_id LIMIT :named) AS active,
       (SELECT count(*) FROM older)::integer AS ahead,
       (SELECT count(*) FROM live) + (SELECT count(*) FROM older) >= a.concurrency OR EXISTS (
           SELECT 1 FROM older o JOIN snapshot_jobs sj ON sj.snapshot_id = o.snapshot_id AND sj.job = o.job
           WHERE (SELECT count(*) FROM live) + o.place >= (sj.definition ->> 'concurrency')::integer) AS behind
FROM asked a;

-- name: runs_named
-- Runs that blockers name, as they are now; what is known of a holder's beats is when they were missed first.
SELECT r.run_id, r.job, r.status, r.heartbeat_lost_at, c.boot_id
FROM runs r LEFT JOIN claims c ON c.run_id = r.run_id AND c.ended_at IS NULL
WHERE r.run_id = ANY(:run_ids::text[]);

-- name: pools_named
SELECT p.pool, p.slot_limit, COALESCE(u.used, 0) AS used,
       ARRAY(SELECT h.run_id FROM slots h WHERE h.pool = p.pool ORDER BY h.run_id LIMIT :named) AS holders
FROM pools p
CROSS JOIN LATERAL (SELECT sum(s.weight)::integer AS used FROM slots s WHERE s.pool = p.pool) u
WHERE p.pool = ANY(:pools::text[]);

-- name: busy_boots
-- Boots with an accepted claim of this kind: the containers that are known to live without asking for every lease.
SELECT count(DISTINCT c.boot_id)::integer AS boots FROM claims c
WHERE c.ended_at IS NULL AND c.boot_id IS NOT NULL AND c.worker_kind = :worker_kind;
