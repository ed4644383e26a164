"""SQL statements made from plans: a delta, the query as of a cut, and the cache of statement texts."""
