-- What all cases find in their database, made by a superuser who installed pgtrickle as the service role before.
CREATE SCHEMA "Ext Schema";
CREATE SCHEMA trees;
CREATE SCHEMA "App One" AUTHORIZATION fz_team;
CREATE SCHEMA other AUTHORIZATION fz_team;
CREATE SCHEMA ops;
CREATE SCHEMA "Out put";
GRANT USAGE ON SCHEMA "Ext Schema", trees, "App One", other, ops, "Out put" TO PUBLIC;
GRANT CREATE ON SCHEMA "App One", other, ops, "Out put" TO app, fz_author, fz_member, fz_viewer;
GRANT USAGE ON SCHEMA pgtrickle TO fz_author, fz_member;
CREATE EXTENSION citext SCHEMA "Ext Schema";
CREATE EXTENSION hstore SCHEMA public;
CREATE EXTENSION ltree SCHEMA trees;

-- Types of the service role's own, as its code is what it trusts.
SET ROLE app;
CREATE DOMAIN "App One".email AS "Ext Schema".citext CHECK (VALUE OPERATOR("Ext Schema".<>) '!'::"Ext Schema".citext);
CREATE DOMAIN "App One"."E Mail 2" AS "App One".email;
CREATE DOMAIN "App One".amount AS numeric CHECK (VALUE >= 0);
CREATE TYPE "App One".pair AS (n numeric, c "Ext Schema".citext);
-- The same names elsewhere, for something else.
CREATE DOMAIN other.email AS text;
CREATE TYPE other.pair AS (n text, c text);
CREATE TYPE "App One".modn AS (v int);
CREATE TYPE "App One".grade AS ENUM ('low', 'LOW', 'mid', 'MID', 'top');
CREATE TYPE "App One".ctrange AS RANGE (subtype = "Ext Schema".citext);

CREATE FUNCTION "App One".modn_cmp("App One".modn, "App One".modn) RETURNS int IMMUTABLE STRICT RETURN btint4cmp(($1).v % 10, ($2).v % 10);
CREATE FUNCTION "App One".modn_hash("App One".modn) RETURNS int IMMUTABLE STRICT RETURN hashint4(($1).v % 10);
CREATE FUNCTION "App One".grade_cmp("App One".grade, "App One".grade) RETURNS int IMMUTABLE STRICT RETURN bttextcmp(lower($1::text), lower($2::text));
CREATE FUNCTION "App One".grade_hash("App One".grade) RETURNS int IMMUTABLE STRICT RETURN hashtext(lower($1::text));
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
            EXECUTE format('CREATE FUNCTION "App One".%1$s_%2$s("App One".%1$I, "App One".%1$I) RETURNS boolean IMMUTABLE STRICT '
                           || CASE kind WHEN 'modn' THEN 'RETURN "App One".%1$s_cmp($1, $2) %3$s 0'
                              ELSE 'LANGUAGE plpgsql AS ''BEGIN RETURN "App One".%1$s_cmp($1, $2) OPERATOR(pg_catalog.%3$s) 0; END''' END,
                           kind, op.name, op.sign);
            EXECUTE format('CREATE OPERATOR "App One".%3$s (LEFTARG = "App One".%1$I, RIGHTARG = "App One".%1$I, FUNCTION = "App One".%1$s_%2$s, '
                           'COMMUTATOR = OPERATOR("App One".%4$s), NEGATOR = OPERATOR("App One".%5$s)%6$s)',
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
        EXECUTE format('CREATE OPERATOR CLASS "App One".%1$s_btree DEFAULT FOR TYPE "App One".%1$I USING btree AS '
                       'OPERATOR 1 "App One".<, OPERATOR 2 "App One".<=, OPERATOR 3 "App One".=, OPERATOR 4 "App One".>=, OPERATOR 5 "App One".>, '
                       'FUNCTION 1 "App One".%1$s_cmp("App One".%1$I, "App One".%1$I)', kind);
        EXECUTE format('CREATE OPERATOR CLASS "App One".%1$s_hash DEFAULT FOR TYPE "App One".%1$I USING hash AS '
                       'OPERATOR 1 "App One".=, FUNCTION 1 "App One".%1$s_hash("App One".%1$I)', kind);
    END LOOP;
END
$$;
-- Code that the service role does not trust: it runs as its owner, of whom the service role is a member.
SET ROLE fz_member;
CREATE FUNCTION "App One".mine(text) RETURNS text IMMUTABLE STRICT RETURN '~' || $1;
RESET ROLE;
