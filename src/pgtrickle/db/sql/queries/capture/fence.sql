-- Makes refreshes that are under way unable to commit. %(ids)s: array of pgt_id. Returns nothing.
UPDATE pgtrickle.pgt_stream_tables
SET epoch = epoch + 1
WHERE pgt_id = ANY (%(ids)s::int8[])
