-- An enum whose default operator class is its own ('mid' = 'MID') was compared by its text.
-- who: {"authors": [{"role": "fz_author", "way": "SET", "path": ["other", "\"Own Types\""], "settings": []}], "by": {"*": 0}}
-- texts: {"texts": {"*": {"c1": "pool:grade"}}, "pools": {"grade": "SELECT g::text FROM \"App One\".item UNION SELECT g::text FROM other.item"}}
-- setup
SET ROLE fz_team;
CREATE TABLE "App One".item (id int, g "Own Types".grade);
CREATE TABLE other.item (id int, g "Own Types".grade);
GRANT SELECT ON "App One".item TO PUBLIC;
GRANT SELECT ON other.item TO PUBLIC;
INSERT INTO other.item VALUES (1, 'MID'), (2, 'low');
-- query q
(SELECT t1.g AS c1 FROM other.item AS t1) INTERSECT ALL (SELECT t2.g AS c2 FROM "App One".item AS t2);
-- round 1
BEGIN;
INSERT INTO "App One".item VALUES (1, 'mid');
COMMIT;
-- round 2
BEGIN;
UPDATE "App One".item SET g = 'LOW';
COMMIT;
