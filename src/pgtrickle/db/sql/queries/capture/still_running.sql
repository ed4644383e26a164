-- Whether one of these transactions has not ended. %(transactions)s: array of virtual ids; a running server does not use them twice.
SELECT EXISTS (
    SELECT
    FROM pg_catalog.pg_locks AS l
    WHERE l.locktype = 'virtualxid' AND l.virtualtransaction = ANY (%(transactions)s::text[])
)
