-- Six stream tables, one per shape, refreshed at most once a second and only when a source has changed.

-- Filter and projection.
SELECT pgtrickle.create_stream_table('open_orders', $$
    SELECT id, customer_id, status, coalesce(upper(channel), 'UNKNOWN') AS channel, placed_at
    FROM orders
    WHERE status IN ('new', 'paid')
$$, schedule => '1s');

-- Join of three tables with SUM, COUNT and AVG. Customers without a country form a group of their own.
SELECT pgtrickle.create_stream_table('sales_by_country', $$
    SELECT c.country,
           count(*) AS items,
           sum(i.quantity) AS pieces,
           sum(i.quantity * i.unit_price) AS revenue,
           avg(i.unit_price) AS average_price
    FROM customers AS c
    JOIN orders AS o ON o.customer_id = c.id
    JOIN order_items AS i ON i.order_id = o.id
    WHERE o.status <> 'cancelled'
    GROUP BY c.country
$$, schedule => '1s');

-- MIN and MAX: deletes can take the extreme away.
SELECT pgtrickle.create_stream_table('price_range', $$
    SELECT p.category, min(i.unit_price) AS lowest, max(i.unit_price) AS highest, count(*) AS items
    FROM products AS p
    JOIN order_items AS i ON i.product_id = p.id
    GROUP BY p.category
$$, schedule => '1s');

-- HAVING: groups come and go.
SELECT pgtrickle.create_stream_table('good_customers', $$
    SELECT o.customer_id, count(*) AS items, sum(i.quantity * i.unit_price) AS revenue
    FROM orders AS o
    JOIN order_items AS i ON i.order_id = o.id
    WHERE o.status <> 'cancelled'
    GROUP BY o.customer_id
    HAVING sum(i.quantity * i.unit_price) > 20000
$$, schedule => '1s');

-- UNION ALL: duplicates are kept.
SELECT pgtrickle.create_stream_table('worklist', $$
    SELECT 'ship' AS task, o.customer_id, o.placed_at AS since
    FROM orders AS o
    WHERE o.status = 'paid'
    UNION ALL
    SELECT 'ask for country', c.id, c.created_at
    FROM customers AS c
    WHERE c.country IS NULL
$$, schedule => '1s');

-- A stream table over a stream table.
SELECT pgtrickle.create_stream_table('sales_by_region', $$
    SELECT r.region, sum(s.revenue) AS revenue, sum(s.items) AS items, count(*) AS countries
    FROM sales_by_country AS s
    JOIN regions AS r ON r.country = s.country
    GROUP BY r.region
$$, schedule => '1s');
