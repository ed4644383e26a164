-- 2,000 customers, 500 products, 20,000 orders, 50,000 order items. The same every time.

SELECT setseed(0.42);

INSERT INTO regions (country, region)
VALUES ('DE', 'Europe'), ('FR', 'Europe'), ('IT', 'Europe'), ('PL', 'Europe'), ('GB', 'Europe'),
       ('US', 'Americas'), ('CA', 'Americas'), ('BR', 'Americas'),
       ('JP', 'Asia'), ('IN', 'Asia'), ('SG', 'Asia'),
       ('AU', 'Oceania'), ('ZA', 'Africa'), ('KE', 'Africa');

INSERT INTO customers (name, email, country, created_at)
SELECT first_names[1 + n % 16] || ' ' || last_names[1 + n / 16 % 16],
       lower(first_names[1 + n % 16]) || '.' || lower(last_names[1 + n / 16 % 16]) || n || '@example.com',
       countries[1 + floor(random() * 15)::int],          -- the fifteenth does not exist: NULL
       timestamptz '2025-01-01 00:00Z' + random() * interval '500 days'
FROM generate_series(1, 2000) AS n,
     (SELECT ARRAY['Ada', 'Bela', 'Chidi', 'Dora', 'Emil', 'Femi', 'Grace', 'Hiro', 'Ines', 'Jan', 'Kemi', 'Lena', 'Mira', 'Noor', 'Olga', 'Paul'],
             ARRAY['Adler', 'Brandt', 'Costa', 'Dubois', 'Evans', 'Fischer', 'Garcia', 'Hansen', 'Ito', 'Jones', 'Kowalski', 'Lopez', 'Meyer', 'Nowak', 'Okafor', 'Patel'],
             (SELECT array_agg(country ORDER BY country) FROM regions)) AS names (first_names, last_names, countries);

INSERT INTO products (sku, name, category, price)
SELECT 'SKU-' || lpad(n::text, 5, '0'),
       (ARRAY['Oak', 'Steel', 'Linen', 'Glass', 'Cork'])[1 + n % 5] || ' ' || (ARRAY['lamp', 'chair', 'mug', 'shelf', 'rug', 'clock'])[1 + n % 6] || ' ' || n,
       (ARRAY['furniture', 'lighting', 'kitchen', 'textiles', 'office'])[1 + n % 5],
       round((4 + random() * 296)::numeric, 2)
FROM generate_series(1, 500) AS n;

INSERT INTO orders (customer_id, status, channel, placed_at)
SELECT 1 + floor(power(random(), 2) * 2000)::int,         -- some customers order much more than others
       (ARRAY['shipped', 'shipped', 'shipped', 'shipped', 'shipped', 'paid', 'new', 'cancelled'])[1 + floor(random() * 8)::int],
       (ARRAY['web', 'app', 'phone', NULL])[1 + floor(random() * 4)::int],
       timestamptz '2026-01-01 00:00Z' + n * interval '20 minutes'
FROM generate_series(1, 20000) AS n;

INSERT INTO order_items (order_id, line, product_id, quantity, unit_price)
SELECT n / 5 * 2 + (n % 5) / 3 + 1,                       -- three items, then two
       CASE WHEN n % 5 < 3 THEN n % 5 + 1 ELSE n % 5 - 2 END,
       p.id,
       1 + floor(random() * 4)::int,
       p.price
FROM (SELECT n, 1 + floor(random() * 500)::int AS product_id FROM generate_series(0, 49999) AS n) AS i
JOIN products AS p ON p.id = i.product_id;

ANALYZE;
