-- The graph of a snapshot, for choosing nodes of a run.

-- name: graph_of_snapshot
SELECT node, relation, body FROM snapshot_nodes WHERE snapshot_id = :snapshot_id ORDER BY node;
