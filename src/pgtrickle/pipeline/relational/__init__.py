"""From a PostgreSQL SELECT to a Spark DataFrame with exactly PostgreSQL's result, or a refusal by name (ADR 25).

    compiled = compile_query(sql, catalog, collation="C.UTF-8")     # SparkUnsupportedError names the construct
    compiled.inputs                                                 # {(schema, name)} of the relations that it reads
    compiled.columns                                                # names and types of the result
    compiled.computed                                               # columns that inputs must have besides their own
    frame = compiled.build(session, inputs)                         # a DataFrame, lazy except for WITH RECURSIVE

* `sql`: as pg_get_viewdef prints a view under the search_path pg_catalog, pg_temp.
* `catalog(schema, name)`: the columns of a relation as `InputColumn`, or the text of the query if it is a view.
* `computed=typed` (optional): an expression over one input that Spark does not evaluate becomes a column of that
  input, which PostgreSQL computes when it reads a row. `typed(schema, name, expression)` tells how the value is stored,
  or None if it must not be: it is computed for all rows, also for those that the query does not read (`storable.py`).
  Compiling is pure apart from `catalog` and `typed`.
* `inputs(schema, name)`: its DataFrame. Columns have the names of the relation, in any order, and the types of
  `column_types.stored_column(...).ddl`; others are ignored. `stored_column(...).input(name)` is the InputColumn.
* The result has the columns of `compiled.columns`, each value in its encoded form (`expressions.spark_type`); a
  numeric is its exact text. `expressions.decode_value` is the SQL that decodes it.
* `session`: with the settings of `expressions.CONF` (ANSI, no rounding of decimals, UTC, names by case).
* Errors of the job: `expressions.failure(str(exception))` returns the error of pgtrickle whose message Spark
  reports, else None. `InexactValueError`: Spark cannot represent a value exactly (a numeric of more than 38 digits, NaN
  or an infinity in arithmetic), and PostgreSQL has to evaluate the query. `DefinitionError`: PostgreSQL fails, too
  (division by zero, out of range, a scalar subquery with more than one row).
"""

from pgtrickle.pipeline.relational.column_types import StoredColumn, stored_column
from pgtrickle.pipeline.relational.compiled import CompiledDelta, CompiledQuery, OutputColumn, compile_query
from pgtrickle.pipeline.relational.computed import ComputedColumn
from pgtrickle.pipeline.relational.group_delta import CompiledGroups
from pgtrickle.pipeline.relational.inputs import Catalog, InputColumn

__all__ = [
    "Catalog",
    "CompiledDelta",
    "CompiledGroups",
    "CompiledQuery",
    "ComputedColumn",
    "InputColumn",
    "OutputColumn",
    "StoredColumn",
    "compile_query",
    "stored_column",
]
