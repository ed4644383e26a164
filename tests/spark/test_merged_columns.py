"""Columns that USING merges (of a FULL JOIN, of two types), where subqueries take them: exact, and from the changes."""

from __future__ import annotations

from random import Random

import pytest

from tests.line import Line

pytestmark = pytest.mark.spark

# int4 and int8, numerics of two sizes, varchar and text: PostgreSQL prints what is merged of them bare.
TABLES = {
    "a": ("k int, t varchar(5), n numeric(6,2), x int", ("{k}", "'{k}'", "{k}.50", "{x}")),
    "b": ("k bigint, t text, n numeric(8,3), y int", ("{k}", "'{k}'", "{k}.500", "{x}")),
    "c": ("k numeric, t char(5), n numeric(6,2), w int", ("{k}", "'{k}'", "{k}.50", "{x}")),
    "d": ("k int, t text, n numeric(6,2), y int", ("{k}", "'{k}'", "{k}.50", "{x}")),
    "e": ("k int, t text, n numeric(6,2), w int", ("{k}", "'{k}'", "{k}.50", "{x}")),
    "s": ("i bigint, o text, m numeric, z int", ("{k}", "'{k}'", "{k}.5", "{x}")),
}
# Each takes nothing from around it but what is merged.
SUBS = {
    "value": "SELECT x, y, (SELECT max(z) FROM s WHERE i = k) AS v FROM {from_}",
    "exists": "SELECT k, x, y FROM {from_} WHERE EXISTS (SELECT FROM s WHERE i = k)",
    "not_exists": "SELECT k, x, y FROM {from_} WHERE NOT EXISTS (SELECT FROM s WHERE i = k AND z > 2)",
    "array": "SELECT x, y, ARRAY(SELECT z FROM s WHERE i = k UNION SELECT k FROM s WHERE z = 1) AS v FROM {from_}",
    "many": "SELECT k, x, y FROM {from_} WHERE k > ALL (SELECT z FROM s WHERE i < k) OR k = ANY (SELECT i FROM s)",
    "is_in": "SELECT k, x, y, k IN (SELECT i FROM s) AS v FROM {from_}",
    "in_where": "SELECT k, x, y FROM {from_} WHERE k IN (SELECT i FROM s)",
    "not_in": "SELECT k, x FROM {from_} WHERE k NOT IN (SELECT i FROM s WHERE z > 1)",
    "in_groups": "SELECT k, x FROM {from_} WHERE k IN (SELECT i FROM s GROUP BY i HAVING count(*) > 1)",
    "pair": "SELECT x, y FROM {from_} WHERE (k, x) IN (SELECT i, z FROM s)",
    "deeper": "SELECT x, y, (SELECT count(*) FROM s AS p WHERE p.z IN (SELECT q.z FROM s AS q WHERE q.i = k)) AS v "
    "FROM {from_}",
    "grouped": "SELECT x, count(*) AS n, sum(y) AS v FROM {from_} WHERE (SELECT count(*) FROM s WHERE i = k) > 0 "
    "GROUP BY x",
    "lateral": "SELECT k, x, l.n FROM {from_} CROSS JOIN LATERAL (SELECT count(*) AS n FROM s WHERE i = k) AS l",
    "values_": "SELECT x, (SELECT sum(i) FROM (VALUES (k), (2)) AS v(i)) AS v FROM {from_}",
    "series": "SELECT x, (SELECT count(*) FROM generate_series(1, k::int8) AS g(j) WHERE j > 1) AS v FROM {from_}",
    "with_": "SELECT x, (WITH p AS (SELECT z FROM s WHERE i = k) SELECT max(z) FROM p) AS v FROM {from_}",
    "window_": "SELECT x, y, (SELECT max(r) FROM (SELECT rank() OVER (ORDER BY z) AS r FROM s WHERE i = k) AS p) AS v "
    "FROM {from_}",
    "first": "SELECT x, (SELECT z FROM s WHERE i >= k ORDER BY i, z LIMIT 1) AS v FROM {from_}",
    "texts": "SELECT x, (SELECT max(z) FROM s WHERE o = t) AS v, t IN (SELECT o FROM s) AS w FROM {texts}",
    "digits": "SELECT x, (SELECT max(m + n)::text FROM s WHERE m = n) AS v FROM {digits}",
}
CHANGED = [["s"], ["a", "d"], ["b", "e"], ["c", "d"], ["s", "a"], ["a", "b", "d"], ["s", "a", "b", "c", "d", "e"]]
KINDS = ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN")


def row(random: Random, table: str) -> str:
    k, x = random.choice([None, 0, 1, 2, 3]), random.choice(["NULL", "1", "2", "3"])
    values = [v.format(k=k, x=x) if k is not None or v == "{x}" else "NULL" for v in TABLES[table][1]]
    return f"({', '.join(values)})"


def change(line: Line, random: Random, tables: list[str]) -> None:
    for table in tables:
        what = random.choice(["insert", "insert", "delete", "update"])
        some = f"ctid IN (SELECT ctid FROM {table} ORDER BY random() LIMIT {random.randint(1, 3)})"
        first = TABLES[table][0].split()[0]
        if what == "insert":
            line.sql(f"INSERT INTO {table} VALUES {', '.join(row(random, table) for _ in range(random.randint(1, 3)))}")
        elif what == "delete":
            line.sql(f"DELETE FROM {table} WHERE {some}")
        else:
            line.sql(f"UPDATE {table} SET {first} = {random.choice(['NULL', '0', '1', '3'])} WHERE {some}")


@pytest.mark.parametrize("kind", KINDS)
def test_subqueries_over_what_using_merges_are_exact(line: Line, kind: str) -> None:
    random = Random(kind)
    for table, (columns, _) in TABLES.items():
        line.sql(f"CREATE TABLE {table} ({columns})")
        line.sql(f"INSERT INTO {table} VALUES {', '.join(row(random, table) for _ in range(6))}")
    line.sql("CREATE INDEX ON s (i); SELECT setseed(0.5)")
    sources = {
        "from_": f"a {kind} b USING (k)",
        "texts": f"a {kind} b USING (t)",
        "digits": f"a {kind} b USING (n)",
    }
    made = {name: query.format(**sources) for name, query in SUBS.items()}
    made["turned"] = SUBS["value"].format(from_=f"b {kind} a USING (k)")
    made["three"] = SUBS["exists"].format(from_=f"a {kind} b USING (k) FULL JOIN c USING (k)")
    made["three_in"] = SUBS["is_in"].format(from_=f"a FULL JOIN b USING (k) {kind} c USING (k)")
    for name in (
        "value",
        "exists",
        "not_exists",
        "array",
        "is_in",
        "in_where",
        "not_in",
        "in_groups",
        "deeper",
        "lateral",
    ):
        made[f"{name}_same"] = SUBS[name].format(from_=f"a {kind} d USING (k)")
    made["three_same"] = SUBS["value"].format(from_=f"a {kind} d USING (k) FULL JOIN e USING (k)")
    made["three_same_in"] = SUBS["in_where"].format(from_=f"a FULL JOIN d USING (k) {kind} e USING (k)")
    made["same_and_other"] = SUBS["exists"].format(from_=f"a FULL JOIN d USING (k) {kind} b AS b(k, t, n, o) USING (k)")
    made["two_names"] = f"SELECT x, y, (SELECT max(z) FROM s WHERE i = k AND m > n) AS v FROM a {kind} b USING (k, n)"
    other, outer = "c AS c(h, t, n, w)", f"a {kind} b USING (k)"
    made["on_"] = f"SELECT k, w FROM {outer} LEFT JOIN {other} ON w = (SELECT max(z) FROM s WHERE i = k)"
    # Here the merged column is NULL for rows of c that have nothing, which a change of s may give something to.
    for name, what in (("inside", "max(z)"), ("inside_rows", "z")):
        lateral = f"({outer} CROSS JOIN LATERAL (SELECT {what} AS v FROM s WHERE i = k) AS l)"
        made[name] = f"SELECT c.w, l.v FROM {other} LEFT JOIN {lateral} ON x = w"
    for name, query in made.items():
        line.sql("SELECT pgtrickle.create_stream_table(%s, %s, '1s', 'DIFFERENTIAL')", name, query)
    line.tick()
    line.edit_catalog("UPDATE pgtrickle.pgt_stream_tables SET schedule = 'calculated'")
    for number in range(5):
        change(line, random, CHANGED[number % len(CHANGED)])
        outcomes = line.tick()
        assert not [(o.table.name, o.error) for o in outcomes if o.error is not None]
        for name in made:
            assert line.last(name)[0] in ("DIFFERENTIAL", "NO_DATA") or number == 0, (name, line.last(name))
            line.equal(name)
