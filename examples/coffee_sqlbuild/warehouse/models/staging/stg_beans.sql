MODEL (
  tags [staging],
  description "The beans on the menu.",
  columns (
    bean_id (audits [not_null, unique]),
  ),
);

SELECT
  bean_id,
  bean_name,
  origin,
  price_cents
FROM __seed("beans")
