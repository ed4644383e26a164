-- What refreshes of one stream table took, by mode and engine, over the kept history. %(pgt_id)s.
SELECT h.action, coalesce(h.engine, '-') AS engine, count(*) AS refreshes,
       percentile_cont(0.5) WITHIN GROUP (ORDER BY x.ms) AS median_ms, percentile_cont(0.95) WITHIN GROUP (ORDER BY x.ms) AS p95_ms,
       percentile_cont(0.5) WITHIN GROUP (ORDER BY h.source_ms) AS median_source_ms,
       percentile_cont(0.5) WITHIN GROUP (ORDER BY h.delta_row_count) AS median_changes
FROM pgtrickle.pgt_refresh_history AS h
CROSS JOIN LATERAL (SELECT coalesce((SELECT sum(t.ms::float8) FROM jsonb_each_text(h.timings) AS t(part, ms)),
                                    (extract(epoch FROM h.end_time - h.start_time) * 1000)::float8)) AS x(ms)
WHERE h.pgt_id = %(pgt_id)s AND h.status = 'COMPLETED' AND h.action IN ('DIFFERENTIAL', 'FULL', 'REINITIALIZE')
GROUP BY 1, 2
ORDER BY 1, 2
