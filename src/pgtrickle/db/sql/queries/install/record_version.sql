-- Records the installed catalog version. Parameters: version, package version. Returns nothing.
INSERT INTO pgtrickle.pgt_schema_version (version, package_version)
VALUES (%s, %s)
ON CONFLICT (version) DO UPDATE
SET package_version = EXCLUDED.package_version, installed_at = pg_catalog.clock_timestamp()
WHERE pgt_schema_version.package_version <> EXCLUDED.package_version
