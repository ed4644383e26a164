-- CASE x WHEN names no operator, and the one of an extension was not found when the text was read again.
-- who: {"authors": [{"role": "app", "way": "SET LOCAL", "path": ["vec", "trees"], "settings": []}], "by": {"*": 0}}
-- texts: {"texts": {"*": {"c1": "exact", "c2": "exact"}}, "pools": {}}
-- setup
SET ROLE fz_team;
CREATE TABLE other.item (id int, vec vec.vector(3));
GRANT SELECT ON other.item TO PUBLIC;
INSERT INTO other.item VALUES (1, '[1,2,3]'), (2, '[0,0,0]');
-- query q
SELECT t1.id AS c1, CASE t1.vec WHEN '[-0,0,0]'::vector(3) THEN 'one' WHEN '[1,1,1]'::vector(3) THEN 'two' ELSE 'other' END AS c2 FROM other.item AS t1;
-- round 1
BEGIN;
INSERT INTO other.item VALUES (3, '[0,0,0]'), (4, '[1,1,1]');
COMMIT;
