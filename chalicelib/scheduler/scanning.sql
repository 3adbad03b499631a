-- The platform scan: which conditions hold, which have ended, and whether anybody schedules (scheduler.md 6.4).

-- name: late_shards
-- Shards whose work has been due for so long without a pass that came to its end. A queued run is due when no finished pass
-- can have looked at it.
SELECT s.shard, s.passed_at, w.due_at
FROM scheduler_shards s
CROSS JOIN LATERAL (
    SELECT LEAST(
        (SELECT min(t.next_at) FROM trigger_state t WHERE t.shard = s.shard AND t.enabled AND t.next_at IS NOT NULL),
        (SELECT min(r.created_at) FROM runs r WHERE r.shard = s.shard AND r.status = 'queued'
           AND r.created_at > COALESCE(s.passed_at, '-infinity') AND (r.not_before IS NULL OR r.not_before <= :now::timestamptz - make_interval(secs => :late_seconds))),
        (SELECT min(o.queued_at) FROM outbox o JOIN claims c ON c.claim_id = o.claim_id JOIN runs r ON r.run_id = c.run_id
         WHERE o.sent_at IS NULL AND c.ended_at IS NULL AND r.shard = s.shard)
    ) AS due_at
) w
WHERE w.due_at IS NOT NULL AND GREATEST(w.due_at, s.passed_at) <= :now::timestamptz - make_interval(secs => :late_seconds)
ORDER BY s.shard;

-- name: conditions_of_runs
-- What holds now and has no alert yet. What ended since the last finished pass is looked for from a little before it, because
-- a transaction commits later than its moment. OFFSET 0 makes each look for an alert a look-up by its key: as a join, before
-- the statistics know of the alerts, it would read all of a condition for each run.
(SELECT c.condition, r.run_id AS subject, r.run_id AS episode, r.location, r.target, r.job, r.finished_at AS since,
        jsonb_build_object('end_reason', r.end_reason) AS more
 FROM runs r
 CROSS JOIN LATERAL (SELECT 'launch_failed' AS condition UNION ALL SELECT 'queue_dead_letter' WHERE r.end_reason = 'queue_dead') c
 WHERE r.shard = :shard AND r.status = 'launch_failed'
   AND r.finished_at >= COALESCE((SELECT s.passed_at FROM scheduler_shards s WHERE s.shard = :shard), '-infinity')
                        - make_interval(secs => :overlap_seconds)
   AND NOT EXISTS (SELECT 1 FROM platform_alerts a WHERE a.condition = c.condition AND a.subject = r.run_id AND a.episode = r.run_id OFFSET 0)
 ORDER BY r.finished_at LIMIT :batch)
UNION ALL
(SELECT 'run_waiting', r.run_id, r.run_id, r.location, r.target, r.job, r.created_at,
        jsonb_build_object('blockers', (SELECT COALESCE(jsonb_agg(DISTINCT b.code), '[]') FROM run_blockers b WHERE b.run_id = r.run_id))
 FROM runs r
 WHERE r.shard = :shard AND r.status = 'queued' AND r.created_at <= :now::timestamptz - make_interval(secs => :waiting_seconds)
   AND (r.not_before IS NULL OR r.not_before <= :now::timestamptz - make_interval(secs => :waiting_seconds))
   AND NOT EXISTS (SELECT 1 FROM platform_alerts a WHERE a.condition = 'run_waiting' AND a.subject = r.run_id AND a.closed_at IS NULL OFFSET 0)
 ORDER BY r.created_at, r.run_id LIMIT :batch)
UNION ALL
-- What needs more of a pool than there is waits for a person, from the first moment on.
(SELECT 'run_waiting', r.run_id, r.run_id, r.location, r.target, r.job, r.created_at, '{"blockers": ["pool_never_fits"]}'::jsonb
 FROM run_blockers b
 CROSS JOIN LATERAL (SELECT q.* FROM runs q WHERE q.run_id = b.run_id LIMIT 1) r
 WHERE b.code = 'pool_never_fits' AND r.shard = :shard AND r.status = 'queued'
   AND NOT EXISTS (SELECT 1 FROM platform_alerts a WHERE a.condition = 'run_waiting' AND a.subject = r.run_id AND a.closed_at IS NULL OFFSET 0)
 ORDER BY r.run_id LIMIT :batch)
UNION ALL
(SELECT 'run_overdue', r.run_id, c.claim_id, r.location, r.target, r.job, r.started_at,
        jsonb_build_object('timeout_seconds', d.timeout_seconds, 'boot_id', c.boot_id)
 FROM runs r JOIN claims c ON c.run_id = r.run_id AND c.ended_at IS NULL
 CROSS JOIN LATERAL (
     SELECT (sj.definition ->> 'timeout_seconds')::integer AS timeout_seconds FROM snapshot_jobs sj
     WHERE sj.snapshot_id = r.snapshot_id AND sj.job = r.job LIMIT 1
 ) d
 WHERE r.shard = :shard AND r.status = 'running' AND r.started_at <= :now::timestamptz - make_interval(secs => :overdue_seconds)
   AND r.heartbeat_lost_at IS NULL AND r.started_at + make_interval(secs => d.timeout_seconds + :overdue_seconds) <= :now
   AND NOT EXISTS (SELECT 1 FROM platform_alerts a WHERE a.condition = 'run_overdue' AND a.subject = r.run_id AND a.closed_at IS NULL OFFSET 0)
 ORDER BY r.started_at LIMIT :batch);

-- name: close_ended
-- One look at each open alert, and one at what it is about. A launch that failed is over when a run of the job has started
-- since, or after some days.
UPDATE platform_alerts a SET closed_at = :now
FROM (
    SELECT o.condition, o.subject, o.episode
    FROM platform_alerts o
    LEFT JOIN LATERAL (SELECT r.status, r.heartbeat_lost_at FROM runs r WHERE r.run_id = o.subject LIMIT 1) r ON true
    LEFT JOIN LATERAL (SELECT t.enabled, t.next_at FROM trigger_state t WHERE t.trigger_id = o.subject LIMIT 1) t ON true
    WHERE o.closed_at IS NULL AND CASE o.condition
        WHEN 'run_waiting' THEN r.status IS DISTINCT FROM 'queued'
        WHEN 'run_overdue' THEN r.status IS DISTINCT FROM 'running' OR r.heartbeat_lost_at IS NOT NULL
        WHEN 'run_lost' THEN COALESCE(r.status, '') NOT IN ('claimed', 'running') OR r.heartbeat_lost_at IS NULL
        WHEN 'schedule_uncomputable' THEN
            -- such a schedule is looked at again within a minute, and none that was computed waits for that
            t.enabled IS DISTINCT FROM true OR t.next_at IS NULL OR t.next_at > :now::timestamptz + make_interval(secs => :uncomputable_seconds)
            OR EXISTS (SELECT 1 FROM ticks k WHERE k.trigger_id = o.subject AND k.scheduled_for > o.first_seen_at OFFSET 0)
        WHEN 'scheduler_late' THEN o.subject <> ALL(:late::text[])
        WHEN 'clock_skew' THEN o.subject = :subject AND NOT :skewed
        WHEN 'launch_failed' THEN o.first_seen_at <= :now::timestamptz - make_interval(secs => :kept_seconds) OR EXISTS (
            SELECT 1 FROM (
                SELECT n.started_at FROM runs n
                WHERE n.location = o.detail ->> 'location' AND n.target = o.detail ->> 'target' AND n.job = o.detail ->> 'job'
                ORDER BY n.created_at DESC, n.run_id DESC LIMIT 10
            ) newest
            WHERE newest.started_at > (o.detail ->> 'since')::timestamptz OFFSET 0)
        WHEN 'queue_dead_letter' THEN CASE WHEN o.episode = o.subject
            THEN o.first_seen_at <= :now::timestamptz - make_interval(secs => :kept_seconds)
            ELSE :looked AND o.subject <> ALL(:dead::text[]) END
        ELSE false END
) ended
WHERE a.condition = ended.condition AND a.subject = ended.subject AND a.episode = ended.episode AND a.closed_at IS NULL;

-- name: keep_passed
UPDATE scheduler_shards SET passed_at = :pass_now WHERE shard = :shard;
