-- Resets our settings, for this transaction, to their values at the start of the session. %(names)s: with their prefix. The result has no meaning.
SELECT set_config(name, NULL, true)
FROM unnest(%(names)s::text[]) AS name
WHERE current_setting(name, true) IS NOT NULL
