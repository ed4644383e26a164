-- A definition was not accepted. %(schema)s, %(name)s: its stream table; %(message)s: why; %(is_final)s: trying again does not help.
WITH refused AS (
    UPDATE pgtrickle.pgt_definitions AS d
    SET error_message = %(message)s, is_final = %(is_final)s
    WHERE d.pgt_schema = %(schema)s AND d.pgt_name = %(name)s AND d.error_message IS DISTINCT FROM %(message)s
    RETURNING format('%%I.%%I', d.pgt_schema, d.pgt_name) AS name
)
SELECT pgtrickle._alert('definition_refused', r.name, %(message)s) FROM refused AS r
