-- The outbox: written with the claim, sent after the commit.

-- name: unsent
-- Its own rows at once; those of another pass only when that pass had its time to send them. Look-ups by key, whatever
-- the statistics say: a plan made early in a burst would read these tables whole late in it.
SELECT u.claim_id, p.queue, c.run_id, r.shard
FROM (
    SELECT unnest(:own::text[]) AS claim_id
    UNION
    SELECT o.claim_id FROM outbox o WHERE o.sent_at IS NULL AND o.queued_at <= :now::timestamptz - make_interval(secs => :resend_seconds)
) u
CROSS JOIN LATERAL (SELECT b.queue, b.queued_at FROM outbox b WHERE b.claim_id = u.claim_id AND b.sent_at IS NULL LIMIT 1) p
CROSS JOIN LATERAL (SELECT l.run_id FROM claims l WHERE l.claim_id = u.claim_id AND l.ended_at IS NULL LIMIT 1) c
JOIN runs r ON r.run_id = c.run_id
WHERE r.shard = :shard
ORDER BY p.queued_at, u.claim_id LIMIT :batch;

-- name: mark_sent
UPDATE outbox SET sent_at = :now WHERE claim_id = ANY(:claim_ids::text[]) AND sent_at IS NULL;

-- name: append_dispatched
INSERT INTO run_events (event_id, run_id, kind, occurred_at, payload)
SELECT e.event_id, e.run_id, 'dispatched', :now, jsonb_build_object('claim_id', e.claim_id)
FROM jsonb_to_recordset(:rows::jsonb) AS e(event_id text, run_id text, claim_id text);

-- name: forget_sent
-- Old enough for any pass to send it, not only for the one that claimed.
UPDATE outbox o SET sent_at = NULL, queued_at = LEAST(o.queued_at, :now::timestamptz - make_interval(secs => :kept))
FROM claims c WHERE c.claim_id = o.claim_id AND c.accepted_at IS NULL AND c.ended_at IS NULL
RETURNING o.claim_id;
