{# What dbt does with relations of any kind, for those that are stream tables. A project uses these after `dispatch` in its dbt_project.yml. #}

{% macro postgres__drop_relation(relation) -%}
  {%- if relation.type == 'table' and pgtrickle.is_stream_table(relation) -%}
    {%- do pgtrickle.drop_stream_table(relation, cascade=true) -%}
  {%- else -%}
    {{ dbt.default__drop_relation(relation) }}
  {%- endif -%}
{%- endmacro %}

{# dbt puts a new relation in the place of an old one: it renames the old one and drops it in the same transaction. A stream table is dropped at once. #}
{% macro postgres__rename_relation(from_relation, to_relation) -%}
  {%- if from_relation.type == 'table' and pgtrickle.is_stream_table(from_relation) -%}
    {%- do pgtrickle.drop_stream_table(from_relation, cascade=true) -%}
  {%- else -%}
    {{ dbt.default__rename_relation(from_relation, to_relation) }}
  {%- endif -%}
{%- endmacro %}
