-- Records where the table of a mirror is, after another database has replaced its origin, or another table this one. %(id)s: pgt_id;
-- %(key)s: the new database; %(relid)s: the table; %(columns)s: attribute numbers in the order of the mirror's columns;
-- %(reason_code)s, %(reason_params)s, %(reason)s: why it is loaded again.
WITH moved AS (
    UPDATE pgtrickle.pgt_mirrors
    SET origin_key = %(key)s, origin_relid = %(relid)s::int8::oid, columns_used = %(columns)s::int2[], fingerprint = NULL
    WHERE pgt_id = %(id)s
    RETURNING pgt_id, is_stored
)
UPDATE pgtrickle.pgt_stream_tables AS st
SET frontier = NULL,
    needs_reinit = m.is_stored, -- one without rows has nothing to load
    reinit_reason_code = %(reason_code)s,
    reinit_reason_params = %(reason_params)s::jsonb,
    reinit_reason = %(reason)s,
    definition_version = st.definition_version + 1,
    epoch = st.epoch + 1,
    refresh_requested_at = CASE WHEN m.is_stored THEN clock_timestamp() END,
    updated_at = clock_timestamp()
FROM moved AS m
WHERE st.pgt_id = m.pgt_id
