"""What `pgtrickle install` has made in a database, as comparable rows: an upgraded catalog has to equal a new one."""

from __future__ import annotations

from typing import Any

import psycopg

# Of pgtrickle_changes only what install makes: the rest belongs to tables that are captured or mirrored.
_OURS = "(n.nspname = 'pgtrickle' OR n.nspname = 'pgtrickle_changes' AND {} ~ '^(caller_key|moves|_)')"


def _acl(column: str, kind: str, owner: str) -> str:
    """Privileges in one order; NULL means the default ones."""
    return (
        "(SELECT string_agg(concat_ws(':', a.grantee::regrole, a.grantor::regrole, a.privilege_type, a.is_grantable),"
        " ',' ORDER BY a.grantee::regrole::text, a.privilege_type)"
        f" FROM aclexplode(coalesce({column}, acldefault('{kind}', {owner}))) AS a)"
    )


QUERIES = {
    "schemas": f"""
        SELECT n.nspname, n.nspowner::regrole::text, {_acl("n.nspacl", "n", "n.nspowner")}, obj_description(n.oid)
        FROM pg_namespace AS n WHERE n.nspname IN ('pgtrickle', 'pgtrickle_changes')""",
    "relations": f"""
        SELECT n.nspname, c.relname, c.relkind, c.relpersistence, c.reloptions, c.relowner::regrole::text,
               c.relrowsecurity, {_acl("c.relacl", "r", "c.relowner")}, obj_description(c.oid, 'pg_class'),
               CASE WHEN c.relkind = 'v' THEN pg_get_viewdef(c.oid) END
        FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
        WHERE c.relkind IN ('r', 'p', 'v', 'm', 'S') AND {_OURS.format("c.relname")}""",
    "columns": f"""
        SELECT n.nspname, c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity,
               a.attgenerated, a.attcollation::regcollation::text, pg_get_expr(d.adbin, d.adrelid),
               CASE WHEN a.attacl IS NOT NULL THEN {_acl("a.attacl", "c", "c.relowner")} END,
               col_description(c.oid, a.attnum),
               row_number() OVER (PARTITION BY c.oid ORDER BY a.attnum)
        FROM pg_attribute AS a
        JOIN pg_class AS c ON c.oid = a.attrelid
        JOIN pg_namespace AS n ON n.oid = c.relnamespace
        LEFT JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        WHERE a.attnum > 0 AND NOT a.attisdropped AND c.relkind IN ('r', 'p', 'v', 'c')
          AND {_OURS.format("c.relname")}""",
    "constraints": f"""
        SELECT n.nspname, c.relname, k.conname, pg_get_constraintdef(k.oid), k.convalidated
        FROM pg_constraint AS k
        JOIN pg_class AS c ON c.oid = k.conrelid
        JOIN pg_namespace AS n ON n.oid = c.relnamespace
        WHERE {_OURS.format("c.relname")}""",
    "indexes": f"""
        SELECT n.nspname, c.relname, pg_get_indexdef(i.indexrelid), i.indisvalid
        FROM pg_index AS i
        JOIN pg_class AS c ON c.oid = i.indrelid
        JOIN pg_namespace AS n ON n.oid = c.relnamespace
        WHERE {_OURS.format("c.relname")}""",
    "triggers": f"""
        SELECT n.nspname, c.relname, t.tgname, pg_get_triggerdef(t.oid), t.tgenabled
        FROM pg_trigger AS t
        JOIN pg_class AS c ON c.oid = t.tgrelid
        JOIN pg_namespace AS n ON n.oid = c.relnamespace
        WHERE NOT t.tgisinternal AND {_OURS.format("c.relname")}""",
    "functions": f"""
        SELECT n.nspname, p.oid::regprocedure::text, pg_get_functiondef(p.oid), p.proowner::regrole::text,
               {_acl("p.proacl", "f", "p.proowner")}, obj_description(p.oid, 'pg_proc')
        FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
        WHERE {_OURS.format("p.proname")}""",
    "types": f"""
        SELECT n.nspname, t.typname, t.typtype, t.typowner::regrole::text
        FROM pg_type AS t JOIN pg_namespace AS n ON n.oid = t.typnamespace
        WHERE {_OURS.format("ltrim(t.typname, '_')")} AND n.nspname = 'pgtrickle'""",
}


def schema_of(dsn: str) -> dict[str, set[tuple[Any, ...]]]:
    found = {}
    with psycopg.connect(dsn) as conn:
        conn.execute("SET search_path = pg_catalog, pg_temp")
        for name, query in QUERIES.items():
            rows = conn.execute(query).fetchall()
            assert rows, name
            found[name] = {tuple(tuple(v) if isinstance(v, list) else v for v in row) for row in rows}
    return found


def difference(one: dict[str, set[tuple[Any, ...]]], other: dict[str, set[tuple[Any, ...]]]) -> dict[str, Any]:
    """By kind of object: what only the one has, and what only the other has."""
    return {
        kind: {"only in the first": one[kind] - other[kind], "only in the second": other[kind] - one[kind]}
        for kind in one
        if one[kind] != other[kind]
    }
