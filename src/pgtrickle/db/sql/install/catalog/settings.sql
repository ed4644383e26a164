-- Settings of a database, and the list of known settings.
CREATE TABLE IF NOT EXISTS pgtrickle.pgt_options (
    name text PRIMARY KEY,
    setting text NOT NULL,
    kind text NOT NULL,
    default_value text NOT NULL,
    low numeric,
    high numeric,
    choices text[] NOT NULL,
    allowed text NOT NULL,
    scope text NOT NULL,
    meaning text NOT NULL
);
COMMENT ON TABLE pgtrickle.pgt_options IS 'Settings that this version knows. Written by `pgtrickle install`.';
COMMENT ON COLUMN pgtrickle.pgt_options.setting IS 'The setting itself, where name is another name for it.';
COMMENT ON COLUMN pgtrickle.pgt_options.allowed IS 'The range in words.';
COMMENT ON COLUMN pgtrickle.pgt_options.scope IS
'database: each database for itself. fleet: read when `pgtrickle run` starts, from the database that --server names. host: of the machine that '
'pgtrickle runs on; set_option refuses it.';

CREATE TABLE IF NOT EXISTS pgtrickle.pgt_settings (
    name text PRIMARY KEY,
    value text NOT NULL,
    changed_by name NOT NULL DEFAULT session_user,
    changed_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp()
);
COMMENT ON TABLE pgtrickle.pgt_settings IS 'Settings of this database, written by set_option(). Lower than postgresql.conf, ALTER DATABASE and ALTER ROLE.';
