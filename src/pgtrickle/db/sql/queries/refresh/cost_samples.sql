-- The costs of the latest refreshes of stream tables, without the shares of other tables of their waves. %(ids)s: array of pgt_id.
-- Returns one row for each refresh, oldest first: pgt_id; its time in seconds since 1970; FULL, DIFFERENTIAL or LOAD (the first load, or one of
-- another definition); number of changes; milliseconds; engine; how many of the milliseconds were spent in statements of the database.
SELECT
    h.pgt_id,
    extract(epoch FROM h.end_time)::float8,
    CASE WHEN h.action = 'REINITIALIZE' OR h.initiated_by = 'INITIAL' THEN 'LOAD' ELSE h.action END,
    coalesce(h.delta_row_count, 0),
    coalesce(h.share_ms, (SELECT sum(t.ms::float8) FROM jsonb_each_text(h.timings) AS t(part, ms)), 0),
    coalesce(h.engine, 'postgres'),
    coalesce(h.source_ms, 0)
FROM unnest(%(ids)s::int8[]) AS wanted(pgt_id)
CROSS JOIN LATERAL (
    SELECT r.*
    FROM pgtrickle.pgt_refresh_history AS r
    WHERE r.pgt_id = wanted.pgt_id AND r.status = 'COMPLETED' AND NOT r.is_cold AND r.action IN ('FULL', 'DIFFERENTIAL', 'REINITIALIZE')
    ORDER BY r.refresh_id DESC
    LIMIT 64
) AS h
ORDER BY h.refresh_id
