"""The codes of all reasons, each with the template of its text, and some with that of a hint. Pure.

Placeholders in braces are the parameters; a hint says what the author of a query can do, and uses the parameters of
the text. db/sql/install/reasons/reasons.sql has the same templates for PostgreSQL; `make golden` writes it.
"""

from __future__ import annotations

import re
from enum import StrEnum

PLACEHOLDER = re.compile(r"\{(\w+)\}")

# Hints of several codes.
_IN_VIEW = "leave it out here, and add it in a view over the stream table"
_DECIDE = "add the columns of a unique key to the ORDER BY, or make this part a stream table of its own"
_ONE_TEXT = "give equal values one text before, as in SELECT DISTINCT a::numeric(12, 2), or select the value itself"
_QUALIFY = "leave the alias out, and qualify the columns with their tables"
_CHILDREN = "give the tables a column that tells their rows apart, and choose by it from {relation} without ONLY"


class ReasonCode(StrEnum):
    """The value is what the catalog stores: it never changes. The template may."""

    template: str
    hint: str | None

    def __new__(cls, code: str, template: str, hint: str | None = None) -> ReasonCode:
        member = str.__new__(cls, code)
        member._value_ = code
        member.template = template
        member.hint = hint
        return member

    @property
    def parameters(self) -> frozenset[str]:
        return frozenset(PLACEHOLDER.findall(self.template))

    # -- why the content is computed from nothing
    FIRST_LOAD = "first_load", "first load"
    REINIT_REQUESTED = "reinit_requested", "reinitialization was requested"
    REPAIR_REQUESTED = "repair_requested", "repair was requested"
    QUERY_ALTERED = "query_altered", "the query was altered"
    DEFINITION_CHANGED = "definition_changed", "the definition or a source changed"
    CYCLE_CHANGED = "cycle_changed", "the table joined or left a cycle of stream tables"
    REFRESH_FAILED = "refresh_failed", "{error}"
    NO_FRONTIER = "no_frontier", "the table has no frontier"
    OTHER_DATABASE = "other_database", "the frontier belongs to another database or server (restored or copied)"
    XIDS_WENT_BACK = "xids_went_back", "transaction ids went backwards (restored from a backup)"
    TIME_ZONE_CHANGED = "time_zone_changed", "TimeZone changed from {old} to {new}"
    SOURCE_CHANGED = "source_changed", "a source's columns, partitions or capture triggers changed"
    CHARACTER_IDENTITY = (
        "character_identity",
        "pgtrickle was upgraded to a version that identifies rows by values of type character with their blanks",
    )
    FUNCTION_REPLACED = "function_replaced", "a function that the query calls was replaced"
    MIRROR_UNKNOWN = (
        "mirror_unknown",
        "the origin does not know this mirror any more (detached, or restored from a backup)",
    )
    ORIGIN_WENT_BACK = (
        "origin_went_back",
        "the origin was restored to a state before what this mirror has read",
    )
    ORIGIN_REPLACED = "origin_replaced", "the database of the origin was recreated or restored from a dump"
    SOURCE_CREATED_AGAIN = "source_created_again", "{table} was dropped and created again"
    MIRROR_BEHIND = (
        "mirror_behind",
        "the origin has recorded a later position of this mirror (this database was restored from a backup)",
    )
    MIRROR_NETTED = (
        "mirror_netted",
        "the origin has netted changes across the position of this mirror, which it did not know in time",
    )

    # -- why a refresh is FULL or DIFFERENTIAL
    SOURCE_TRUNCATED = (
        "source_truncated",
        "a source was truncated, or rows of it were moved to another partition by MERGE",
    )
    MAX_BUFFER_ROWS = "max_buffer_rows", "{rows} changes exceed max_buffer_rows ({limit})"
    MAX_CHANGE_RATIO = (
        "max_change_ratio",
        "{rows} changes in {source_rows} source rows exceed differential_max_change_ratio ({limit})",
    )
    MAX_DELTA_FRACTION = (
        "max_delta_fraction",
        "{rows} changes in {source_rows} source rows exceed max_delta_fraction ({limit})",
    )
    SLOWER_THAN_FULL = (
        "slower_than_full",
        "{rows} changes take {least_ms} ms at least, the last full refresh took {full_ms}",
    )
    DELTA_FAILED = "delta_failed", "{error}"
    NO_PREDICTION = "no_prediction", "{rows} changes, no prediction: {why}"
    NO_FULL_KNOWN = "no_full_known", "no full refresh is known"
    CREATED_RECENTLY = "created_recently", "created less than {seconds} s ago"
    TOO_FEW_SAMPLES = "too_few_samples", "{known} of {needed} refreshes are known"
    NONE_ALIKE = "none_alike", "none of {known} differential refreshes had a similar number of changes"
    PREDICTED = (
        "predicted",
        "{rows} changes: differential about {differential_ms} ms ({differential_basis}), "
        "full about {full_ms} ms ({full_basis})",
    )
    TRIED_UNKNOWN = "tried_unknown", "tried, {known} of {needed} like it are known; {prediction}"
    TRIED_DIFFERENTIAL = "tried_differential", "tried again after {times} full; {prediction}"
    TRIED_FULL = "tried_full", "tried after {times} differential; {prediction}"
    ONE_SAMPLE = "one_sample", "by one"
    MEDIAN = "median", "median of {number}"
    MEDIAN_ALIKE = "median_alike", "median of {number} like it"
    LINE = "line", "line through {number}: {fixed_ms} + {per_row_ms} per change"
    FEWER_CHANGES = "fewer_changes", "as much as {number} with fewer changes"
    CYCLE_MEMBER_LOADED = "cycle_member_loaded", "of the cycle, {table} is computed from nothing: {why}"
    CYCLE_MEMBER_FULL = "cycle_member_full", "of the cycle, {table} has refresh_mode FULL"
    CYCLE_INSTANTS = "cycle_instants", "the tables of the cycle have different frontiers"
    CYCLE_WRITTEN = "cycle_written", "a table of the cycle was written to from outside"
    CYCLE_ROWS_DELETED = "cycle_rows_deleted", "rows were deleted from a source: the cycle is computed from nothing"

    # -- why a stream table is not refreshed
    WAITS_FOR_STREAM_TABLE = "waits_for_stream_table", "waits for stream table {table}: {status}"

    # -- why a query is not maintained from changes: found by PostgreSQL when it is defined (_full_reason)
    SYSTEM_CATALOG = "system_catalog", "{relation} is a system catalog, whose changes cannot be captured"
    MATERIALIZED_VIEW = (
        "materialized_view",
        "{relation} is a materialized view, whose changes cannot be captured",
        "read what {relation} reads, or make it a stream table",
    )
    FOREIGN_TABLE = (
        "foreign_table",
        "{relation} is a foreign table, whose changes cannot be captured",
        "where pgtrickle serves its database, name the table itself: database.schema.table",
    )
    SEQUENCE = "sequence", "{relation} is a sequence, whose changes cannot be captured"
    UNLOGGED_TABLE = (
        "unlogged_table",
        "{relation} is an unlogged table, whose changes cannot be captured",
        "ALTER TABLE {relation} SET LOGGED",
    )
    UNLOGGED_CHILD = (
        "unlogged_child",
        "{child} of {relation} is unlogged, whose changes cannot be captured",
        "ALTER TABLE {child} SET LOGGED",
    )
    FOREIGN_CHILD = "foreign_child", "{child} of {relation} is a foreign table, whose changes cannot be captured"
    CHILD_NOT_TABLE = "child_not_table", "{child} of {relation} is not a plain table, whose changes cannot be captured"
    NO_TABLE = "no_table", "the query reads no table"
    VIRTUAL_COLUMN = (
        "virtual_column",
        "column {column} of {relation} is a virtual generated column, which triggers do not see",
        "make it a stored column, or write its expression in the query",
    )
    LOOSE_COLUMN = "loose_column", "column {column} of {relation} is compared by a nondeterministic collation"
    CATALOG_TYPE = "catalog_type", "column {column} of {relation} is of type {type}, whose text depends on the catalog"
    LOOSE_COLLATION = "loose_collation", "the query uses the nondeterministic collation {collation}"
    LOOSE_COMPARISON = "loose_comparison", "the query compares by the nondeterministic collation {collation}"
    TABLESAMPLE = (
        "tablesample",
        "the query uses TABLESAMPLE of {relation}",
        "choose rows of {relation} by a condition on their key",
    )
    WHOLE_ROW = (
        "whole_row",
        "the query uses a whole row of {relation} as a value",
        "list the columns of {relation}, for example with jsonb_build_object()",
    )
    SYSTEM_COLUMN = (
        "system_column",
        "the query uses the system column {column} of {relation}",
        "use other columns of {relation}, such as its key",
    )
    EQUAL_GROUPING_KEYS = (
        "equal_grouping_keys",
        "the query selects the same expression twice and groups by each of them in GROUPING SETS, CUBE or ROLLUP",
        "write one of the two expressions differently",
    )
    SESSION_VALUE = "session_value", "the query uses {function}, whose result may change while no source does", _IN_VIEW
    XML_EXPRESSION = "xml_expression", "the query uses the XML expression {function}", _IN_VIEW
    FROM_ONLY = "from_only", "the query uses FROM ONLY {relation}, which has children", _CHILDREN
    STABLE_FUNCTION = (
        "stable_function",
        "the query calls the stable function {function}, whose result may change while no source does",
        "call it in a view over the stream table instead, or declare a function of your own IMMUTABLE if it is",
    )
    TEXT_READS_CLOCK = (
        "text_reads_clock",
        "the query casts text to {type}, which reads the clock for values such as 'now'",
        "use to_date() or to_timestamp() with a format",
    )
    JSON_READS_CLOCK = (
        "json_reads_clock",
        "the query reads {type} out of JSON, for which values such as 'now' read the clock",
        "return text, and convert it by to_date() or to_timestamp() with a format",
    )
    JSON_PATH = (
        "json_path",
        "the query uses a JSON path that is computed or reads times, which depend on the time zone",
    )
    JSON_DEFAULT = (
        "json_default",
        "the query uses JSON_VALUE with a default, or JSON_EXISTS with a strict path, whose result for NULL depends on "
        "the row before",
    )

    # -- the same, found when it is compiled
    REFRESH_MODE_FULL = "refresh_mode_full", "refresh_mode is FULL"
    AUTHOR_FORMATS = (
        "author_formats",
        "the query converts values to text, and its author's session had {formats}",
        "use to_char(), or define it in a session with the default formats",
    )
    AUTHOR_COPIES = (
        "author_copies",
        "the query is evaluated as {author}, for whom tables of other databases are copied each time",
    )
    MAX_DIFFERENTIAL_JOINS = (
        "max_differential_joins",
        "the query has {joins} joins, which exceeds max_differential_joins ({limit})",
        "raise the option max_differential_joins, or make a part of the query a stream table of its own",
    )
    STATEMENT_TOO_LONG = (
        "statement_too_long",
        "its changes take a statement of {length} characters, which PostgreSQL would analyse for seconds "
        "(refresh_mode DIFFERENTIAL uses it nevertheless)",
        "make a part of the query a stream table of its own",
    )
    POSTGRESQL_REFUSES = (
        "postgresql_refuses",
        "PostgreSQL does not accept the statement that would compute its changes (SQLSTATE {state}; the log of "
        "pgtrickle has its message)",
    )
    READ_AS_IS = "read_as_is", "{table}: {error}; so it is read as it is"
    NO_OPERATOR = (
        "no_operator",
        "to follow changes, values would have to be compared whose type has no operators in pg_catalog",
    )
    UNNAMED_OPERATOR = (
        "unnamed_operator",
        "the query compares by an operator that its text does not name, and cannot be written with it: {operators}",
    )
    ROW_OPERATOR = (
        "row_operator",
        "IN compares several columns at once, one of them by an operator that is not in pg_catalog",
    )
    IN_VIEW = "in_view", "view {view}: {why}"
    TYPE_COMPARED = (
        "type_compared",
        "values of type {type} would have to be compared to follow changes, and equal ones may be written differently",
    )
    NO_FIXPOINT = (
        "no_fixpoint",
        "{table} reads itself through other stream tables, and {why}: that has no least fixpoint, or none that can be "
        "found step by step",
        "move this part to a stream table outside the cycle, which reads the cycle or is read by it",
    )
    AUTHOR_SESSION = (
        "author_session",
        "its query is evaluated by a session of its author, which does not see what the steps have written",
    )
    MODE_IN_CYCLE = "mode_in_cycle", "its refresh_mode is {mode}"
    HIDDEN_COLUMN = "hidden_column", "its query reads the hidden column {column} of {relation}"
    USES_AGGREGATE = "uses_aggregate", "its query uses an aggregate or GROUP BY"
    USES_RECURSION = "uses_recursion", "its query uses WITH RECURSIVE"
    USES_EXCEPT = "uses_except", "its query uses EXCEPT"
    USES_REGIONS = (
        "uses_regions",
        "its query uses an aggregate, a window function, DISTINCT ON, LIMIT or a function that returns several rows",
    )
    USES_OUTER_JOIN = "uses_outer_join", "its query uses an outer join"
    USES_SUBQUERY_VALUE = "uses_subquery_value", "its query uses a subquery whose result is part of a row"
    USES_NESTED_SUBQUERY = (
        "uses_nested_subquery",
        "its query uses a subquery under NOT, OR or inside an expression",
    )
    USES_LOOSE_DISTINCT = (
        "uses_loose_distinct",
        "its query uses DISTINCT, UNION or INTERSECT over type {type}, whose equal values may look different",
    )

    # -- the same, found in its text
    NOT_TOKENS = "not_tokens", "the query could not be split into tokens: {error}"
    QUERY_ENDS = "query_ends", "the query ends where more was expected"
    EXPECTED = "expected", "expected {expected} but found {found} in the query's text"
    UNEXPECTED = "unexpected", "unexpected {found} in the query's text"
    UNBALANCED = "unbalanced", "unbalanced parentheses in the query's text"
    NO_DISTINCT_FROM = "no_distinct_from", "expected IS DISTINCT FROM in the query's text"
    CASE_WITHOUT_END = "case_without_end", "CASE without END in the query's text"
    USING_OUTSIDE = "using_outside", "USING outside of parentheses in the query's text"
    USING_WITHOUT_JOIN = "using_without_join", "USING without its join in the query's text"
    FROM_UNEXPECTED = "from_unexpected", "unexpected {found} in FROM"
    FROM_NOT_UNDERSTOOD = "from_not_understood", "{text} in FROM is not understood"
    FROM_UNKNOWN = "from_unknown", "{name} in FROM is neither a table nor a common table expression"
    FROM_WITHOUT_ALIAS = "from_without_alias", "a subquery in FROM has no alias"
    FILTER_WITHOUT_WHERE = "filter_without_where", "FILTER without WHERE"
    EMPTY_GROUPING_KEY = "empty_grouping_key", "an empty grouping key could not be read"
    SECURITY_BARRIER = (
        "security_barrier",
        "view {view} is a security barrier: its rows must be chosen before conditions of the query are evaluated",
        "make the query of the view a stream table, or read its tables",
    )
    VIEW_UNREADABLE = "view_unreadable", "the definition of view {view} cannot be read"
    TOO_MANY_ITEMS = (
        "too_many_items",
        "the query has more than {limit} items in FROM once its views and WITH items are written out",
    )
    RESERVED_COLUMN = "reserved_column", "{relation} has a column __pgt_w, a name that changes need for their weight"
    LOCKS_ROWS = "locks_rows", "the query locks rows"
    ONLY_OF_PARENT = (
        "only_of_parent",
        "ONLY {relation}: the table has children, whose changes share its buffer",
        _CHILDREN,
    )
    USING_ALIAS = "using_alias", "an alias for USING columns is not maintained from changes yet", _QUALIFY
    JOIN_ALIAS = "join_alias", "an alias for a whole join, of which a function does not list its columns", _QUALIFY
    RECURSIVE_CLAUSE = "recursive_clause", "{clause} of WITH RECURSIVE is not maintained from changes yet"
    GROUPING_SETS = "grouping_sets", "GROUPING SETS, CUBE and ROLLUP are not maintained from changes yet"
    SET_IN_DISTINCT_ON = (
        "set_in_distinct_on",
        "DISTINCT ON with a set-returning function in ORDER BY is not maintained from changes",
    )
    NOT_GROUPED = "not_grouped", "{expression} outside an aggregate could not be matched with a grouping key"
    QUALIFIED_FUNCTION = (
        "qualified_function",
        "a schema-qualified function over aggregates is not maintained from changes yet",
    )
    QUALIFIED_AGGREGATE = "qualified_aggregate", "an aggregate of another schema over other aggregates' groups"
    LIMIT_OVER_DISTINCT = "limit_over_distinct", "LIMIT over DISTINCT with an order that could not be matched"
    GROUPING_TYPE = (
        "grouping_type",
        "grouping by type {type} is not maintained from changes: its text does not decide equality",
    )
    LOOSE_TYPE = (
        "loose_type",
        "{expression} is of type {type}, whose equal values may be written differently: which of them is shown is not "
        "maintained from changes",
    )
    EQUAL_VALUES_SEEN = (
        "equal_values_seen",
        "an expression over {expression} of type {type} tells equal values apart, of which PostgreSQL returns any",
        _ONE_TEXT,
    )
    LOSSY_KEY = (
        "lossy_key",
        "several grouping keys that are floats, or numeric without a declared scale, have no state: no row may be "
        "written as all of them are shown",
        "cast the keys to numeric with a scale, for example numeric(20, 2)",
    )
    UNDETERMINED = (
        "undetermined",
        "{what}, below another operator, is not maintained from changes: evaluated twice it may give two results",
    )
    LIMIT_TIES = "limit_ties", "LIMIT whose ORDER BY does not decide between all rows", _DECIDE
    DISTINCT_ON_TIES = "distinct_on_ties", "DISTINCT ON whose ORDER BY does not decide between all rows", _DECIDE
    WINDOW_TIES = (
        "window_ties",
        "a window function that numbers or picks rows whose ORDER BY does not decide between all of them",
        _DECIDE,
    )
    FLOAT_SUM = "float_sum", "a sum of floats, which depends on the order of its rows", "use numeric instead of float"
    UNORDERED_AGGREGATE = (
        "unordered_aggregate",
        "{function}() without an ORDER BY that decides the order of its values",
        "write {function}(... ORDER BY the columns of a unique key)",
    )
    AGGREGATE_TIES = (
        "aggregate_ties",
        "{function}() whose ORDER BY does not decide the order of its values",
        "add the columns of a unique key to the ORDER BY of {function}()",
    )

    # -- why an engine evaluates a refresh
    ENGINE_NAMED = "engine_named", "the option engine is {engine}"
    ENGINE_SETTING = "engine_setting", "the setting engine is {engine}"
    ENGINE_UNSUPPORTED = "engine_unsupported", "Spark cannot evaluate the query: {construct}"
    ENGINE_AUTHOR = "engine_author", "the query runs with its author's privileges"
    ENGINE_CHAIN = "engine_chain", "the table is refreshed in one transaction with tables that it reads"
    ENGINE_NO_REPLICA = "engine_no_replica", "{source} has no replica"
    ENGINE_PUSHED_DOWN = "engine_pushed_down", "changes are evaluated by PostgreSQL"
    ENGINE_SMALL = (
        "engine_small",
        "PostgreSQL takes {postgres_ms} ms, less than the {spark_ms} ms that Spark needs at least",
    )
    ENGINE_COST = (
        "engine_cost",
        "cost of PostgreSQL {postgres_ms} ms ({postgres_basis}), of Spark {spark_ms} ms ({spark_basis}), with the time "
        "at the source weighted {weight}",
    )
    ENGINE_DELTA_COST = (
        "engine_delta_cost",
        "cost of {rows} changes on PostgreSQL {postgres_ms} ms, on Spark {spark_ms} ms, with the time at the source "
        "weighted {weight}",
    )
    ENGINE_TRIED = "engine_tried", "tried once: {why}"
    ENGINE_UNKNOWN_COST = "engine_unknown_cost", "the cost of {engine} is not known yet"
    ENGINE_OLD_COST = "engine_old_cost", "{times} refreshes ran on the other engine since {engine} was measured"
    ENGINE_VALUE = "engine_value", "Spark cannot represent a value exactly: {error}"

    # -- recorded before reasons had codes
    EARLIER = "earlier", "{text}"


# Why a result may change while no source does: such a table is refreshed by its schedule.
CHANGES_BY_ITSELF = frozenset(
    {ReasonCode.SESSION_VALUE, ReasonCode.STABLE_FUNCTION, ReasonCode.TEXT_READS_CLOCK, ReasonCode.JSON_READS_CLOCK}
)
