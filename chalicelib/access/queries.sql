-- Tokens. The secret itself is in no column and in no parameter.

-- name: insert_token
INSERT INTO access_tokens (token_id, kind, secret_hash, scope_json, expires_at)
VALUES (:token_id::text, :kind::text, :secret_hash::text, :scope::jsonb, :expires_at::timestamptz);

-- name: token_by_hash
SELECT token_id, kind, scope_json, expires_at, revoked_at, last_used_at
FROM access_tokens
WHERE secret_hash = :secret_hash::text;

-- The condition stands here too: two requests in one minute write once.
-- name: note_use
UPDATE access_tokens
SET last_used_at = :now::timestamptz
WHERE token_id = :token_id::text
  AND (last_used_at IS NULL OR last_used_at <= :now::timestamptz - make_interval(secs => :every_seconds::integer));

-- name: revoke_token
UPDATE access_tokens
SET revoked_at = :now::timestamptz
WHERE token_id = :token_id::text AND revoked_at IS NULL;

-- name: token_exists
SELECT token_id FROM access_tokens WHERE token_id = :token_id::text;

-- name: end_tokens_of_claim
UPDATE access_tokens
SET revoked_at = :now::timestamptz
WHERE kind = 'worker' AND scope_json ->> 'claim_id' = :claim_id::text AND revoked_at IS NULL;

-- Worker tokens are left out: there is one per accepted run, and they end with it.
-- name: tokens_page
SELECT token_id, kind, scope_json, expires_at, revoked_at, last_used_at
FROM access_tokens
WHERE kind <> 'worker' AND (:before::text IS NULL OR token_id < :before::text)
ORDER BY token_id DESC
LIMIT :limit::integer;

-- name: scope_exists
SELECT EXISTS (SELECT FROM locations WHERE location = :location::text) AS location,
       :target::text IS NULL
       OR EXISTS (SELECT FROM targets WHERE location = :location::text AND target = :target::text) AS target;
