-- Resumes a stream table. %(name)s: schema and name, quoted.
SELECT pgtrickle.resume_stream_table(%(name)s)
