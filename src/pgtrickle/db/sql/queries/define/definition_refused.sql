-- Records why a definition was not accepted. %(schema)s, %(name)s: its stream table; %(asked_at)s: the request; %(message)s: why;
-- %(is_final)s: trying again does not help.
WITH refused AS (
    UPDATE pgtrickle.pgt_definitions AS d
    SET error_message = %(message)s, is_final = %(is_final)s
    WHERE d.pgt_schema = %(schema)s AND d.pgt_name = %(name)s AND d.created_at = %(asked_at)s
      AND d.error_message IS DISTINCT FROM %(message)s
    RETURNING format('%%I.%%I', d.pgt_schema, d.pgt_name) AS name
)
-- The notification has no reason: every role can listen to it, and the reason is for the role that asked.
SELECT pgtrickle._alert('definition_refused', r.name, 'pgtrickle.pending_definitions() has the reason') FROM refused AS r
