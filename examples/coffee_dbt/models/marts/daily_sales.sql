select
    sales.sold_on,
    count(*) as sales,
    sum(sales.cups) as cups,
    sum({{ revenue_cents('sales.cups', 'beans.price_cents') }}) as revenue_cents
from {{ ref('stg_sales') }} as sales
inner join {{ ref('stg_beans') }} as beans using (bean_id)
group by sales.sold_on
