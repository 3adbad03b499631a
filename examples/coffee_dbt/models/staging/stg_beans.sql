select
    bean_id,
    bean_name,
    origin,
    price_cents
from {{ ref('beans') }}
