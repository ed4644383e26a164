-- LIMIT lets one row in and one out: the aggregate over it has as many rows as before, and other ones
-- setup
CREATE TABLE t (n numeric(10,2));
INSERT INTO t VALUES (0.00), (1.25), (0.00), (10.00), (10.00), (1.25), (10.00);
-- query q
SELECT count(DISTINCT q.n) AS c1 FROM (SELECT n FROM t ORDER BY 1 LIMIT 5) AS q;
-- round 1
BEGIN;
INSERT INTO t VALUES (0.50), (-1.25), (10.00);
COMMIT;
