-- Counts new changes in the buffers of this database, for the refresh broker. The broker connects as a role of its own that may call
-- this function and nothing else. The function is in pgtrickle_changes, where PUBLIC has no privileges: USAGE on schema pgtrickle would
-- show the catalog to the broker.

-- SECURITY DEFINER because buffers are private. STABLE: all buffers are counted in the one snapshot of the statement that calls it.
CREATE OR REPLACE FUNCTION pgtrickle_changes._broker_counts(
    relids oid[], sinces pg_snapshot[],
    OUT origin text, OUT seen pg_snapshot, OUT sources oid[], OUT counts bigint[], OUT lsns pg_lsn[], OUT horizons xid8[]
)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    buffer regclass;
    since pg_snapshot;
    horizon xid8;
    number bigint;
    latest pg_lsn;
BEGIN
    origin := pgtrickle._origin();
    seen := pg_current_snapshot();
    sources := '{}';
    counts := '{}';
    lsns := '{}';
    horizons := '{}';
    FOR i IN 1 .. cardinality(relids) LOOP
        buffer := to_regclass('pgtrickle_changes.changes_' || relids[i]);
        CONTINUE WHEN buffer IS NULL;
        since := sinces[i];
        SELECT CASE WHEN bool_or(r.snapshot IS NULL) THEN '0' ELSE coalesce(min(pg_snapshot_xmin(r.snapshot)::text::numeric)::text,
            pg_snapshot_xmin(seen)::text) END::xid8
        INTO horizon
        FROM pgtrickle.pgt_readers AS r
        WHERE r.source_relid = relids[i];
        -- What the statement sees is committed. Of that, what `since` did not see: what began after it, and what was open then.
        EXECUTE format('SELECT count(*), max(b.lsn) FROM %s AS b WHERE b.xid >= $1 OR b.xid = ANY ($2)', buffer)
        INTO number, latest
        USING CASE WHEN since IS NULL THEN horizon ELSE pg_snapshot_xmax(since) END, ARRAY(SELECT pg_snapshot_xip(since));
        sources := sources || relids[i];
        counts := counts || number;
        lsns := lsns || latest;
        horizons := horizons || horizon;
    END LOOP;
END
$$;
COMMENT ON FUNCTION pgtrickle_changes._broker_counts(oid[], pg_snapshot[]) IS
'Internal. Of the sources that have a buffer: changes that became visible since a snapshot of each (NULL: that the slowest of the readers elsewhere '
'may not have seen), the greatest LSN among them, and the transaction id before which all readers elsewhere have seen everything. Also which database '
'this is, and the snapshot that was read.';

REVOKE ALL ON FUNCTION pgtrickle_changes._broker_counts(oid[], pg_snapshot[]) FROM PUBLIC;

-- Roles belong to the whole server: the installer of another database may have created this role, or may be creating it now. A role that
-- may not create or grant it installs without it; the broker then connects as the control plane does, and `pgtrickle doctor` reports that.
DO $$
DECLARE
    is_super CONSTANT bool := (SELECT r.rolsuper FROM pg_catalog.pg_roles AS r WHERE r.rolname = current_user);
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles AS r WHERE r.rolname = 'pgtrickle_broker') THEN
        CREATE ROLE pgtrickle_broker NOLOGIN NOINHERIT;
    END IF;
    IF NOT is_super AND NOT pg_catalog.pg_has_role(current_user, 'pgtrickle_broker', 'MEMBER') THEN
        EXECUTE pg_catalog.format('GRANT pgtrickle_broker TO %I', current_user);
    ELSIF NOT is_super AND pg_catalog.current_setting('server_version_num')::int >= 160000 THEN
        -- its creator is a member with ADMIN OPTION, but without SET
        IF NOT pg_catalog.pg_has_role(current_user, 'pgtrickle_broker', 'SET') THEN
            EXECUTE pg_catalog.format('GRANT pgtrickle_broker TO %I WITH INHERIT FALSE, SET TRUE', current_user);
        END IF;
    END IF;
EXCEPTION
    WHEN insufficient_privilege OR duplicate_object OR unique_violation THEN
        NULL;
END
$$;
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_catalog.pg_roles AS r WHERE r.rolname = 'pgtrickle_broker') THEN
        GRANT USAGE ON SCHEMA pgtrickle_changes TO pgtrickle_broker;
        GRANT EXECUTE ON FUNCTION pgtrickle_changes._broker_counts(oid[], pg_snapshot[]) TO pgtrickle_broker;
    END IF;
END
$$;
