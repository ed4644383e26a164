-- Per captured table: what is wrong with its capture, and the changes that its slowest reader has not read. Counts rows of buffers. No parameters.
SELECT h.source_relid::int8 AS relid, h.alert, h.pending_rows FROM pgtrickle.check_cdc_health() AS h
