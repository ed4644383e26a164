-- DISTINCT kept 'Zoe' and 'zoe' of a domain over citext as two rows after a differential refresh.
-- who: {"authors": [{"role": "fz_member", "way": "SET", "path": ["ops", "pg_catalog", "\"Ext Schema\"", "other"], "settings": []}], "by": {"*": 0}}
-- texts: {"texts": {"*": {"c1": "pool:email"}}, "pools": {"email": "SELECT mail::text FROM other.item"}}
-- setup
SET ROLE fz_team;
CREATE TABLE other.item (id int, mail "Own Types".email);
GRANT SELECT ON other.item TO PUBLIC;
INSERT INTO other.item VALUES (4, 'Zoe');
-- query q
SELECT DISTINCT t1.mail AS c1 FROM other.item AS t1;
-- round 1
BEGIN;
INSERT INTO other.item VALUES (4, 'zoe'), (0, 'ABC');
COMMIT;
-- round 2
BEGIN;
DELETE FROM other.item WHERE mail::text = 'Zoe';
COMMIT;
