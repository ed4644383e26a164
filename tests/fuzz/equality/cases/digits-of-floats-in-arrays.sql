-- A second load compared and wrote arrays of floats as texts with the digits of the author's session; verify said they differ.
-- who: {"authors": [{"role": "fz_member", "way": "ALTER DATABASE", "path": ["other"], "settings": [["extra_float_digits", "0"]]}], "by": {"*": 0}}
-- texts: {"texts": {"*": {"c1": "exact", "c2": "exact"}}, "pools": {}}
-- setup
SET ROLE fz_team;
CREATE TABLE other.item (id int PRIMARY KEY, k numeric, f float8);
GRANT SELECT ON other.item TO PUBLIC;
INSERT INTO other.item VALUES (1, 1.0, 0.30000000000000004), (2, 2.5, 0.1);
-- query q
SELECT t1.k::text AS c1, array_agg(t1.f ORDER BY t1.id) AS c2 FROM other.item AS t1 GROUP BY t1.k::text;
-- round 1
BEGIN;
INSERT INTO other.item VALUES (3, 1.0, 0.30000000000000004), (4, 2.5, 0.1);
COMMIT;
-- round 2
BEGIN;
UPDATE other.item SET f = 0.3 WHERE id = 3;
COMMIT;
