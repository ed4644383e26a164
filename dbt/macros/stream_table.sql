{# The materialization `stream_table`: dbt keeps the definition, pgtrickle the rows. #}

{% materialization stream_table, adapter='postgres' %}
  {%- set relation = this.incorporate(type='table') -%}
  {%- set existing = load_cached_relation(this) -%}
  {%- set is_stream_table = pgtrickle.is_stream_table(relation) -%}
  {%- set rebuild = should_full_refresh() -%}
  {%- set grant_config = config.get('grants') -%}

  {{ run_hooks(pre_hooks, inside_transaction=False) }}
  {{ run_hooks(pre_hooks, inside_transaction=True) }}

  {%- if is_stream_table and rebuild -%}
    {%- do pgtrickle.drop_stream_table(relation, cascade=true) -%}
    {%- set is_stream_table = false -%}
  {%- elif existing is not none and not is_stream_table -%}
    {#- A table, view or materialized view of the same name. Readers find either the old or the new relation: this is one transaction. -#}
    {%- do log("Replacing the " ~ existing.type ~ " " ~ existing ~ " by a stream table") -%}
    {%- do adapter.drop_relation(existing) -%}
  {%- endif -%}

  {%- call statement('main') -%}
    {{ pgtrickle.definition(relation, sql) }}
  {%- endcall -%}

  {%- if not is_stream_table or pgtrickle.indexes_are_missing(relation) -%}
    {%- do create_indexes(relation) -%}
  {%- endif -%}
  {%- do apply_grants(relation, grant_config, should_revoke=should_revoke(existing, full_refresh_mode=false)) -%}
  {%- do persist_docs(relation, model) -%}

  {{ run_hooks(post_hooks, inside_transaction=True) }}
  {%- do adapter.commit() -%}
  {%- if config.get('wait', true) -%}
    {%- do pgtrickle.wait_until_refreshed(relation, config.get('wait_seconds', 300)) -%}
    {%- if pgtrickle.indexes_are_missing(relation) -%}
      {#- The refresh brought other columns. -#}
      {%- call statement('begin') -%} SELECT 1 {%- endcall -%}
      {%- do create_indexes(relation) -%}
      {%- do adapter.commit() -%}
    {%- endif -%}
  {%- endif -%}
  {{ run_hooks(post_hooks, inside_transaction=False) }}

  {{ return({'relations': [relation]}) }}
{% endmaterialization %}


{# The statement that creates the stream table, or gives it what has changed. The same text and options again keep its content. #}
{% macro definition(relation, sql) -%}
  {%- set arguments = [
      pgtrickle.literal(pgtrickle.name_of(relation)),
      pgtrickle.literal(sql),
      "schedule => " ~ pgtrickle.literal(config.get('schedule', 'calculated')),
      "refresh_mode => " ~ pgtrickle.literal((config.get('mode', 'AUTO')) | upper),
  ] -%}
  {%- for option in ('engine', 'diamond_consistency', 'diamond_schedule_policy', 'cdc_mode', 'partition_by') -%}
    {%- if config.get(option) is not none -%}
      {%- do arguments.append(option ~ " => " ~ pgtrickle.literal(config.get(option))) -%}
    {%- endif -%}
  {%- endfor -%}
  {%- for option in ('append_only', 'pooler_compatibility_mode', 'max_differential_joins', 'max_delta_fraction') -%}
    {%- if config.get(option) is not none -%}
      {%- do arguments.append(option ~ " => " ~ config.get(option)) -%}
    {%- endif -%}
  {%- endfor -%}
  SELECT pgtrickle.create_or_replace_stream_table({{ arguments | join(', ') }})
  {%- if config.get('tier') is not none %};
  SELECT pgtrickle.alter_stream_table({{ arguments[0] }}, tier => {{ pgtrickle.literal(config.get('tier')) }})
  {%- endif -%}
{%- endmacro %}


{# A string as SQL writes it. #}
{% macro literal(text) -%}
  {{ return("'" ~ (text | string | replace("'", "''")) ~ "'") }}
{%- endmacro %}

{# The name as functions of pgtrickle take it: quoted, with its schema. #}
{% macro name_of(relation) -%}
  {{ return(relation.include(database=false).render()) }}
{%- endmacro %}

{% macro is_stream_table(relation) -%}
  {%- if execute and run_query("SELECT to_regclass('pgtrickle.stream_tables_info') IS NOT NULL").rows[0][0] -%}
    {%- set found = run_query(
        "SELECT count(*) FROM pgtrickle.stream_tables_info WHERE pgt_schema = " ~ pgtrickle.literal(relation.schema)
        ~ " AND pgt_name = " ~ pgtrickle.literal(relation.identifier)) -%}
    {{ return(found.rows[0][0] > 0) }}
  {%- endif -%}
  {{ return(false) }}
{%- endmacro %}

{# A change of the columns takes the indexes along. dbt's have names of their own. #}
{% macro indexes_are_missing(relation) -%}
  {%- set wanted = config.get('indexes', []) | length -%}
  {%- set found = run_query(
      "SELECT count(*) FROM pg_catalog.pg_index AS i JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid WHERE i.indrelid = "
      ~ pgtrickle.literal(pgtrickle.name_of(relation)) ~ "::regclass AND c.relname ~ '^[0-9a-f]{32}$'") -%}
  {{ return(found.rows[0][0] < wanted) }}
{%- endmacro %}

{% macro drop_stream_table(relation, cascade=false) -%}
  {%- call statement('drop_stream_table') -%}
    SELECT pgtrickle.drop_stream_table({{ pgtrickle.literal(pgtrickle.name_of(relation)) }}, cascade => {{ cascade }})
  {%- endcall -%}
  {%- do log("Dropped the stream table " ~ relation) -%}
{%- endmacro %}

{# Requests a refresh and waits for it, so that what dbt builds next, and its tests, read current rows. #}
{% macro wait_until_refreshed(relation, seconds) -%}
  {%- set name = pgtrickle.literal(pgtrickle.name_of(relation)) -%}
  {%- call statement('request') -%}
    SELECT pgtrickle.refresh_stream_table({{ name }})
  {%- endcall -%}
  {%- do adapter.commit() -%}
  {%- set state = namespace(done=false) -%}
  {%- for _ in range((seconds * 5) | int) -%}
    {%- if not state.done -%}
      {%- set row = run_query(
          "SELECT t.refresh_done_at >= t.refresh_requested_at, t.status, i.last_error_message, s.scheduler_status "
          ~ "FROM pg_catalog.pg_sleep(0.2), pgtrickle.health_summary() AS s, pgtrickle.pgt_stream_tables AS t "
          ~ "JOIN pgtrickle.stream_tables_info AS i ON i.pgt_id = t.pgt_id WHERE t.pgt_relid = " ~ name ~ "::regclass").rows[0] -%}
      {%- if row[1] in ('ERROR', 'SUSPENDED') -%}
        {%- do exceptions.raise_compiler_error("The stream table " ~ relation ~ " is not refreshed, status " ~ row[1] ~ ": " ~ (row[2] or 'no message')) -%}
      {%- elif row[3] != 'ACTIVE' -%}
        {%- do exceptions.raise_compiler_error("The stream table " ~ relation ~ " is defined, but no control plane refreshes it: start `pgtrickle run`, or set `wait: false`") -%}
      {%- endif -%}
      {%- set state.done = row[0] -%}
    {%- endif -%}
  {%- endfor -%}
  {%- if not state.done -%}
    {%- do exceptions.raise_compiler_error("The stream table " ~ relation ~ " was not refreshed within " ~ seconds ~ " seconds") -%}
  {%- endif -%}
{%- endmacro %}
