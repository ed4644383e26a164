-- Suspends a stream table. %(name)s: schema and name, quoted.
SELECT pgtrickle.suspend_stream_table(%(name)s)
