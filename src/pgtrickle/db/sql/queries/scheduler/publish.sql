-- Publishes the state of the control plane. %(state)s, %(broker)s: jsonb texts.
INSERT INTO pgtrickle.pgt_runtime (state, broker)
VALUES (%(state)s::jsonb, %(broker)s::jsonb)
ON CONFLICT (one) DO UPDATE
SET state = EXCLUDED.state, broker = EXCLUDED.broker, updated_at = clock_timestamp()
