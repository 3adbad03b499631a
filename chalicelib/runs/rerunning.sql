-- A finished run once more.

-- name: rerunnable_run
SELECT r.run_id, r.location, r.target, r.job, r.snapshot_id, r.inputs_json, r.selection, r.scheduled_for, r.status, sj.definition
FROM runs r JOIN snapshot_jobs sj ON sj.snapshot_id = r.snapshot_id AND sj.job = r.job
WHERE r.run_id = :run_id;

-- name: statuses_of_run
SELECT node, status FROM run_nodes WHERE run_id = :run_id ORDER BY node;

-- name: carry_nodes
INSERT INTO run_nodes (run_id, node, status) SELECT :run_id, n.node, 'carried' FROM unnest(:nodes::text[]) AS n(node);
