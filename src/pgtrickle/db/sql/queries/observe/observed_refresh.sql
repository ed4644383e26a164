-- Requests a refresh of a stream table. %(name)s: schema and name, quoted.
SELECT pgtrickle.refresh_stream_table(%(name)s)
