-- Whether this database has replicas. No parameters. Returns: one boolean.
SELECT EXISTS (SELECT FROM pgtrickle.pgt_replicas)
