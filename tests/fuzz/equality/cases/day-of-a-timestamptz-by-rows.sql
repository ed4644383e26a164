-- A date of a timestamptz, maintained from changes, is that of the author's TimeZone.
-- who: {"authors": [{"role": "fz_author", "way": "ALTER ROLE IN DATABASE", "path": ["public", "other"], "settings": [["TimeZone", "Asia/Kolkata"]]}], "by": {"*": 0}}
-- texts: {"texts": {"*": {"c1": "exact", "c2": "exact", "c3": "exact"}}, "pools": {}}
-- setup
SET ROLE fz_team;
CREATE TABLE other.item (id int PRIMARY KEY, "at" timestamptz);
GRANT SELECT ON other.item TO PUBLIC;
INSERT INTO other.item VALUES (1, '2024-12-31 23:30:00+00');
-- query q
SELECT t1.id AS c1, t1."at"::date AS c2, date_trunc('day', t1."at") AS c3 FROM item AS t1 WHERE t1."at" > timestamptz '2024-03-31 02:00';
-- round 1
BEGIN;
INSERT INTO other.item VALUES (3, '2024-03-31 00:30:00+00'), (4, '2024-07-01 22:30:00+00');
COMMIT;
