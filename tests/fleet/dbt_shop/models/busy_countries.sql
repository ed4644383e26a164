{{ config(materialized='stream_table', mode='differential', schedule='calculated', tier='hot') }}
SELECT country, orders FROM {{ ref('sales_by_country') }} WHERE orders > 1000
