-- Returns: whether definitions over other databases or requests for plans are pending; whether stream tables read tables of other databases, or
-- mirrors exist without readers.
SELECT
    EXISTS (SELECT FROM pgtrickle.pgt_definitions AS d WHERE NOT d.is_final)
        OR EXISTS (SELECT FROM pgtrickle.pgt_plans AS p WHERE p.answered_at IS NULL),
    EXISTS (SELECT FROM pgtrickle.pgt_dependencies AS d WHERE d.source_type = 'FOREIGN_TABLE')
        OR EXISTS (SELECT FROM pgtrickle.pgt_shared_sources)
        OR EXISTS (SELECT FROM pgtrickle.pgt_mirrors AS m WHERE m.local_relid IS NOT NULL)
        OR EXISTS (SELECT FROM pgtrickle._unused_mirrors())
