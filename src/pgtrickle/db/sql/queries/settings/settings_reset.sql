-- For this transaction our settings are what they were when the session began. %(names)s: with their prefix. Returns nothing of interest.
SELECT set_config(name, NULL, true)
FROM unnest(%(names)s::text[]) AS name
WHERE current_setting(name, true) IS NOT NULL
