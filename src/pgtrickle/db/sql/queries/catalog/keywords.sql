-- Words that cannot be an alias without AS. Returns: the word in upper case.
SELECT upper(k.word) FROM pg_get_keywords() AS k WHERE k.catcode IN ('R', 'T')
