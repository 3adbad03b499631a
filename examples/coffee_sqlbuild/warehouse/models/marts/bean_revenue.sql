MODEL (
  tags [marts],
  description "What each bean earned.",
  columns (
    bean_name (audits [not_null, unique]),
  ),
);

SELECT
  b.bean_name,
  b.origin,
  SUM(s.cups) AS cups,
  SUM(s.cups * b.price_cents) AS revenue_cents
FROM __ref("stg_beans") b
INNER JOIN __ref("stg_sales") s ON b.bean_id = s.bean_id
GROUP BY b.bean_name, b.origin
