MODEL (
  tags [staging],
  description "One row per sale.",
  columns (
    sale_id (audits [not_null, unique]),
    cups (audits [not_null]),
  ),
);

SELECT
  sale_id,
  bean_id,
  cups,
  sold_at,
  CAST(sold_at AS DATE) AS sold_on
FROM __source("till_sales")
