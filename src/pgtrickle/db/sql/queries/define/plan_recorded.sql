-- Records how a stream table is refreshed. %(id)s, %(version)s: the table and its definition_version; %(plan)s jsonb, %(mode)s, %(reason)s;
-- %(stays)s: the content that it has is that of this plan, too. Otherwise it is marked for a new load.
UPDATE pgtrickle.pgt_stream_tables AS st
SET plan = %(plan)s::jsonb,
    effective_refresh_mode = %(mode)s,
    mode_reason = %(reason)s,
    needs_reinit = st.needs_reinit OR (st.is_populated AND NOT %(stays)s),
    reinit_reason = CASE
        WHEN NOT st.is_populated THEN NULL
        WHEN %(stays)s THEN st.reinit_reason
        ELSE coalesce(st.reinit_reason, 'the definition or a source changed')
    END,
    epoch = st.epoch + 1
WHERE st.pgt_id = %(id)s AND st.definition_version = %(version)s
