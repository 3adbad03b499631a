-- The store itself.

-- name: schema_checksum
SELECT value FROM store_meta WHERE key = 'schema_checksum';
