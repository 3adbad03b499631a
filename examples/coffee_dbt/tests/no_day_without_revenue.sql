-- A day in the mart that earned nothing would mean a bean without a price.
select * from {{ ref('daily_sales') }} where revenue_cents <= 0
