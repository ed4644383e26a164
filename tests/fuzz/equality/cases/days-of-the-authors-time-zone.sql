-- A series of days and a date of a timestamptz went by the service's TimeZone; verify said ok.
-- who: {"authors": [{"role": "fz_author", "way": "options", "path": ["public", "other"], "settings": [["TimeZone", "Europe/Berlin"]]}], "by": {"*": 0}}
-- texts: {"texts": {"*": {"c1": "exact", "c2": "exact", "c3": "exact", "c4": "exact"}}, "pools": {}}
-- setup
SET ROLE fz_team;
CREATE TABLE other.item (id int PRIMARY KEY, "at" timestamptz);
GRANT SELECT ON other.item TO PUBLIC;
INSERT INTO other.item VALUES (1, '2024-12-31 23:30:00+00'), (2, '2024-03-10 06:30:00+00');
-- query q
SELECT t1.id AS c1, t1."at"::date AS c2, date_trunc('day', t1."at") AS c3, g.x AS c4 FROM other.item AS t1 CROSS JOIN generate_series(timestamptz '2024-03-30 00:00', timestamptz '2024-04-01 00:00', interval '1 day') AS g (x);
-- round 1
BEGIN;
INSERT INTO other.item VALUES (3, '2024-03-31 00:30:00+00');
COMMIT;
