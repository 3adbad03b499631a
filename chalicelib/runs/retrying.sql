-- Retries of runs that have just ended in this transaction.

-- name: runs_with_policy
SELECT r.run_id, r.location, r.target, r.job, r.shard, r.snapshot_id, r.inputs_json, r.selection, r.trigger_id, r.scheduled_for,
       r.requested_by, r.retry_number, r.backfill_id, sj.definition -> 'retries' AS retries
FROM runs r JOIN snapshot_jobs sj ON sj.snapshot_id = r.snapshot_id AND sj.job = r.job
WHERE r.run_id = ANY(:run_ids::text[]) AND r.cancel_requested_at IS NULL AND jsonb_typeof(sj.definition -> 'retries') = 'object'
ORDER BY r.run_id;

-- name: carry_again
-- What the run before had carried over from an earlier one is not run by its retry either.
INSERT INTO run_nodes (run_id, node, status)
SELECT m.new, n.node, n.status
FROM jsonb_to_recordset(:rows::jsonb) AS m(old text, new text)
JOIN run_nodes n ON n.run_id = m.old AND n.status = 'carried';

-- name: hand_over_covered
UPDATE ticks k SET covered_by = m.new
FROM jsonb_to_recordset(:rows::jsonb) AS m(old text, new text)
WHERE k.covered_by = m.old;
