{{ config(
    materialized=var('kind'),
    schedule=var('every'),
    engine='postgres',
    indexes=[{'columns': ['orders']}, {'columns': ['country'], 'unique': true}],
    grants={'select': ['pg_monitor']},
) }}
-- It's a stream table; the quote is part of the test.
SELECT coalesce(c.country, 'it''s unknown') AS country, count(*) AS orders
FROM {{ source('shop', 'customers') }} AS c
JOIN {{ source('shop', 'orders') }} AS o ON o.customer_id = c.id
GROUP BY 1
HAVING count(*) > {{ var('least') }}
