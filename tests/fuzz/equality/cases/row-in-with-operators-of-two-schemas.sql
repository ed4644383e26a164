-- PostgreSQL writes one operator for a whole row, which the second column does not have: the text did not parse again.
-- who: {"authors": [{"role": "fz_author", "way": "SET", "path": ["trees", "\"Ext Schema\"", "other"], "settings": []}], "by": {"*": 0}}
-- texts: {"texts": {"*": {"c1": "exact", "c2": "exact"}}, "pools": {}}
-- setup
SET ROLE fz_team;
CREATE TABLE "App One".item (id int, "E-Mail" "Ext Schema".citext, "select" char(4));
CREATE TABLE other.item (id int, "E-Mail" "Ext Schema".citext, "select" char(6));
GRANT SELECT ON "App One".item TO PUBLIC;
GRANT SELECT ON other.item TO PUBLIC;
INSERT INTO "App One".item VALUES (1, 'A', 'x');
INSERT INTO other.item VALUES (1, 'a', 'x'), (2, 'b', 'y');
-- query q
SELECT t1.id AS c1, t1."E-Mail" AS c2 FROM item AS t1 WHERE (t1."E-Mail", t1."select") IN (SELECT t3."E-Mail" AS x, t3."select" AS y FROM "App One".item AS t3);
-- round 1
BEGIN;
INSERT INTO "App One".item VALUES (2, 'B', 'y');
COMMIT;
