-- Groups of an enum whose default operator class is its own were kept by its text.
-- who: {"authors": [{"role": "fz_author", "way": "SET", "path": ["other", "\"Own Types\""], "settings": []}], "by": {"*": 0}}
-- texts: {"texts": {"*": {"c1": "pool:grade", "c2": "exact"}}, "pools": {"grade": "SELECT g::text FROM other.item"}}
-- setup
SET ROLE fz_team;
CREATE TABLE other.item (id int, g "Own Types".grade);
GRANT SELECT ON other.item TO PUBLIC;
INSERT INTO other.item VALUES (1, 'MID'), (2, 'low');
-- query q
SELECT t1.g AS c1, count(*) AS c2 FROM item AS t1 GROUP BY t1.g;
-- round 1
BEGIN;
INSERT INTO other.item VALUES (3, 'mid'), (4, 'top');
COMMIT;
-- round 2
BEGIN;
UPDATE other.item SET g = 'LOW' WHERE id = 2;
COMMIT;
