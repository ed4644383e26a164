-- Announces that a buffer will be compacted: windows that its subscribers are offered from now on end at no cut before the horizon. Waits for running reads.
-- %(relid)s: the source; %(horizon)s: the transaction (text) before which changes are netted. Returns nothing.
UPDATE pgtrickle.pgt_subscribers AS u
SET netted = %(horizon)s::text::xid8
FROM pgtrickle.pgt_stream_tables AS st
WHERE st.pgt_id = u.pgt_id AND st.pgt_relid = %(relid)s
