-- Changes the schedule of a stream table. %(name)s: schema and name, quoted; %(schedule)s.
SELECT pgtrickle.alter_stream_table(%(name)s, schedule => %(schedule)s)
