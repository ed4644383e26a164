-- A view keeps the operators of the role that made it: it compared citext as text, while the query that reads it sees citext's own.
-- who: {"authors": [{"role": "fz_author", "way": "SET", "path": ["\"Ext Schema\"", "other"], "settings": []}], "by": {"*": 0}}
-- texts: {"texts": {"*": {"c1": "exact", "c2": "exact"}}, "pools": {}}
-- setup
SET ROLE fz_team;
CREATE TABLE "App One".item (id int, "E-Mail" "Ext Schema".citext);
CREATE TABLE other.item (id int, "E-Mail" "Ext Schema".citext);
GRANT SELECT ON "App One".item TO PUBLIC;
GRANT SELECT ON other.item TO PUBLIC;
INSERT INTO "App One".item VALUES (1, 'A'), (2, 'b');
INSERT INTO other.item VALUES (1, 'a'), (2, 'b');
SET ROLE fz_viewer;
SET search_path = pg_catalog;
CREATE VIEW other."View 0" AS SELECT t1.id AS v1, t2.id AS v2, t1."E-Mail" AS v3 FROM "App One".item AS t1 JOIN other.item AS t2 USING ("E-Mail");
GRANT SELECT ON other."View 0" TO PUBLIC;
-- query q
SELECT t1.v1 AS c1, t2.id AS c2 FROM "View 0" AS t1 JOIN item AS t2 ON (t1.v3 = t2."E-Mail");
-- round 1
BEGIN;
INSERT INTO other.item VALUES (3, 'A'), (4, 'B');
COMMIT;
