-- Snapshots and what is current. Every statement of a publication handles all its rows at once.

-- name: publication
SELECT location, target, snapshot_id, response FROM publications WHERE publication_id = :publication_id::text;

-- name: target
SELECT l.disabled, t.case_rule
FROM targets t JOIN locations l ON l.location = t.location
WHERE t.location = :location::text AND t.target = :target::text;

-- Locking the target makes publications to it follow each other; the location must not become disabled meanwhile.
-- name: lock_target
SELECT l.disabled, t.case_rule
FROM targets t JOIN locations l ON l.location = t.location
WHERE t.location = :location::text AND t.target = :target::text
FOR NO KEY UPDATE OF t FOR SHARE OF l;

-- name: pools
SELECT pool, slot_limit FROM pools;

-- name: add_pools
INSERT INTO pools (pool, slot_limit)
SELECT n.pool, :slot_limit::integer FROM unnest(:names::text[]) AS n(pool) ORDER BY n.pool
ON CONFLICT (pool) DO NOTHING;

-- name: known_documents
SELECT sha256, bool_or(body IS NULL) AS in_objects
FROM snapshot_documents
WHERE sha256 = ANY (:hashes::text[])
GROUP BY sha256;

-- name: lock_current
SELECT snapshot_id
FROM current_snapshots
WHERE location = :location::text AND target = :target::text
FOR UPDATE;

-- One that is there is touched, not only found: retention may be about to remove it, and then it is stored anew.
-- name: insert_snapshot
INSERT INTO snapshots (snapshot_id, location, target, tool, tool_version, baseline_hash, git_revision, git_dirty,
                       git_authors, created_at, published_by)
VALUES (:snapshot_id::text, :location::text, :target::text, :tool::text, :tool_version::text, :baseline_hash::text,
        :git_revision::text, :git_dirty::boolean, :git_authors::jsonb, :now::timestamptz, :published_by::text)
ON CONFLICT (snapshot_id) DO UPDATE SET last_used_at = excluded.created_at
RETURNING xmax = 0 AS inserted;

-- A document without a body here takes it from the row of an earlier snapshot; without one there it is in objects.
-- name: insert_documents
INSERT INTO snapshot_documents (snapshot_id, key, sha256, size, body)
SELECT :snapshot_id::text, d.key, d.sha256, d.size,
       coalesce(d.body, (SELECT k.body FROM snapshot_documents k WHERE k.sha256 = d.sha256 AND k.body IS NOT NULL LIMIT 1))
FROM jsonb_to_recordset(:documents::jsonb) AS d(key text, sha256 text, size bigint, body text)
RETURNING key, sha256, body IS NULL AS in_objects;

-- name: insert_nodes
INSERT INTO snapshot_nodes (snapshot_id, node, relation, drift_key, body)
SELECT :snapshot_id::text, n.node, n.relation, n.drift_key, n.body
FROM jsonb_to_recordset(:nodes::jsonb) AS n(node text, relation text, drift_key text, body jsonb);

-- name: insert_snapshot_jobs
INSERT INTO snapshot_jobs (snapshot_id, job, definition)
SELECT :snapshot_id::text, j.job, j.definition
FROM jsonb_to_recordset(:jobs::jsonb) AS j(job text, definition jsonb);

-- name: put_current
INSERT INTO current_snapshots (location, target, snapshot_id)
VALUES (:location::text, :target::text, :snapshot_id::text)
ON CONFLICT (location, target) DO UPDATE SET snapshot_id = excluded.snapshot_id;

-- name: remove_jobs
DELETE FROM jobs
WHERE location = :location::text AND target = :target::text AND job <> ALL (:kept::text[]);

-- name: put_jobs
INSERT INTO jobs (location, target, job, snapshot_id, shard)
SELECT :location::text, :target::text, j.job, :snapshot_id::text, j.shard
FROM jsonb_to_recordset(:jobs::jsonb) AS j(job text, shard integer)
ON CONFLICT (location, target, job) DO UPDATE SET snapshot_id = excluded.snapshot_id, shard = excluded.shard;

-- name: put_fingerprint
UPDATE targets SET connection_fingerprint = :fingerprint::text
WHERE location = :location::text AND target = :target::text;

-- Targets of another warehouse over the same connection whose current jobs write what our jobs write.
-- name: shared_relations
SELECT o.location, o.target, o.warehouse, count(*) AS relations, min(shared.relation) AS example
FROM targets own
JOIN targets o ON o.connection_fingerprint = own.connection_fingerprint AND o.warehouse <> own.warehouse
JOIN current_snapshots c ON c.location = o.location AND c.target = o.target
CROSS JOIN LATERAL (
    SELECT jsonb_array_elements_text(j.definition -> 'relations') AS relation
    FROM snapshot_jobs j WHERE j.snapshot_id = c.snapshot_id
    INTERSECT
    SELECT jsonb_array_elements_text(j.definition -> 'relations')
    FROM snapshot_jobs j WHERE j.snapshot_id = :snapshot_id::text
) AS shared
WHERE own.location = :location::text AND own.target = :target::text
GROUP BY o.location, o.target, o.warehouse
ORDER BY o.location, o.target
LIMIT :limit::integer;

-- name: insert_publication
INSERT INTO publications (publication_id, location, target, snapshot_id, response)
VALUES (:publication_id::text, :location::text, :target::text, :snapshot_id::text, :response::jsonb);

-- ------------------------------------------------------------------------- reads

-- name: current_snapshot
SELECT s.snapshot_id, c.location, c.target, s.tool, s.tool_version, s.baseline_hash, s.git_revision, s.git_dirty,
       s.git_authors, s.created_at, s.published_by, true AS current
FROM current_snapshots c JOIN snapshots s ON s.snapshot_id = c.snapshot_id
WHERE c.location = :location::text AND c.target = :target::text;

-- name: snapshot
SELECT s.snapshot_id, s.location, s.target, s.tool, s.tool_version, s.baseline_hash, s.git_revision, s.git_dirty,
       s.git_authors, s.created_at, s.published_by,
       EXISTS (SELECT FROM current_snapshots c WHERE c.location = s.location AND c.target = s.target
               AND c.snapshot_id = s.snapshot_id) AS current
FROM snapshots s
WHERE s.snapshot_id = :snapshot_id::text;

-- name: snapshots_page
SELECT s.snapshot_id, :location::text AS location, :target::text AS target, s.tool, s.tool_version, s.baseline_hash,
       s.git_revision, s.git_dirty, s.git_authors, s.created_at, s.published_by,
       EXISTS (SELECT FROM current_snapshots c WHERE c.location = :location::text AND c.target = :target::text
               AND c.snapshot_id = s.snapshot_id) AS current
FROM snapshots s
WHERE s.snapshot_id IN (
    SELECT p.snapshot_id FROM publications p WHERE p.location = :location::text AND p.target = :target::text)
  AND (:before_at::timestamptz IS NULL
       OR (s.created_at, s.snapshot_id) < (:before_at::timestamptz, :before_id::text))
ORDER BY s.created_at DESC, s.snapshot_id DESC
LIMIT :limit::integer;

-- name: places
SELECT DISTINCT location, target FROM publications WHERE snapshot_id = :snapshot_id::text ORDER BY location, target;

-- name: document
SELECT key, sha256, size, body
FROM snapshot_documents
WHERE snapshot_id = :snapshot_id::text AND key = :key::text;

-- name: nodes_page
SELECT node, relation, drift_key, body
FROM snapshot_nodes
WHERE snapshot_id = :snapshot_id::text AND (:after::text IS NULL OR node > :after::text)
ORDER BY node
LIMIT :limit::integer;

-- name: jobs
SELECT j.job, j.snapshot_id, d.definition ->> 'description' AS description, d.definition ->> 'worker' AS worker,
       (d.definition ->> 'timeout_seconds')::integer AS timeout_seconds,
       jsonb_array_length(d.definition -> 'nodes') AS nodes,
       jsonb_array_length(d.definition -> 'relations') AS relations,
       jsonb_path_query_array(d.definition, '$.triggers[*].name') AS triggers
FROM jobs j JOIN snapshot_jobs d ON d.snapshot_id = j.snapshot_id AND d.job = j.job
WHERE j.location = :location::text AND j.target = :target::text
ORDER BY j.job;

-- name: job
SELECT j.location, j.target, j.job, j.snapshot_id, d.definition
FROM jobs j JOIN snapshot_jobs d ON d.snapshot_id = j.snapshot_id AND d.job = j.job
WHERE j.location = :location::text AND j.target = :target::text AND j.job = :job::text;
