{% macro revenue_cents(cups, price_cents) %}{{ cups }} * {{ price_cents }}{% endmacro %}
