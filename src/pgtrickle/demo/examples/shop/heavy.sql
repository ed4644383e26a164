-- A heavy query: pairs of products in the same order. engine => 'spark': Spark evaluates it from columnar replicas of its sources, every five seconds;
-- the shop's server captures changes, sends them, and writes the result.
SELECT pgtrickle.create_stream_table('bought_together', $$
    SELECT a.product_id, b.product_id AS bought_with, count(*) AS orders, sum(least(a.quantity, b.quantity)) AS pieces
    FROM order_items AS a
    JOIN order_items AS b ON b.order_id = a.order_id AND b.product_id > a.product_id
    JOIN orders AS o ON o.id = a.order_id
    WHERE o.status <> 'cancelled'
    GROUP BY a.product_id, b.product_id
    HAVING count(*) > 2
$$, schedule => '5s', refresh_mode => 'FULL', engine => 'spark');
