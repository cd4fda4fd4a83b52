"""The audit log's trigger can't be led astray by its caller, and the program needs no right to create temporary tables"""

from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

# As the owner of the function and with a fixed search path: a table or function of the caller's own is never taken for ours.
_AUDIT_CHAIN = """
CREATE OR REPLACE FUNCTION audit_log_chain() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp AS $$
DECLARE last record;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('archiver:audit_log', 0));
    EXECUTE format('SELECT id, hash FROM %I.audit_log ORDER BY id DESC LIMIT 1', TG_TABLE_SCHEMA) INTO last;
    NEW.id := coalesce(last.id, 0) + 1;
    NEW.at := clock_timestamp();
    NEW.previous_hash := coalesce(last.hash, '\\x'::bytea);
    NEW.hash := sha256(NEW.previous_hash || convert_to(jsonb_build_array(NEW.id,
        floor(extract(epoch FROM NEW.at) * 1000000)::bigint, NEW.actor, NEW.actor_id, NEW.action, NEW.object_kind,
        NEW.object_id, NEW.detail, NEW.client_address, NEW.request_id)::text, 'UTF8'));
    RETURN NEW;
END $$;
REVOKE ALL ON FUNCTION audit_log_chain() FROM PUBLIC;
CREATE OR REPLACE FUNCTION audit_log_refuse() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION 'audit_log is append-only' USING ERRCODE = 'insufficient_privilege';
END $$;
"""
# The only temporary table that the program uses, created for it by the owner of the tables.
_LISTED_KEYS = """
CREATE FUNCTION create_listed_keys() RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    CREATE TEMPORARY TABLE listed_keys (key text NOT NULL) ON COMMIT DROP;
    EXECUTE format('GRANT SELECT, INSERT ON pg_temp.listed_keys TO %I', session_user);
END $$;
CREATE FUNCTION analyze_listed_keys() RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    ANALYZE pg_temp.listed_keys;
END $$;
"""


def upgrade() -> None:
    op.execute(_AUDIT_CHAIN)
    op.execute(_LISTED_KEYS)
