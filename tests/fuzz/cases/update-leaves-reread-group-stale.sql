-- an UPDATE takes one row out of a group and puts one in: its weight is 0, its string_agg is another
-- setup
CREATE TABLE edge (src int, dst int);
INSERT INTO edge VALUES (1, NULL), (1, 0), (0, NULL), (0, 1), (NULL, 2), (0, NULL), (1, 1);
-- query q
SELECT src, string_agg(dst::text, ',' ORDER BY dst) AS c1 FROM edge GROUP BY src;
-- round 1
BEGIN;
UPDATE edge SET dst = 9 WHERE dst = 1;
COMMIT;
