-- Refresh groups as the catalog has them.
-- Returns: name, isolation, members as schema.name, set.
SELECT g.group_name, g.isolation,
       ARRAY(SELECT pg_catalog.format('%I.%I', st.pgt_schema, st.pgt_name) FROM pgtrickle.pgt_stream_tables AS st
             WHERE st.pgt_id = ANY (g.members) ORDER BY 1),
       g.applied_from
FROM pgtrickle.pgt_refresh_groups AS g
ORDER BY g.group_name
