-- After pgtrickle is there. {service}: the role that owns it.
GRANT team TO {service};
GRANT USAGE ON SCHEMA pgtrickle TO alice;
GRANT USAGE, CREATE ON SCHEMA reports TO {service};
GRANT USAGE ON SCHEMA reports TO PUBLIC;
CREATE SERVER far FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '127.0.0.1', port '{port}', dbname '{database}');
GRANT USAGE ON FOREIGN SERVER far TO PUBLIC;
CREATE USER MAPPING FOR {service} SERVER far OPTIONS (user 'ghost', password 'WORD-mapping');
