-- NULLIF with its operator named lost the type's modifier, and the table stopped: its column was of another type.
-- who: {"authors": [{"role": "app", "way": "SET", "path": ["vec", "trees"], "settings": []}], "by": {"*": 0}}
-- texts: {"texts": {"*": {"c1": "exact", "c2": "exact", "c3": "exact"}}, "pools": {}}
-- setup
SET ROLE fz_team;
CREATE TABLE other.item (id int, vec vec.vector(3), tree trees.ltree);
GRANT SELECT ON other.item TO PUBLIC;
INSERT INTO other.item VALUES (1, '[1,2,3]', 'a.b'), (2, '[0,0,0]', 'a');
-- query q
SELECT t1.id AS c1, nullif(t1.vec, '[1.0,2,3]'::vector(3)) AS c2, nullif(t1.tree, 'a.b'::ltree) AS c3 FROM other.item AS t1;
-- round 1
BEGIN;
INSERT INTO other.item VALUES (3, '[1,2,3]', 'a.b'), (4, '[1,1,1]', 'b');
COMMIT;
