-- JOIN USING compared citext as text: 'A' and 'a' did not meet, from the first load on, and verify said ok.
-- who: {"authors": [{"role": "fz_author", "way": "SET", "path": ["\"Ext Schema\"", "\"App One\""], "settings": []}], "by": {"*": 0}}
-- texts: {"texts": {"*": {"c1": "exact", "c2": "exact"}}, "pools": {}}
-- setup
SET ROLE fz_team;
CREATE TABLE "App One".item (id int PRIMARY KEY, "E-Mail" "Ext Schema".citext);
CREATE TABLE other.item (id int PRIMARY KEY, "E-Mail" "Ext Schema".citext);
GRANT SELECT ON "App One".item TO PUBLIC;
GRANT SELECT ON other.item TO PUBLIC;
INSERT INTO "App One".item VALUES (1, 'A'), (2, 'b');
INSERT INTO other.item VALUES (1, 'a'), (2, 'B');
-- query q
SELECT t1.id AS c1, t2.id AS c2 FROM item AS t1 JOIN other.item AS t2 USING ("E-Mail");
-- round 1
BEGIN;
UPDATE "App One".item SET "E-Mail" = 'a' WHERE id = 1;
INSERT INTO other.item VALUES (3, 'A');
COMMIT;
