-- a first case, so that the replay itself is exercised: a set operation over a table that is empty at first
-- setup
CREATE TABLE t4 (a int, s text);
CREATE TABLE t2 (a int, s text);
INSERT INTO t2 VALUES (1, 'a'), (1, 'a'), (NULL, 'b');
-- query q
(SELECT a AS c1, s AS c2 FROM t2) EXCEPT ALL (SELECT a AS c1, s AS c2 FROM t4);
-- round 1
BEGIN;
INSERT INTO t4 VALUES (1, 'a'), (NULL, 'b');
COMMIT;
BEGIN;
DELETE FROM t2;
ROLLBACK;
-- round 2
BEGIN;
DELETE FROM t4;
INSERT INTO t2 VALUES (1, 'a');
COMMIT;
