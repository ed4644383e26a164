-- Which rows a subquery touches was asked of c, which an outer join fills up with NULLs where the subquery has left nothing: such rows stayed
-- setup
CREATE TABLE a (k int, v int);
CREATE TABLE b (k int, v int);
CREATE TABLE c (k int, v int);
CREATE TABLE w (v int);
INSERT INTO a VALUES (1, 1), (2, 2), (3, 3), (NULL, 4);
INSERT INTO b VALUES (1, 10), (2, 20), (3, 30);
INSERT INTO c VALUES (10, 1), (20, 2), (30, 3), (20, 4);
INSERT INTO w VALUES (1), (5);
-- query q
SELECT a.k, b.v AS bv, c.v AS cv FROM a LEFT JOIN (b JOIN c ON b.v = c.k AND EXISTS (SELECT FROM w WHERE w.v = c.v)) ON a.k = b.k;
-- round 1
BEGIN;
INSERT INTO w VALUES (2);
COMMIT;
-- round 2
BEGIN;
DELETE FROM w WHERE v = 1;
INSERT INTO w VALUES (3), (4);
COMMIT;
