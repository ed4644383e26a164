-- A group of 1.0 and 1.00 was shown as 1, which no row has.
-- who: {"authors": [{"role": "fz_author", "way": "SET", "path": ["other"], "settings": []}], "by": {"*": 0}}
-- texts: {"texts": {"*": {"c1": "pool:numeric", "c2": "exact"}}, "pools": {"numeric": "SELECT n::text FROM other.item"}}
-- setup
SET ROLE fz_team;
CREATE TABLE other.item (id int, n numeric);
GRANT SELECT ON other.item TO PUBLIC;
INSERT INTO other.item VALUES (1, 1.0), (2, 1.00), (3, 2.50);
-- query q
SELECT t1.n AS c1, count(*) AS c2 FROM item AS t1 GROUP BY t1.n;
-- round 1
BEGIN;
INSERT INTO other.item VALUES (4, 2.5);
COMMIT;
-- round 2
BEGIN;
DELETE FROM other.item WHERE id = 3;
COMMIT;
