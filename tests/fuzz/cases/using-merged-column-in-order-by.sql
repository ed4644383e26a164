-- pg_get_viewdef prints a column merged by USING bare; ORDER BY takes such a name for the output column of that name
-- setup
CREATE TABLE l (c2 int);
CREATE TABLE r (c2 int);
INSERT INTO l VALUES (1), (2), (NULL);
INSERT INTO r VALUES (2), (3), (NULL);
-- query q
SELECT c2 AS c1, x.c2 AS c2 FROM l AS x FULL JOIN r AS y USING (c2) ORDER BY 1 LIMIT 2;
-- round 1
BEGIN;
INSERT INTO r VALUES (4), (1);
DELETE FROM l WHERE c2 = 2;
COMMIT;
