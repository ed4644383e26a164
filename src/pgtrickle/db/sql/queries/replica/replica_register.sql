-- A replica is about to be built: from now on all changes are kept for it. %(relid)s: the source; %(generation)s, %(location)s, %(token)s of the first commit;
-- %(columns)s: int2 array; %(computed)s: json; %(as_text)s: names; %(reader)s: id of a stream table or NULL; %(requested)s: by a user.
INSERT INTO pgtrickle.pgt_replicas AS p
    (source_relid, origin, generation, location, columns_used, computed, as_text, readers, is_requested, announced)
VALUES (%(relid)s, pgtrickle._origin(), %(generation)s, %(location)s, %(columns)s::int2[], %(computed)s::jsonb, %(as_text)s::text[],
        array_remove(ARRAY[%(reader)s::int8], NULL), %(requested)s, ARRAY[%(token)s::text])
ON CONFLICT (source_relid) DO UPDATE
SET origin = EXCLUDED.origin,
    generation = EXCLUDED.generation,
    location = EXCLUDED.location,
    columns_used = EXCLUDED.columns_used,
    computed = EXCLUDED.computed,
    as_text = EXCLUDED.as_text,
    readers = ARRAY(SELECT DISTINCT unnest(p.readers || EXCLUDED.readers)),
    is_requested = p.is_requested OR EXCLUDED.is_requested,
    announced = EXCLUDED.announced,
    committed = NULL,
    snapshot = NULL,
    netted = NULL,
    updated_at = clock_timestamp()
