-- Publishes the state of the control plane. %(state)s, %(broker)s: jsonb texts. %(keeps_session)s: whether this session is ours alone; what
-- another one has published is not shown.
INSERT INTO pgtrickle.pgt_runtime (state, broker)
VALUES (
    %(state)s::jsonb || jsonb_build_object('pid', CASE WHEN %(keeps_session)s::bool THEN pg_backend_pid() END), %(broker)s::jsonb
)
ON CONFLICT (one) DO UPDATE
SET state = EXCLUDED.state, broker = EXCLUDED.broker, updated_at = clock_timestamp()
