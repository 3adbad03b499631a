-- A person ends what nothing else can end.

-- name: suspect
SELECT c.boot_id, c.boot_partition, o.counter
FROM runs r
JOIN claims c ON c.run_id = r.run_id AND c.ended_at IS NULL AND c.boot_id IS NOT NULL
CROSS JOIN LATERAL (
    SELECT h.counter FROM heartbeat_observations h WHERE h.boot_id = c.boot_id AND h.kind = 'lost' ORDER BY h.observed_at DESC LIMIT 1
) o
WHERE r.run_id = :run_id AND r.heartbeat_lost_at IS NOT NULL AND r.status IN ('claimed', 'running');

-- name: resolvable_run
SELECT run_id, status, heartbeat_lost_at, cancel_requested_at, reported_outcome, resolve_id, resolve_response
FROM runs WHERE run_id = :run_id FOR UPDATE;

-- name: newest_claim
SELECT c.claim_id, c.boot_id, c.boot_partition, c.accepted_at, c.process_ended_at
FROM claims c JOIN outbox o ON o.claim_id = c.claim_id
WHERE c.run_id = :run_id ORDER BY o.queued_at DESC, c.claim_id DESC LIMIT 1;

-- name: write_claims_of_run
SELECT relation, release_after FROM write_claims WHERE run_id = :run_id ORDER BY relation;

-- name: record_resolution
UPDATE runs SET resolve_id = :resolve_id, resolve_response = :response::jsonb WHERE run_id = :run_id;

-- name: free_write_claims
DELETE FROM write_claims WHERE run_id = :run_id;
