-- The outbox: written with the claim, sent after the commit.

-- name: unsent
-- Its own rows at once; those of another pass only when that pass had its time to send them.
SELECT o.claim_id, o.queue, c.run_id, r.shard
FROM outbox o JOIN claims c ON c.claim_id = o.claim_id JOIN runs r ON r.run_id = c.run_id
WHERE o.sent_at IS NULL AND c.ended_at IS NULL AND r.shard = :shard
  AND (o.claim_id = ANY(:own::text[]) OR o.queued_at <= :now::timestamptz - make_interval(secs => :resend_seconds))
ORDER BY o.queued_at, o.claim_id LIMIT :batch;

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
