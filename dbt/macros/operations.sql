{# For `dbt run-operation`. #}

{# Stream tables of this project's schemas that no model defines any more: removed or renamed models. Lists them; drops them with `dry_run: false`. #}
{% macro drop_removed_stream_tables(dry_run=true) -%}
  {%- set models, schemas = [], [] -%}
  {%- for node in graph.nodes.values() if node.resource_type == 'model' -%}
    {%- do schemas.append(pgtrickle.literal(node.schema)) -%}
    {%- if node.config.materialized == 'stream_table' -%}
      {%- do models.append(node.schema ~ '.' ~ (node.alias or node.name)) -%}
    {%- endif -%}
  {%- endfor -%}
  {%- if schemas -%}
    {%- set found = run_query(
        "SELECT pgt_schema, pgt_name FROM pgtrickle.stream_tables_info WHERE pgt_schema IN (" ~ schemas | unique | join(', ')
        ~ ") AND created_by = current_user ORDER BY pgt_id DESC") -%}
    {%- for row in found.rows if (row[0] ~ '.' ~ row[1]) not in models -%}
      {%- set relation = api.Relation.create(schema=row[0], identifier=row[1], type='table') -%}
      {%- if dry_run -%}
        {%- do log("No model defines the stream table " ~ relation, info=true) -%}
      {%- else -%}
        {%- do pgtrickle.drop_stream_table(relation) -%}
        {%- do adapter.commit() -%}
        {%- do log("Dropped the stream table " ~ relation, info=true) -%}
      {%- endif -%}
    {%- endfor -%}
  {%- endif -%}
{%- endmacro %}
