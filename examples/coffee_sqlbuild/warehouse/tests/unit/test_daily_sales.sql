TEST();

WITH
__ref__stg_sales AS (
  SELECT 1 AS sale_id, 1 AS bean_id, 2 AS cups, CAST('2026-03-02 08:00:00' AS TIMESTAMP) AS sold_at, CAST('2026-03-02' AS DATE) AS sold_on
  UNION ALL
  SELECT 2 AS sale_id, 2 AS bean_id, 1 AS cups, CAST('2026-03-02 09:00:00' AS TIMESTAMP) AS sold_at, CAST('2026-03-02' AS DATE) AS sold_on
),
__ref__stg_beans AS (
  SELECT 1 AS bean_id, 'Yirgacheffe' AS bean_name, 'Ethiopia' AS origin, 420 AS price_cents
  UNION ALL
  SELECT 2 AS bean_id, 'Huila' AS bean_name, 'Colombia' AS origin, 380 AS price_cents
),
__expected__daily_sales AS (
  SELECT CAST('2026-03-02' AS DATE) AS sold_on, 2 AS sales, 3 AS cups, 1220 AS revenue_cents
)
SELECT 1
