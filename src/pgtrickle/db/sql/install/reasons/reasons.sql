-- Reasons are codes with parameters; what is stored as text beside them is rendered from them.
-- Written by `make golden` from model/reason_codes.py: do not edit.
CREATE OR REPLACE FUNCTION pgtrickle._reason_template(code text) RETURNS text
LANGUAGE sql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE code
        WHEN 'first_load' THEN 'first load'
        WHEN 'reinit_requested' THEN 'reinitialization was requested'
        WHEN 'repair_requested' THEN 'repair was requested'
        WHEN 'query_altered' THEN 'the query was altered'
        WHEN 'definition_changed' THEN 'the definition or a source changed'
        WHEN 'cycle_changed' THEN 'the table joined or left a cycle of stream tables'
        WHEN 'refresh_failed' THEN '{error}'
        WHEN 'no_frontier' THEN 'the table has no frontier'
        WHEN 'other_database' THEN 'the frontier belongs to another database or server (restored or copied)'
        WHEN 'xids_went_back' THEN 'transaction ids went backwards (restored from a backup)'
        WHEN 'time_zone_changed' THEN 'TimeZone changed from {old} to {new}'
        WHEN 'source_changed' THEN 'a source''s columns, partitions or capture triggers changed'
        WHEN 'character_identity' THEN 'pgtrickle was upgraded to a version that identifies rows by values of type character with their '
            'blanks'
        WHEN 'function_replaced' THEN 'a function that the query calls was replaced'
        WHEN 'mirror_unknown' THEN 'the origin does not know this mirror any more (detached, or restored from a backup)'
        WHEN 'origin_went_back' THEN 'the origin was restored to a state before what this mirror has read'
        WHEN 'origin_replaced' THEN 'the database of the origin was recreated or restored from a dump'
        WHEN 'source_created_again' THEN '{table} was dropped and created again'
        WHEN 'mirror_behind' THEN 'the origin has recorded a later position of this mirror (this database was restored from a backup)'
        WHEN 'mirror_netted' THEN 'the origin has netted changes across the position of this mirror, which it did not know in time'
        WHEN 'source_truncated' THEN 'a source was truncated, or rows of it were moved to another partition by MERGE'
        WHEN 'max_buffer_rows' THEN '{rows} changes exceed max_buffer_rows ({limit})'
        WHEN 'max_change_ratio' THEN '{rows} changes in {source_rows} source rows exceed differential_max_change_ratio ({limit})'
        WHEN 'max_delta_fraction' THEN '{rows} changes in {source_rows} source rows exceed max_delta_fraction ({limit})'
        WHEN 'slower_than_full' THEN '{rows} changes take {least_ms} ms at least, the last full refresh took {full_ms}'
        WHEN 'delta_failed' THEN '{error}'
        WHEN 'no_prediction' THEN '{rows} changes, no prediction: {why}'
        WHEN 'no_full_known' THEN 'no full refresh is known'
        WHEN 'created_recently' THEN 'created less than {seconds} s ago'
        WHEN 'too_few_samples' THEN '{known} of {needed} refreshes are known'
        WHEN 'none_alike' THEN 'none of {known} differential refreshes had a similar number of changes'
        WHEN 'predicted' THEN '{rows} changes: differential about {differential_ms} ms ({differential_basis}), full about {full_ms}'
            ' ms ({full_basis})'
        WHEN 'tried_unknown' THEN 'tried, {known} of {needed} like it are known; {prediction}'
        WHEN 'tried_differential' THEN 'tried again after {times} full; {prediction}'
        WHEN 'tried_full' THEN 'tried after {times} differential; {prediction}'
        WHEN 'one_sample' THEN 'by one'
        WHEN 'median' THEN 'median of {number}'
        WHEN 'median_alike' THEN 'median of {number} like it'
        WHEN 'line' THEN 'line through {number}: {fixed_ms} + {per_row_ms} per change'
        WHEN 'fewer_changes' THEN 'as much as {number} with fewer changes'
        WHEN 'cycle_member_loaded' THEN 'of the cycle, {table} is computed from nothing: {why}'
        WHEN 'cycle_member_full' THEN 'of the cycle, {table} has refresh_mode FULL'
        WHEN 'cycle_instants' THEN 'the tables of the cycle have different frontiers'
        WHEN 'cycle_written' THEN 'a table of the cycle was written to from outside'
        WHEN 'cycle_rows_deleted' THEN 'rows were deleted from a source: the cycle is computed from nothing'
        WHEN 'waits_for_stream_table' THEN 'waits for stream table {table}: {status}'
        WHEN 'system_catalog' THEN '{relation} is a system catalog, whose changes cannot be captured'
        WHEN 'materialized_view' THEN '{relation} is a materialized view, whose changes cannot be captured'
        WHEN 'foreign_table' THEN '{relation} is a foreign table, whose changes cannot be captured'
        WHEN 'sequence' THEN '{relation} is a sequence, whose changes cannot be captured'
        WHEN 'unlogged_table' THEN '{relation} is an unlogged table, whose changes cannot be captured'
        WHEN 'unlogged_child' THEN '{child} of {relation} is unlogged, whose changes cannot be captured'
        WHEN 'foreign_child' THEN '{child} of {relation} is a foreign table, whose changes cannot be captured'
        WHEN 'child_not_table' THEN '{child} of {relation} is not a plain table, whose changes cannot be captured'
        WHEN 'no_table' THEN 'the query reads no table'
        WHEN 'virtual_column' THEN 'column {column} of {relation} is a virtual generated column, which triggers do not see'
        WHEN 'loose_column' THEN 'column {column} of {relation} is compared by a nondeterministic collation'
        WHEN 'catalog_type' THEN 'column {column} of {relation} is of type {type}, whose text depends on the catalog'
        WHEN 'loose_collation' THEN 'the query uses the nondeterministic collation {collation}'
        WHEN 'loose_comparison' THEN 'the query compares by the nondeterministic collation {collation}'
        WHEN 'tablesample' THEN 'the query uses TABLESAMPLE of {relation}'
        WHEN 'whole_row' THEN 'the query uses a whole row of {relation} as a value'
        WHEN 'system_column' THEN 'the query uses the system column {column} of {relation}'
        WHEN 'equal_grouping_keys' THEN 'the query selects the same expression twice and groups by each of them in GROUPING SETS, CUBE or '
            'ROLLUP'
        WHEN 'session_value' THEN 'the query uses {function}, whose result may change while no source does'
        WHEN 'xml_expression' THEN 'the query uses the XML expression {function}'
        WHEN 'from_only' THEN 'the query uses FROM ONLY {relation}, which has children'
        WHEN 'stable_function' THEN 'the query calls the stable function {function}, whose result may change while no source does'
        WHEN 'text_reads_clock' THEN 'the query casts text to {type}, which reads the clock for values such as ''now'''
        WHEN 'json_reads_clock' THEN 'the query reads {type} out of JSON, for which values such as ''now'' read the clock'
        WHEN 'json_path' THEN 'the query uses a JSON path that is computed or reads times, which depend on the time zone'
        WHEN 'json_default' THEN 'the query uses JSON_VALUE with a default, or JSON_EXISTS with a strict path, whose result for NULL '
            'depends on the row before'
        WHEN 'refresh_mode_full' THEN 'refresh_mode is FULL'
        WHEN 'author_formats' THEN 'the query converts values to text, and its author''s session had {formats}'
        WHEN 'author_copies' THEN 'the query is evaluated as {author}, for whom tables of other databases are copied each time'
        WHEN 'max_differential_joins' THEN 'the query has {joins} joins, which exceeds max_differential_joins ({limit})'
        WHEN 'statement_too_long' THEN 'its changes take a statement of {length} characters, which PostgreSQL would analyse for seconds '
            '(refresh_mode DIFFERENTIAL uses it nevertheless)'
        WHEN 'postgresql_refuses' THEN 'PostgreSQL does not accept the statement that would compute its changes (SQLSTATE {state}; the log '
            'of pgtrickle has its message)'
        WHEN 'read_as_is' THEN '{table}: {error}; so it is read as it is'
        WHEN 'no_operator' THEN 'to follow changes, values would have to be compared whose type has no operators in pg_catalog'
        WHEN 'unnamed_operator' THEN 'the query compares by an operator that its text does not name, and cannot be written with it: '
            '{operators}'
        WHEN 'row_operator' THEN 'IN compares several columns at once, one of them by an operator that is not in pg_catalog'
        WHEN 'in_view' THEN 'view {view}: {why}'
        WHEN 'type_compared' THEN 'values of type {type} would have to be compared to follow changes, and equal ones may be written '
            'differently'
        WHEN 'no_fixpoint' THEN '{table} reads itself through other stream tables, and {why}: that has no least fixpoint, or none '
            'that can be found step by step'
        WHEN 'author_session' THEN 'its query is evaluated by a session of its author, which does not see what the steps have written'
        WHEN 'mode_in_cycle' THEN 'its refresh_mode is {mode}'
        WHEN 'hidden_column' THEN 'its query reads the hidden column {column} of {relation}'
        WHEN 'uses_aggregate' THEN 'its query uses an aggregate or GROUP BY'
        WHEN 'uses_recursion' THEN 'its query uses WITH RECURSIVE'
        WHEN 'uses_except' THEN 'its query uses EXCEPT'
        WHEN 'uses_regions' THEN 'its query uses an aggregate, a window function, DISTINCT ON, LIMIT or a function that returns '
            'several rows'
        WHEN 'uses_outer_join' THEN 'its query uses an outer join'
        WHEN 'uses_subquery_value' THEN 'its query uses a subquery whose result is part of a row'
        WHEN 'uses_nested_subquery' THEN 'its query uses a subquery under NOT, OR or inside an expression'
        WHEN 'uses_loose_distinct' THEN 'its query uses DISTINCT, UNION or INTERSECT over type {type}, whose equal values may look different'
        WHEN 'not_tokens' THEN 'the query could not be split into tokens: {error}'
        WHEN 'query_ends' THEN 'the query ends where more was expected'
        WHEN 'expected' THEN 'expected {expected} but found {found} in the query''s text'
        WHEN 'unexpected' THEN 'unexpected {found} in the query''s text'
        WHEN 'unbalanced' THEN 'unbalanced parentheses in the query''s text'
        WHEN 'no_distinct_from' THEN 'expected IS DISTINCT FROM in the query''s text'
        WHEN 'case_without_end' THEN 'CASE without END in the query''s text'
        WHEN 'using_outside' THEN 'USING outside of parentheses in the query''s text'
        WHEN 'using_without_join' THEN 'USING without its join in the query''s text'
        WHEN 'from_unexpected' THEN 'unexpected {found} in FROM'
        WHEN 'from_not_understood' THEN '{text} in FROM is not understood'
        WHEN 'from_unknown' THEN '{name} in FROM is neither a table nor a common table expression'
        WHEN 'from_without_alias' THEN 'a subquery in FROM has no alias'
        WHEN 'filter_without_where' THEN 'FILTER without WHERE'
        WHEN 'empty_grouping_key' THEN 'an empty grouping key could not be read'
        WHEN 'security_barrier' THEN 'view {view} is a security barrier: its rows must be chosen before conditions of the query are '
            'evaluated'
        WHEN 'view_unreadable' THEN 'the definition of view {view} cannot be read'
        WHEN 'too_many_items' THEN 'the query has more than {limit} items in FROM once its views and WITH items are written out'
        WHEN 'reserved_column' THEN '{relation} has a column __pgt_w, a name that changes need for their weight'
        WHEN 'locks_rows' THEN 'the query locks rows'
        WHEN 'only_of_parent' THEN 'ONLY {relation}: the table has children, whose changes share its buffer'
        WHEN 'using_alias' THEN 'an alias for USING columns is not maintained from changes yet'
        WHEN 'join_alias' THEN 'an alias for a whole join, of which a function does not list its columns'
        WHEN 'recursive_clause' THEN '{clause} of WITH RECURSIVE is not maintained from changes yet'
        WHEN 'grouping_sets' THEN 'GROUPING SETS, CUBE and ROLLUP are not maintained from changes yet'
        WHEN 'set_in_distinct_on' THEN 'DISTINCT ON with a set-returning function in ORDER BY is not maintained from changes'
        WHEN 'not_grouped' THEN '{expression} outside an aggregate could not be matched with a grouping key'
        WHEN 'qualified_function' THEN 'a schema-qualified function over aggregates is not maintained from changes yet'
        WHEN 'qualified_aggregate' THEN 'an aggregate of another schema over other aggregates'' groups'
        WHEN 'limit_over_distinct' THEN 'LIMIT over DISTINCT with an order that could not be matched'
        WHEN 'grouping_type' THEN 'grouping by type {type} is not maintained from changes: its text does not decide equality'
        WHEN 'loose_type' THEN '{expression} is of type {type}, whose equal values may be written differently: which of them is '
            'shown is not maintained from changes'
        WHEN 'equal_values_seen' THEN 'an expression over {expression} of type {type} tells equal values apart, of which PostgreSQL returns'
            ' any'
        WHEN 'lossy_key' THEN 'several grouping keys that are floats, or numeric without a declared scale, have no state: no row '
            'may be written as all of them are shown'
        WHEN 'undetermined' THEN '{what}, below another operator, is not maintained from changes: evaluated twice it may give two '
            'results'
        WHEN 'limit_ties' THEN 'LIMIT whose ORDER BY does not decide between all rows'
        WHEN 'distinct_on_ties' THEN 'DISTINCT ON whose ORDER BY does not decide between all rows'
        WHEN 'window_ties' THEN 'a window function that numbers or picks rows whose ORDER BY does not decide between all of them'
        WHEN 'float_sum' THEN 'a sum of floats, which depends on the order of its rows'
        WHEN 'unordered_aggregate' THEN '{function}() without an ORDER BY that decides the order of its values'
        WHEN 'aggregate_ties' THEN '{function}() whose ORDER BY does not decide the order of its values'
        WHEN 'engine_named' THEN 'the option engine is {engine}'
        WHEN 'engine_setting' THEN 'the setting engine is {engine}'
        WHEN 'engine_unsupported' THEN 'Spark cannot evaluate the query: {construct}'
        WHEN 'engine_author' THEN 'the query runs with its author''s privileges'
        WHEN 'engine_chain' THEN 'the table is refreshed in one transaction with tables that it reads'
        WHEN 'engine_no_replica' THEN '{source} has no replica'
        WHEN 'engine_pushed_down' THEN 'changes are evaluated by PostgreSQL'
        WHEN 'engine_small' THEN 'PostgreSQL takes {postgres_ms} ms, less than the {spark_ms} ms that Spark needs at least'
        WHEN 'engine_cost' THEN 'cost of PostgreSQL {postgres_ms} ms ({postgres_basis}), of Spark {spark_ms} ms ({spark_basis}), with'
            ' the time at the source weighted {weight}'
        WHEN 'engine_delta_cost' THEN 'cost of {rows} changes on PostgreSQL {postgres_ms} ms, on Spark {spark_ms} ms, with the time at the '
            'source weighted {weight}'
        WHEN 'engine_tried' THEN 'tried once: {why}'
        WHEN 'engine_unknown_cost' THEN 'the cost of {engine} is not known yet'
        WHEN 'engine_old_cost' THEN '{times} refreshes ran on the other engine since {engine} was measured'
        WHEN 'engine_value' THEN 'Spark cannot represent a value exactly: {error}'
        WHEN 'earlier' THEN '{text}'
        ELSE code
    END
$$;
COMMENT ON FUNCTION pgtrickle._reason_template(text) IS
'Internal. The text of a reason, with its parameters in braces.';

CREATE OR REPLACE FUNCTION pgtrickle._hint_template(code text) RETURNS text
LANGUAGE sql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE code
        WHEN 'materialized_view' THEN 'read what {relation} reads, or make it a stream table'
        WHEN 'foreign_table' THEN 'where pgtrickle serves its database, name the table itself: database.schema.table'
        WHEN 'unlogged_table' THEN 'ALTER TABLE {relation} SET LOGGED'
        WHEN 'unlogged_child' THEN 'ALTER TABLE {child} SET LOGGED'
        WHEN 'virtual_column' THEN 'make it a stored column, or write its expression in the query'
        WHEN 'tablesample' THEN 'choose rows of {relation} by a condition on their key'
        WHEN 'whole_row' THEN 'list the columns of {relation}, for example with jsonb_build_object()'
        WHEN 'system_column' THEN 'use other columns of {relation}, such as its key'
        WHEN 'equal_grouping_keys' THEN 'write one of the two expressions differently'
        WHEN 'session_value' THEN 'leave it out here, and add it in a view over the stream table'
        WHEN 'xml_expression' THEN 'leave it out here, and add it in a view over the stream table'
        WHEN 'from_only' THEN 'give the tables a column that tells their rows apart, and choose by it from {relation} without ONLY'
        WHEN 'stable_function' THEN 'call it in a view over the stream table instead, or declare a function of your own IMMUTABLE if it '
            'is'
        WHEN 'text_reads_clock' THEN 'use to_date() or to_timestamp() with a format'
        WHEN 'json_reads_clock' THEN 'return text, and convert it by to_date() or to_timestamp() with a format'
        WHEN 'author_formats' THEN 'use to_char(), or define it in a session with the default formats'
        WHEN 'max_differential_joins' THEN 'raise the option max_differential_joins, or make a part of the query a stream table of its own'
        WHEN 'statement_too_long' THEN 'make a part of the query a stream table of its own'
        WHEN 'no_fixpoint' THEN 'move this part to a stream table outside the cycle, which reads the cycle or is read by it'
        WHEN 'security_barrier' THEN 'make the query of the view a stream table, or read its tables'
        WHEN 'only_of_parent' THEN 'give the tables a column that tells their rows apart, and choose by it from {relation} without ONLY'
        WHEN 'using_alias' THEN 'leave the alias out, and qualify the columns with their tables'
        WHEN 'join_alias' THEN 'leave the alias out, and qualify the columns with their tables'
        WHEN 'equal_values_seen' THEN 'give equal values one text before, as in SELECT DISTINCT a::numeric(12, 2), or select the value '
            'itself'
        WHEN 'lossy_key' THEN 'cast the keys to numeric with a scale, for example numeric(20, 2)'
        WHEN 'limit_ties' THEN 'add the columns of a unique key to the ORDER BY, or make this part a stream table of its own'
        WHEN 'distinct_on_ties' THEN 'add the columns of a unique key to the ORDER BY, or make this part a stream table of its own'
        WHEN 'window_ties' THEN 'add the columns of a unique key to the ORDER BY, or make this part a stream table of its own'
        WHEN 'float_sum' THEN 'use numeric instead of float'
        WHEN 'unordered_aggregate' THEN 'write {function}(... ORDER BY the columns of a unique key)'
        WHEN 'aggregate_ties' THEN 'add the columns of a unique key to the ORDER BY of {function}()'
    END
$$;
COMMENT ON FUNCTION pgtrickle._hint_template(text) IS
'Internal. What the author of a query can do about a reason, with its parameters in braces; NULL: nothing general.';

CREATE OR REPLACE FUNCTION pgtrickle._reason(code text, VARIADIC params text[] DEFAULT '{}') RETURNS jsonb
LANGUAGE sql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp AS $$
    SELECT jsonb_build_object('code', code, 'params', jsonb_object(params))
$$;
COMMENT ON FUNCTION pgtrickle._reason(text, text[]) IS
'Internal. A reason: its code, then names and values of its parameters by turns.';

CREATE OR REPLACE FUNCTION pgtrickle._filled(template text, params jsonb) RETURNS text
LANGUAGE sql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp AS $$
    -- Outside of braces, inside, outside, ...: one pass, so that braces in a value are only text.
    SELECT string_agg(CASE WHEN p.i % 2 = 1 THEN p.part
                           WHEN jsonb_typeof(params -> p.part) = 'object' THEN pgtrickle._reason_text(params -> p.part)
                           ELSE coalesce(params ->> p.part, '{' || p.part || '}') END, '' ORDER BY p.i)
    FROM regexp_split_to_table(template, '[{}]') WITH ORDINALITY AS p(part, i)
$$;
COMMENT ON FUNCTION pgtrickle._filled(text, jsonb) IS 'Internal. A template with the values of its parameters.';

CREATE OR REPLACE FUNCTION pgtrickle._reason_text(code text, params jsonb) RETURNS text
LANGUAGE sql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp AS $$
    SELECT pgtrickle._filled(pgtrickle._reason_template(code), params)
$$;
COMMENT ON FUNCTION pgtrickle._reason_text(text, jsonb) IS
'Internal. The text of a reason, given by its code and its parameters.';

CREATE OR REPLACE FUNCTION pgtrickle._reason_text(reason jsonb) RETURNS text
LANGUAGE sql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp AS $$
    SELECT pgtrickle._reason_text(reason ->> 'code', reason -> 'params')
$$;
COMMENT ON FUNCTION pgtrickle._reason_text(jsonb) IS 'Internal. The same for a reason as _reason() makes it.';

CREATE OR REPLACE FUNCTION pgtrickle._reason_hint(code text, params jsonb) RETURNS text
LANGUAGE sql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(
        pgtrickle._filled(pgtrickle._hint_template(code), params),
        (SELECT h.hint
         FROM jsonb_each(params) AS p
         CROSS JOIN LATERAL (SELECT pgtrickle._reason_hint(p.value ->> 'code', p.value -> 'params')) AS h(hint)
         WHERE jsonb_typeof(p.value) = 'object' AND h.hint IS NOT NULL
         ORDER BY p.key COLLATE "C"
         LIMIT 1))
$$;
COMMENT ON FUNCTION pgtrickle._reason_hint(text, jsonb) IS
'Internal. What the author of a query can do about a reason: a hint of its code, or of a reason in it; else NULL.';
