-- What the latest refreshes of stream tables have taken by themselves, without those that ran beside them.
-- %(ids)s: array of pgt_id.
-- Returns a row for each, oldest first: pgt_id, when (seconds since 1970), FULL | DIFFERENTIAL | LOAD (first, or of another definition),
-- number of changes, milliseconds.
SELECT
    h.pgt_id,
    extract(epoch FROM h.end_time)::float8,
    CASE WHEN h.action = 'REINITIALIZE' OR h.initiated_by = 'INITIAL' THEN 'LOAD' ELSE h.action END,
    coalesce(h.delta_row_count, 0),
    (SELECT coalesce(sum(t.ms::float8), 0) FROM jsonb_each_text(h.timings) AS t(part, ms))
FROM unnest(%(ids)s::int8[]) AS wanted(pgt_id)
CROSS JOIN LATERAL (
    SELECT r.*
    FROM pgtrickle.pgt_refresh_history AS r
    WHERE r.pgt_id = wanted.pgt_id AND r.status = 'COMPLETED' AND r.action IN ('FULL', 'DIFFERENTIAL', 'REINITIALIZE')
    ORDER BY r.refresh_id DESC
    LIMIT 64
) AS h
ORDER BY h.refresh_id
