MODEL (
  tags [marts],
  description "Cups and revenue per day.",
  columns (
    sold_on (audits [not_null, unique]),
  ),
  audits [
    never_negative (expression "revenue_cents"),
  ],
);

SELECT
  s.sold_on,
  COUNT(*) AS sales,
  SUM(s.cups) AS cups,
  SUM(s.cups * b.price_cents) AS revenue_cents
FROM __ref("stg_sales") s
INNER JOIN __ref("stg_beans") b ON s.bean_id = b.bean_id
GROUP BY s.sold_on
