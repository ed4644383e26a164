-- A char(4) that lost its length on the way (UNION, lag) is bpchar: its blanks were cut, so 'a   ' became 'a'.
-- who: {"authors": [{"role": "fz_author", "way": "SET", "path": ["other"], "settings": []}], "by": {"*": 0}}
-- texts: {"texts": {"*": {"c1": "exact", "c2": "exact"}}, "pools": {}}
-- setup
SET ROLE fz_team;
CREATE TABLE other.item (id int PRIMARY KEY, "select" char(4));
GRANT SELECT ON other.item TO PUBLIC;
INSERT INTO other.item VALUES (1, 'a'), (2, 'ab');
-- query q
SELECT t1.id AS c1, lag(t1."select") OVER (ORDER BY t1.id) AS c2 FROM item AS t1;
-- round 1
BEGIN;
INSERT INTO other.item VALUES (3, 'b');
COMMIT;
