-- Alerts: opened and closed by sets, read newest first.

-- name: reopen_alerts
-- A condition with an own id that returns is the same alert: its row is open again.
UPDATE platform_alerts a SET closed_at = NULL
FROM jsonb_to_recordset(:rows::jsonb) AS f(condition text, subject text, episode text)
WHERE a.condition = f.condition AND a.subject = f.subject AND a.episode = f.episode AND a.closed_at IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM platform_alerts o WHERE o.condition = f.condition AND o.subject = f.subject AND o.closed_at IS NULL OFFSET 0);

-- name: open_alerts
-- What is open already costs a look-up and no write (OFFSET 0: never a join). Whoever loses a race finds the row, by the key
-- or by the index of open ones.
INSERT INTO platform_alerts (condition, subject, episode, detail, first_seen_at)
SELECT DISTINCT ON (f.condition, f.subject) f.condition, f.subject, COALESCE(f.episode, n.next_number), f.detail, :now
FROM jsonb_to_recordset(:rows::jsonb) AS f(condition text, subject text, episode text, detail jsonb)
CROSS JOIN LATERAL (
    SELECT (COALESCE(max(CASE WHEN a.episode ~ '^[0-9]{1,9}$' THEN a.episode::integer END), 0) + 1)::text AS next_number
    FROM platform_alerts a WHERE a.condition = f.condition AND a.subject = f.subject
) n
WHERE NOT EXISTS (SELECT 1 FROM platform_alerts o WHERE o.condition = f.condition AND o.subject = f.subject AND o.closed_at IS NULL OFFSET 0)
ORDER BY f.condition, f.subject
ON CONFLICT DO NOTHING;

-- name: close_alerts
UPDATE platform_alerts SET closed_at = :now
WHERE condition = :condition AND subject = ANY(:subjects::text[]) AND closed_at IS NULL;

-- name: list_alerts
-- Newest first. An alert about a run or a schedule names its place; one about a shard or a queue belongs to the installation.
SELECT condition, subject, episode, detail, first_seen_at, closed_at
FROM platform_alerts
WHERE (:open::boolean IS NULL OR (closed_at IS NULL) = :open) AND (:condition::text IS NULL OR condition = :condition)
  AND (:location::text IS NULL OR detail ->> 'location' = :location) AND (:target::text IS NULL OR detail ->> 'target' = :target)
  AND (:key_at::timestamptz IS NULL OR first_seen_at < :key_at
       OR (first_seen_at = :key_at AND (condition, subject, episode) > (:key_condition::text, :key_subject::text, :key_episode::text)))
ORDER BY first_seen_at DESC, condition, subject, episode LIMIT :limit;
