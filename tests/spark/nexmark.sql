-- q0 pass through
SELECT auction, bidder, price, date_time, extra FROM bid
-- q1 currency conversion
SELECT auction, bidder, 0.908 * price AS price, date_time, extra FROM bid
-- q2 selection
SELECT auction, price FROM bid WHERE auction % 123 = 2
-- q3 local item suggestion
SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id
WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')
-- q4 average price of a category
SELECT q.category, avg(q.final) AS average
FROM (SELECT max(b.price) AS final, a.category FROM auction a, bid b
      WHERE a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires GROUP BY a.id, a.category) q
GROUP BY q.category
-- q5 hot items: most bids in sliding windows of ten minutes, every two
WITH counted AS (
  SELECT b.auction, w.start, count(*) AS num
  FROM (SELECT auction, date_bin('2 min', date_time, '2000-01-01') AS bin FROM bid) b,
       LATERAL (SELECT b.bin AS start UNION ALL SELECT b.bin - interval '2 min' UNION ALL SELECT b.bin - interval '4 min'
                UNION ALL SELECT b.bin - interval '6 min' UNION ALL SELECT b.bin - interval '8 min') w
  GROUP BY b.auction, w.start)
SELECT c.auction, c.num, c.start FROM counted c
WHERE c.num >= (SELECT max(d.num) FROM counted d WHERE d.start = c.start)
-- q6 average price of a seller's last ten auctions
SELECT q.seller, q.closed, avg(q.final) OVER (PARTITION BY q.seller ORDER BY q.closed, q.id
                                              ROWS BETWEEN 10 PRECEDING AND CURRENT ROW) AS average
FROM (SELECT a.id, a.seller, max(b.price) AS final, max(b.date_time) AS closed FROM auction a JOIN bid b ON a.id = b.auction
      WHERE b.date_time <= a.expires GROUP BY a.id, a.seller) q
-- q7 highest bid of ten seconds
SELECT b.auction, b.price, b.bidder, b.date_time
FROM bid b JOIN (SELECT max(price) AS most, date_bin('10 s', date_time, '2000-01-01') + interval '10 s' AS ends
                 FROM bid GROUP BY 2) m ON b.price = m.most
WHERE b.date_time >= m.ends - interval '10 s' AND b.date_time < m.ends
-- q8 new persons who open an auction within the same window
SELECT p.id, p.name, p.start
FROM (SELECT id, name, date_bin('10 min', date_time, '2000-01-01') AS start FROM person GROUP BY 1, 2, 3) p
JOIN (SELECT seller, date_bin('10 min', date_time, '2000-01-01') AS start FROM auction GROUP BY 1, 2) a
  ON p.id = a.seller AND p.start = a.start
-- q9 winning bids
SELECT q.id, q.item_name, q.bidder, q.price
FROM (SELECT a.id, a.item_name, b.bidder, b.price,
             row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.date_time, b.bidder) AS n
      FROM auction a, bid b WHERE a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires) q
WHERE q.n = 1
-- q10 log, by day and minute
SELECT auction, bidder, price, date_time, to_char(date_time, 'YYYY-MM-DD') AS day, to_char(date_time, 'HH24:MI') AS minute
FROM bid
-- q11 bids of a session: a bidder's bids with less than ten seconds between them
SELECT s.bidder, s.session, count(*) AS bids, min(s.date_time) AS first, max(s.date_time) AS last
FROM (SELECT g.bidder, g.date_time, sum(g.starts) OVER (PARTITION BY g.bidder ORDER BY g.date_time, g.price) AS session
      FROM (SELECT bidder, date_time, price,
                   CASE WHEN date_time - interval '10 s' <= lag(date_time) OVER (PARTITION BY bidder ORDER BY date_time, price)
                        THEN 0 ELSE 1 END AS starts FROM bid) g) s
GROUP BY s.bidder, s.session
-- q12 bids of a bidder in ten seconds
SELECT bidder, date_bin('10 s', date_time, '2000-01-01') AS start, count(*) AS bids FROM bid GROUP BY 1, 2
-- q13 bounded side input
SELECT b.auction, b.price, s.value FROM bid b JOIN side_input s ON b.auction % 10 = s.key
-- q14 calculation
SELECT auction, bidder, 0.908 * price AS price,
       CASE WHEN EXTRACT(hour FROM date_time) >= 8 AND EXTRACT(hour FROM date_time) <= 18 THEN 'day'
            WHEN EXTRACT(hour FROM date_time) <= 6 OR EXTRACT(hour FROM date_time) >= 20 THEN 'night' ELSE 'other' END AS time,
       length(extra) - length(replace(extra, 'c', '')) AS c_counts
FROM bid WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000
-- q15 statistics of a day
SELECT to_char(date_time, 'YYYY-MM-DD') AS day, count(*) AS total, count(*) FILTER (WHERE price < 10000) AS rank1,
       count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2,
       count(DISTINCT bidder) AS bidders, count(DISTINCT bidder) FILTER (WHERE price < 10000) AS bidders1,
       count(DISTINCT auction) AS auctions, count(DISTINCT auction) FILTER (WHERE price >= 1000000) AS auctions3
FROM bid GROUP BY 1
-- q16 statistics of a channel
SELECT channel, date_time::date AS day, max(to_char(date_time, 'HH24:MI')) AS minute, count(*) AS total,
       count(DISTINCT bidder) AS bidders, count(DISTINCT auction) FILTER (WHERE price < 10000) AS auctions1
FROM bid GROUP BY channel, date_time::date
-- q17 statistics of an auction
SELECT auction, date_trunc('day', date_time) AS day, count(*) AS total, min(price) AS least, max(price) AS most,
       avg(price) AS average, sum(price) AS sum, stddev(price / 1000) AS spread
FROM bid GROUP BY 1, 2
-- q18 last bid of a bidder on an auction
SELECT q.auction, q.bidder, q.price, q.date_time
FROM (SELECT *, row_number() OVER (PARTITION BY bidder, auction ORDER BY date_time DESC) AS n FROM bid) q WHERE q.n <= 1
-- q19 ten highest bids of an auction
SELECT q.auction, q.price, q.n
FROM (SELECT auction, price, row_number() OVER (PARTITION BY auction ORDER BY price DESC, date_time) AS n FROM bid) q
WHERE q.n <= 10
-- q20 bids with their auction
SELECT b.auction, b.price, a.item_name, a.initial_bid, a.category FROM bid b JOIN auction a ON b.auction = a.id
WHERE a.category = 10
-- q21 channel ids: the pattern is evaluated by PostgreSQL
SELECT auction, channel, CASE WHEN lower(channel) = 'apple' THEN '0' WHEN lower(channel) = 'google' THEN '1'
       ELSE substring(url from '(?:&|^)channel_id=([^&]*)') END AS channel_id
FROM bid WHERE url ~ 'channel_id=' OR lower(channel) IN ('apple', 'google')
-- q22 parts of a url
SELECT auction, split_part(url, '/', 4) AS dir1, split_part(url, '/', 5) AS dir2, split_part(url, '/', -1) AS last FROM bid
-- q23 persons by age and tag: fields of documents are evaluated by PostgreSQL
SELECT (profile ->> 'age')::int / 10 AS decade, profile -> 'tags' ->> 0 AS tag, count(*) AS persons, count(DISTINCT a.id) AS auctions
FROM person p LEFT JOIN auction a ON a.seller = p.id GROUP BY 1, 2
