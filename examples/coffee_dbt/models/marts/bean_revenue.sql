select
    beans.bean_name,
    beans.origin,
    sum(sales.cups) as cups,
    sum({{ revenue_cents('sales.cups', 'beans.price_cents') }}) as revenue_cents
from {{ ref('stg_beans') }} as beans
inner join {{ ref('stg_sales') }} as sales using (bean_id)
group by beans.bean_name, beans.origin
