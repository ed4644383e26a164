-- What all cases find in their database, made by a superuser who installed pgtrickle as the service role before.
CREATE SCHEMA "Ext Schema";
CREATE SCHEMA trees;
CREATE SCHEMA "App One" AUTHORIZATION fz_team;
CREATE SCHEMA other AUTHORIZATION fz_team;
CREATE SCHEMA ops AUTHORIZATION app;
CREATE SCHEMA "Own Types" AUTHORIZATION app;
CREATE SCHEMA "Out put";
GRANT USAGE ON SCHEMA "Ext Schema", trees, "App One", other, ops, "Own Types", "Out put" TO PUBLIC;
GRANT CREATE ON SCHEMA "App One", other, "Out put" TO app, fz_author, fz_member, fz_viewer;
GRANT USAGE ON SCHEMA pgtrickle TO fz_author, fz_member;
CREATE EXTENSION citext SCHEMA "Ext Schema";
CREATE EXTENSION hstore SCHEMA public;
CREATE EXTENSION ltree SCHEMA trees;

-- Types of the service role's own, as its code is what it trusts, where nobody else can put any.
SET ROLE app;
CREATE DOMAIN "Own Types".email AS "Ext Schema".citext CHECK (VALUE OPERATOR("Ext Schema".<>) '!'::"Ext Schema".citext);
CREATE DOMAIN "Own Types"."E Mail 2" AS "Own Types".email;
CREATE DOMAIN "Own Types".amount AS numeric CHECK (VALUE >= 0);
CREATE TYPE "Own Types".pair AS (n numeric, c "Ext Schema".citext);
-- The same names elsewhere, for something else.
CREATE DOMAIN other.email AS text;
CREATE TYPE other.pair AS (n text, c text);
CREATE TYPE "Own Types".modn AS (v int);
CREATE TYPE "Own Types".grade AS ENUM ('low', 'LOW', 'mid', 'MID', 'top');
CREATE TYPE "Own Types".ctrange AS RANGE (subtype = "Ext Schema".citext);

CREATE FUNCTION "Own Types".modn_cmp("Own Types".modn, "Own Types".modn) RETURNS int IMMUTABLE STRICT RETURN btint4cmp(($1).v % 10, ($2).v % 10);
CREATE FUNCTION "Own Types".modn_hash("Own Types".modn) RETURNS int IMMUTABLE STRICT RETURN hashint4(($1).v % 10);
CREATE FUNCTION "Own Types".grade_cmp("Own Types".grade, "Own Types".grade) RETURNS int IMMUTABLE STRICT RETURN bttextcmp(lower($1::text), lower($2::text));
CREATE FUNCTION "Own Types".grade_hash("Own Types".grade) RETURNS int IMMUTABLE STRICT RETURN hashtext(lower($1::text));
DO $$
DECLARE
    kind text;
    op record;
BEGIN
    FOREACH kind IN ARRAY ARRAY['modn', 'grade'] LOOP
        FOR op IN SELECT * FROM (VALUES ('eq', '=', '=', '<>', ', HASHES, MERGES, RESTRICT = eqsel, JOIN = eqjoinsel'), ('ne', '<>', '<>', '=', ''),
                                        ('lt', '<', '>', '>=', ''), ('le', '<=', '>=', '>', ''), ('ge', '>=', '<=', '<', ''), ('gt', '>', '<', '<=', ''))
                                 AS v(name, sign, commutator, negator, more) LOOP
            -- The planner writes out a function in SQL, so that its operator is in no plan; the other stays.
            EXECUTE format('CREATE FUNCTION "Own Types".%1$s_%2$s("Own Types".%1$I, "Own Types".%1$I) RETURNS boolean IMMUTABLE STRICT '
                           || CASE kind WHEN 'modn' THEN 'RETURN "Own Types".%1$s_cmp($1, $2) %3$s 0'
                              ELSE 'LANGUAGE plpgsql AS ''BEGIN RETURN "Own Types".%1$s_cmp($1, $2) OPERATOR(pg_catalog.%3$s) 0; END''' END,
                           kind, op.name, op.sign);
            EXECUTE format('CREATE OPERATOR "Own Types".%3$s (LEFTARG = "Own Types".%1$I, RIGHTARG = "Own Types".%1$I, FUNCTION = "Own Types".%1$s_%2$s, '
                           'COMMUTATOR = OPERATOR("Own Types".%4$s), NEGATOR = OPERATOR("Own Types".%5$s)%6$s)',
                           kind, op.name, op.sign, op.commutator, op.negator, op.more);
        END LOOP;
    END LOOP;
END
$$;
-- Equality of text that ignores case, and a function by the name of another: for those who put this schema before pg_catalog.
CREATE FUNCTION ops.same(text, text) RETURNS boolean IMMUTABLE STRICT RETURN lower($1) = lower($2);
CREATE FUNCTION ops.initcap(text) RETURNS text IMMUTABLE STRICT RETURN '<' || $1 || '>';
CREATE OPERATOR ops.= (LEFTARG = text, RIGHTARG = text, FUNCTION = ops.same, COMMUTATOR = OPERATOR(ops.=));
RESET ROLE;
DO $$
DECLARE
    kind text;
BEGIN
    FOREACH kind IN ARRAY ARRAY['modn', 'grade'] LOOP
        EXECUTE format('CREATE OPERATOR CLASS "Own Types".%1$s_btree DEFAULT FOR TYPE "Own Types".%1$I USING btree AS '
                       'OPERATOR 1 "Own Types".<, OPERATOR 2 "Own Types".<=, OPERATOR 3 "Own Types".=, OPERATOR 4 "Own Types".>=, OPERATOR 5 "Own Types".>, '
                       'FUNCTION 1 "Own Types".%1$s_cmp("Own Types".%1$I, "Own Types".%1$I)', kind);
        EXECUTE format('CREATE OPERATOR CLASS "Own Types".%1$s_hash DEFAULT FOR TYPE "Own Types".%1$I USING hash AS '
                       'OPERATOR 1 "Own Types".=, FUNCTION 1 "Own Types".%1$s_hash("Own Types".%1$I)', kind);
    END LOOP;
END
$$;
-- Code that the service role does not trust: it runs as its owner, of whom the service role is a member.
SET ROLE fz_member;
CREATE FUNCTION "App One".mine(text) RETURNS text IMMUTABLE STRICT RETURN '~' || $1;
RESET ROLE;
