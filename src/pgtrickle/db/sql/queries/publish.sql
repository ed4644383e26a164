-- What the control plane says about itself. %(state)s jsonb text.
INSERT INTO pgtrickle.pgt_runtime (state)
VALUES (%(state)s::jsonb)
ON CONFLICT (one) DO UPDATE
SET state = EXCLUDED.state, updated_at = clock_timestamp()
