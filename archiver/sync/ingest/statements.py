"""The bulk statements of one batch.

Everything is sorted by key, and all batches run the statements in the same order, so that nothing deadlocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import Connection

from archiver.db.sql import query, run
from archiver.store.backend import SealedPack, Written
from archiver.store.errors import StoreUnavailable
from archiver.store.writer import pack_name

ORIGIN = """
    SELECT s.id AS source_id, s.kind AS source_kind, s.name AS source_name, m.id AS mailbox_id, m.address, m.display_name,
        m.provider_id
    FROM mailboxes m JOIN ingestion_sources s ON s.id = m.source_id WHERE m.id = :mailbox_id"""

FENCE = """
    SELECT 1 FROM sync_session_mailboxes
    WHERE session_id = :session_id AND mailbox_id = :mailbox_id AND slice = :slice AND state = 'running'
    FOR NO KEY UPDATE"""

# In place of a foreign key: keeps the mailbox from being deleted until this batch is committed.
HOLD_MAILBOX = "SELECT 1 FROM mailboxes WHERE id = :mailbox_id FOR KEY SHARE"

# Taken once the locks are held, so that a transaction that waits for them gets a later number.
NEXT_STAMP = "SELECT generation, nextval('journal_numbers') AS number FROM archive_state"

# One probe of the unique index per key, even while the planner has no statistics about the table.
FIND_COPIES = """
    SELECT c.* FROM json_array_elements_text(:keys::json) AS k(key), LATERAL (
        SELECT provider_key, message_id, folder, flags, labels, gone_at, deleted_at, deleted_sha256 FROM message_copies
        WHERE mailbox_id = :mailbox_id AND provider_key = k.key LIMIT 1) AS c"""

# Keeps the messages from being deleted until this batch is committed.
FIND_MESSAGES = """
    SELECT sha256 FROM messages
    WHERE sha256 = ANY(ARRAY(SELECT decode(h, 'hex') FROM unnest(string_to_array(:hashes, ',')) AS h))
    ORDER BY sha256 FOR KEY SHARE"""

# The same for a batch that also changes copies: messages are locked before copies, all in one order.
FIND_MESSAGES_AND_CHANGED = """
    SELECT sha256 FROM messages WHERE id = ANY(
        ARRAY(SELECT c.message_id FROM json_array_elements_text(:keys::json) AS k(key), LATERAL (
                SELECT message_id FROM message_copies
                WHERE mailbox_id = :mailbox_id AND provider_key = k.key LIMIT 1) AS c
            UNION SELECT id FROM messages
                WHERE sha256 = ANY(ARRAY(SELECT decode(h, 'hex') FROM unnest(string_to_array(:hashes, ',')) AS h))))
    ORDER BY sha256 FOR KEY SHARE"""

# After FIND_MESSAGES: a transaction that was deleting one of them has committed by then.
FIND_DELETED = """
    SELECT c.deleted_sha256, c.deleted_reason FROM unnest(string_to_array(:hashes, ',')) AS h, LATERAL (
        SELECT deleted_sha256, deleted_reason FROM message_copies
        WHERE mailbox_id = :mailbox_id AND deleted_sha256 = decode(h, 'hex') LIMIT 1) AS c"""

# Keeps the objects from being dropped until this batch is committed: compaction waits.
FIND_OBJECTS = """
    SELECT sha256, kind FROM objects
    WHERE sha256 = ANY(ARRAY(SELECT decode(h, 'hex') FROM unnest(string_to_array(:hashes, ',')) AS h))
        AND kind IN ('message', 'part')
    ORDER BY sha256, kind FOR SHARE"""

ADD_PACK = "INSERT INTO packs (id, name, state) VALUES (:id, :name, 'open') ON CONFLICT (id) DO NOTHING"

# ADD_PACK and this come last: a transaction that holds this row has only its commit left to do.
EXTEND_PACK = """
    UPDATE packs SET size_bytes = greatest(size_bytes, :end), frames = frames + :frames
    WHERE id = :id AND state <> 'retired' RETURNING id"""

SEAL_PACK = """
    INSERT INTO packs (id, name, state, size_bytes, frames, sha256, sealed_at)
    VALUES (:id, :name, 'sealed', :size, :frames, :sha256, now())
    ON CONFLICT (id) DO UPDATE SET state = 'sealed', size_bytes = excluded.size_bytes, frames = excluded.frames,
        sha256 = excluded.sha256, sealed_at = excluded.sealed_at"""

# A damaged pack is still read, but never written to or compacted again.
LEAVE_PACKS = "UPDATE packs SET state = 'left' WHERE id = ANY(:ids) AND state = 'open'"

_ADD_MESSAGES = """
    INSERT INTO messages (id, sha256, canonical_sha256, internet_message_id, in_reply_to, reference_ids, sent_at, received_at,
        sort_at, date_origin, sender, sender_name, subject, thread_subject, size_bytes, has_attachments, defects, first_run_id,
        archived_at)
    SELECT id, decode(sha256, 'hex'), decode(canonical_sha256, 'hex'), internet_message_id, in_reply_to, reference_ids, sent_at,
        received_at, sort_at, date_origin, sender, sender_name, subject, thread_subject, size_bytes, has_attachments, defects,
        {run}, {at}
    FROM json_to_recordset(:rows::json) AS r(id uuid, sha256 text, canonical_sha256 text, internet_message_id text,
        in_reply_to text, reference_ids text[], sent_at timestamptz, received_at timestamptz, sort_at timestamptz,
        date_origin text, sender text, sender_name text, subject text, thread_subject uuid, size_bytes bigint,
        has_attachments boolean, defects jsonb, run uuid, at timestamptz)
    ON CONFLICT DO NOTHING RETURNING id"""
ADD_MESSAGES = _ADD_MESSAGES.format(run=":run_id", at=":at")
ADD_MESSAGES_OF_RUNS = _ADD_MESSAGES.format(run="run", at="at")
"""Each row records which run archived it, and when."""

ADD_PARTICIPANTS = """
    INSERT INTO participants (message_id, position, role, address, name)
    SELECT m, p, r, a, n FROM json_to_recordset(:rows::json) AS x(m uuid, p int, r text, a text, n text)
    ON CONFLICT DO NOTHING"""

ADD_OBJECTS = """
    INSERT INTO objects (sha256, kind, pack_id, position, stored_bytes, raw_bytes)
    SELECT decode(h, 'hex'), k, :pack_id, p, s, r
    FROM json_to_recordset(:rows::json) AS x(h text, k text, p bigint, s bigint, r bigint)
    ON CONFLICT DO NOTHING"""

# An object in a pack that no longer exists was moved by a compaction that this database does not know of.
ADD_OR_MOVE_OBJECTS = f"""{ADD_OBJECTS.removesuffix("DO NOTHING")}
    (sha256, kind) DO UPDATE SET pack_id = excluded.pack_id, position = excluded.position,
        stored_bytes = excluded.stored_bytes, raw_bytes = excluded.raw_bytes
    WHERE objects.pack_id = ANY(:lost)"""

ADD_PARTS = """
    INSERT INTO message_parts (message_id, part_sha256)
    SELECT m, decode(h, 'hex') FROM json_to_recordset(:rows::json) AS x(m uuid, h text)
    ON CONFLICT DO NOTHING"""

ADD_COPIES = """
    INSERT INTO message_copies (id, message_id, mailbox_id, provider_key, folder, flags, labels, received_at, recipients,
        run_id, created_at)
    SELECT i, m, :mailbox_id, k, f, g, l, r, coalesce(e, '{}'), :run_id, :at
    FROM json_to_recordset(:rows::json) AS x(i uuid, m uuid, k text, f text, g text[], l text[], r timestamptz, e text[])
    ON CONFLICT (mailbox_id, provider_key) DO NOTHING RETURNING message_id"""

# A message that was deleted in this mailbox, under a new key: the next sync of the source skips it.
ADD_DELETED_COPIES = """
    INSERT INTO message_copies (id, mailbox_id, provider_key, folder, flags, labels, received_at, run_id, created_at,
        deleted_at, deleted_reason, deleted_sha256)
    SELECT i, :mailbox_id, k, f, g, l, r, :run_id, :at, :at, w, decode(h, 'hex')
    FROM json_to_recordset(:rows::json) AS x(i uuid, k text, f text, g text[], l text[], r timestamptz, w text, h text)
    ON CONFLICT (mailbox_id, provider_key) DO NOTHING RETURNING provider_key"""

# A move to a key that is already taken does not overwrite it: the old copy is marked as gone instead.
CHANGE_COPIES = """
    UPDATE message_copies c SET
        folder = coalesce(r.folder, c.folder), flags = coalesce(r.flags, c.flags), labels = coalesce(r.labels, c.labels),
        provider_key = CASE WHEN r.new_key IS NULL OR taken.id IS NOT NULL THEN c.provider_key ELSE r.new_key END,
        gone_at = CASE WHEN r.kind = 'back' THEN NULL
                       WHEN r.kind = 'gone' OR taken.id IS NOT NULL THEN coalesce(c.gone_at, :at) ELSE c.gone_at END
    FROM json_to_recordset(:rows::json) AS r(kind text, key text, folder text, flags text[], labels text[], new_key text)
    JOIN LATERAL (SELECT id FROM message_copies
        WHERE mailbox_id = :mailbox_id AND provider_key = r.key LIMIT 1) AS known ON true
    LEFT JOIN LATERAL (SELECT id FROM message_copies
        WHERE mailbox_id = :mailbox_id AND provider_key = r.new_key LIMIT 1) AS taken ON true
    WHERE c.id = known.id AND c.deleted_at IS NULL
    RETURNING c.message_id"""

RAISE_VERSIONS = """
    UPDATE messages SET index_version = index_version + 1
    FROM (SELECT id FROM messages WHERE id = ANY(:ids) ORDER BY id FOR NO KEY UPDATE) AS changed
    WHERE messages.id = changed.id"""

# The next attempt is due after 10, 20, 40 … minutes, up to 24 hours; a failure before that is the same one reported twice.
ADD_DEAD_LETTERS = """
    INSERT INTO dead_letters (id, kind, source_id, mailbox_id, provider_key, folder, payload, raw_sha256, reason, next_try_at)
    SELECT i, 'message', :source_id, :mailbox_id, k, f, d, decode(h, 'hex'), r, now() + interval '10 minutes'
    FROM json_to_recordset(:rows::json) AS x(i uuid, k text, f text, d jsonb, h text, r text)
    ON CONFLICT (mailbox_id, provider_key) WHERE kind = 'message' DO UPDATE SET
        reason = excluded.reason, payload = dead_letters.payload || excluded.payload,
        raw_sha256 = coalesce(excluded.raw_sha256, dead_letters.raw_sha256),
        attempts = dead_letters.attempts + 1, last_failed_at = now(),
        next_try_at = now() + least(interval '24 hours', interval '10 minutes' * 2 ^ least(dead_letters.attempts, 10))
    WHERE dead_letters.discarded_at IS NULL AND dead_letters.next_try_at <= now()"""

DROP_DEAD_LETTERS = """
    DELETE FROM dead_letters WHERE kind = 'message' AND mailbox_id = :mailbox_id
        AND provider_key = ANY(ARRAY(SELECT json_array_elements_text(:rows::json)))"""

MERGE_STATE = """
    UPDATE mailboxes SET sync_state = (sync_state || :patch::jsonb) - :dropped::text[] WHERE id = :mailbox_id"""

COUNT = """
    UPDATE sync_session_mailboxes SET seen = seen + :seen, archived = archived + :archived,
        duplicates = duplicates + :duplicates, skipped = skipped + :skipped,
        deleted_here = deleted_here + :deleted_here, failed = failed + :failed, bytes = bytes + :bytes
    WHERE session_id = :session_id AND mailbox_id = :mailbox_id"""

KNOWN = """
    SELECT c.provider_key FROM unnest(:keys::text[]) AS k(key), LATERAL (
        SELECT provider_key FROM message_copies WHERE mailbox_id = :mailbox_id AND provider_key = k.key LIMIT 1) AS c
    UNION
    SELECT provider_key FROM dead_letters WHERE kind = 'message' AND mailbox_id = :mailbox_id
        AND provider_key = ANY(:keys) AND (next_try_at IS NULL OR next_try_at > now() OR discarded_at IS NOT NULL)"""

# The range lets the index help; its order depends on the database's collation. A key it misses is only downloaded again.
KNOWN_BEGINNINGS = """
    SELECT k.key AS provider_key FROM unnest(:keys::text[]) AS k(key), LATERAL (
        SELECT 1 FROM message_copies WHERE mailbox_id = :mailbox_id AND provider_key >= k.key AND provider_key < k.key || 'g'
            AND starts_with(provider_key, k.key) LIMIT 1) AS c"""


def record_pack(connection: Connection, written: Written, extended: Sequence[UUID] | None = None) -> None:
    """The last statements of a transaction that has appended: records the pack's valid length and the packs that were sealed.

    `extended` is the result of EXTEND_PACK, if the caller has already sent it.
    """
    if extended is None:
        extended = query(connection, EXTEND_PACK, UUID, **extension(written))
    if not extended:
        name = written.batch.pack_name
        written.give_up()
        raise StoreUnavailable(f"pack {name} was replaced by a compaction in the meantime: try again")
    for pack in sorted(written.sealed, key=lambda pack: pack.id):
        run(connection, SEAL_PACK, **sealed_row(pack))
    if written.left:
        run(connection, LEAVE_PACKS, ids=list(written.left))


def extension(written: Written) -> dict[str, object]:
    """The parameters of EXTEND_PACK."""
    return {"id": written.batch.pack_id, "end": written.batch.end, "frames": len(written.batch.frames)}


def sealed_row(pack: SealedPack) -> dict[str, object]:
    return {
        "id": pack.id,
        "name": pack_name(pack.id),
        "size": pack.size,
        "frames": pack.seal.frames,
        "sha256": pack.seal.digest,
    }
