-- What an installation has made in this database, as arrays of names, and the databases that read it. No parameters.
-- Returns: stream tables, captured tables, publications, subscribers, readers.
SELECT
    ARRAY(SELECT format('%I.%I', st.pgt_schema, st.pgt_name) FROM pgtrickle.pgt_stream_tables AS st
          WHERE NOT EXISTS (SELECT FROM pgtrickle.pgt_mirrors AS m WHERE m.pgt_id = st.pgt_id) ORDER BY 1),
    ARRAY(SELECT s.source_relid::regclass::text FROM pgtrickle.pgt_sources AS s JOIN pg_class AS c ON c.oid = s.source_relid ORDER BY 1),
    ARRAY(SELECT p.publication::text FROM pgtrickle.pgt_publications AS p ORDER BY 1),
    ARRAY(SELECT format('%s of %I.%I', u.subscriber, st.pgt_schema, st.pgt_name)
          FROM pgtrickle.pgt_subscribers AS u JOIN pgtrickle.pgt_stream_tables AS st ON st.pgt_id = u.pgt_id ORDER BY 1),
    ARRAY(SELECT DISTINCT coalesce(nullif(e.reader_server, '') || '/', '') || e.reader_database FROM pgtrickle.pgt_readers AS e ORDER BY 1)
