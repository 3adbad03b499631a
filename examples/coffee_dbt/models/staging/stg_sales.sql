-- A table: a view on a file with a relative path could only be read from this folder.
{{ config(materialized='table') }}

select
    sale_id,
    bean_id,
    cups,
    sold_at,
    cast(sold_at as date) as sold_on
from {{ source('till', 'till_sales') }}
