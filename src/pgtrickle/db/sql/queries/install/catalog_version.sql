-- The version of the catalog, and of the package that wrote it. Returns: version, package version; no row while nothing is recorded.
SELECT v.version, v.package_version FROM pgtrickle.pgt_schema_version AS v ORDER BY v.version DESC LIMIT 1
