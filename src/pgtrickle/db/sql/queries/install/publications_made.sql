-- Publications that we made and that are still there. No parameters. Returns: quoted name.
SELECT pg_catalog.quote_ident(g.pubname)
FROM pgtrickle.pgt_publications AS p
JOIN pg_catalog.pg_publication AS g ON g.pubname = p.publication
ORDER BY 1
