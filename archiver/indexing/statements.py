"""The bulk statements of indexing. Rows are locked in the order of their ids, so that nothing deadlocks."""

from __future__ import annotations

from archiver.mail.message import PARSER_VERSION
from archiver.search.document import DOCUMENT_VERSION

LEASE_SECONDS = 20

_COLUMNS = """
    SELECT m.id, m.sha256, m.index_version + :raised AS version, m.internet_message_id, m.in_reply_to,
        m.reference_ids, m.subject, m.sender, m.sort_at, m.size_bytes, m.parser_version, m.thread_id, o.pack_id, o.position,
        o.stored_bytes, 0 AS attempts
    FROM messages m LEFT JOIN objects o ON o.sha256 = m.sha256 AND o.kind = 'message'"""
_FREE = "m.id NOT IN (SELECT unnest(message_ids) FROM index_leases)"
_FIRST = """
    ORDER BY m.archived_at, m.id LIMIT :limit"""


def _with_attempts(stage: str) -> str:
    """The columns with the number of times that the process reading the message disappeared."""
    attempts = f"(SELECT attempts FROM reading_attempts WHERE message_id = m.id AND stage = '{stage}')"  # noqa: S608
    return _COLUMNS.replace("0 AS attempts", f"coalesce({attempts}, 0) AS attempts")


# Messages whose document is behind.
BEHIND = f"{_with_attempts('body')} WHERE m.indexed_version < m.index_version AND {_FREE} {_FIRST}"

# Messages whose attachments have not been read yet.
UNREAD = f"""{_with_attempts("attachments")} WHERE m.search_state = 'body' AND m.indexed_version >= m.index_version AND {_FREE}
    AND m.size_bytes BETWEEN :smallest AND :largest {_FIRST} FOR NO KEY UPDATE OF m SKIP LOCKED"""

# One of those, if it still exists.
ALONE = f"{_COLUMNS} WHERE m.id = :id"

# Whatever their state, in pack order.
BY_IDS = f"{_COLUMNS} WHERE m.id = ANY(:ids) ORDER BY o.pack_id, o.position"

# For a reindex. A document that is behind gets its last indexed version: the update that is due, with the next version, goes to
# both indexes in its turn, and whichever of the two arrives last, the older one is recognised as older.
_NOTED = _COLUMNS.replace("m.index_version + :raised AS version", "m.indexed_version AS version")

BY_ID = f"{_NOTED} WHERE m.id = ANY(:ids) AND m.indexed_version > 0 ORDER BY o.pack_id, o.position"

IN_PACKS = f"""{_NOTED.replace("LEFT JOIN", "JOIN")}
    WHERE o.kind = 'message' AND m.indexed_version > 0 AND (o.pack_id, o.position) > (:pack_id, :position)
    ORDER BY o.pack_id, o.position LIMIT :limit"""

# Only one process at a time searches for free messages, so that no two lease the same.
LEASE_ALONE = "SELECT pg_advisory_xact_lock(hashtextextended('archiver:index_leases', 0))"

# Expired leases are dropped before their messages are leased again: a holder that no longer finds its lease has lost it. One
# that is being renewed or finished right now is not dropped. What its holder was reading is counted: it may have killed it.
DROP_ENDED = """
    WITH ended AS (
        DELETE FROM index_leases WHERE id IN (SELECT id FROM index_leases WHERE until < now() FOR UPDATE SKIP LOCKED)
        RETURNING stage, reading)
    INSERT INTO reading_attempts (message_id, stage, attempts)
    SELECT DISTINCT m.id, ended.stage, 1 FROM ended JOIN messages m ON m.id = ANY(ended.reading)
    ON CONFLICT (message_id, stage) DO UPDATE SET attempts = reading_attempts.attempts + 1"""

TAKE = """
    INSERT INTO index_leases (id, until, message_ids, stage)
    VALUES (:id, now() + make_interval(secs => :seconds), :ids::uuid[], :stage)"""

# The messages that are read next, recorded before they are read. The commit need not reach the disk: a power failure is not
# the fault of the mail.
READ = """
    UPDATE index_leases SET reading = :ids::uuid[]
    FROM (SELECT set_config('synchronous_commit', 'off', true) AS now) AS quick
    WHERE id = :id AND quick.now = 'off'"""

FORGET_ATTEMPTS = "DELETE FROM reading_attempts WHERE message_id = ANY(:ids::uuid[]) AND stage = :stage"

RENEW = "UPDATE index_leases SET until = now() + make_interval(secs => :seconds) WHERE id = :id"

RELEASE = "DELETE FROM index_leases WHERE id = :id RETURNING id"

# Ids as text: rows of people are matched to their message faster by a string than by a UUID.
COPIES = """
    SELECT c.message_id::text, c.mailbox_id, b.source_id, c.folder, c.labels, c.recipients
    FROM message_copies c JOIN mailboxes b ON b.id = c.mailbox_id
    WHERE c.message_id = ANY(:ids::uuid[]) AND c.deleted_at IS NULL ORDER BY c.message_id, c.id"""

PEOPLE = """
    SELECT message_id::text, role, address, name FROM participants
    WHERE message_id = ANY(:ids::uuid[]) ORDER BY participants.message_id, position"""

LABELS = "SELECT message_id::text, label FROM message_labels WHERE message_id = ANY(:ids::uuid[]) ORDER BY label"

PARTS = """
    SELECT p.part_sha256, o.pack_id, o.position, o.stored_bytes
    FROM message_parts p JOIN objects o ON o.sha256 = p.part_sha256 AND o.kind = 'part'
    WHERE p.message_id = ANY(:ids::uuid[])"""

TEXTS = """
    SELECT a.sha256, a.text_state, a.text_reason, a.text_sha256, a.pages, o.pack_id, o.position, o.stored_bytes
    FROM attachments a LEFT JOIN objects o ON o.sha256 = a.text_sha256 AND o.kind = 'text'
    WHERE a.sha256 = ANY(ARRAY(SELECT decode(h, 'hex') FROM unnest(string_to_array(:hashes, ',')) AS h))"""

# Records what was sent. If the thread was joined to another in the meantime, the document becomes due again.
FINISH = """
    UPDATE messages m SET indexed_version = r.v, search_state = r.s, search_reasons = r.r, parser_version = r.p,
        has_attachments = r.a, thread_id = coalesce(l.thread_id, r.t), indexed_at = now(),
        index_version = m.index_version + CASE WHEN l.thread_id <> r.t THEN 1 ELSE 0 END
    FROM (SELECT x.*, messages.id FROM json_to_recordset(:rows::json)
              AS x(i uuid, v bigint, s text, r jsonb, p int, a boolean, t uuid, k uuid) JOIN messages ON messages.id = x.i
          ORDER BY messages.id FOR NO KEY UPDATE OF messages) AS r
    LEFT JOIN thread_links l ON l.key = r.k
    WHERE m.id = r.id RETURNING m.id"""

# Unreadable or rejected documents: not retried until an administrator requests it or the message changes.
FAIL = """
    UPDATE messages m SET indexed_version = r.v, search_state = 'failed', search_reasons = r.r, indexed_at = now()
    FROM (SELECT x.*, messages.id FROM json_to_recordset(:rows::json) AS x(i uuid, v bigint, r jsonb)
              JOIN messages ON messages.id = x.i
          ORDER BY messages.id FOR NO KEY UPDATE OF messages) AS r
    WHERE m.id = r.id RETURNING m.id"""

# Also used to lease messages whose documents get a new version.
RAISE = """
    UPDATE messages SET index_version = index_version + 1
    FROM (SELECT id FROM messages WHERE id = ANY(:ids) ORDER BY id FOR NO KEY UPDATE) AS lost
    WHERE messages.id = lost.id RETURNING messages.id"""

PARSER_MARK = f"{PARSER_VERSION}.{DOCUMENT_VERSION}"
"""What read a message that failed. Those that failed with another one are worth another attempt."""

# The pause doubles with each attempt, because it is as long as all attempts before it together.
ADD_DEAD_LETTERS = """
    INSERT INTO dead_letters (id, kind, message_id, reason, payload, next_try_at)
    SELECT i, 'document', m, r, jsonb_build_object('parser', CAST(:parser AS text)), now() + interval '10 minutes'
    FROM json_to_recordset(:rows::json) AS x(i uuid, m uuid, r text)
    ON CONFLICT (message_id) WHERE kind = 'document' DO UPDATE SET
        reason = excluded.reason, attempts = dead_letters.attempts + 1, last_failed_at = now(),
        payload = dead_letters.payload || excluded.payload,
        next_try_at = now() + least(interval '24 hours', greatest(interval '10 minutes', now() - dead_letters.created_at))"""

DROP_DEAD_LETTERS = "DELETE FROM dead_letters WHERE kind = 'document' AND message_id = ANY(:ids::uuid[])"

DROP_ATTACHMENTS = "DELETE FROM message_attachments WHERE message_id = ANY(:ids)"

# A mail inside a mail is never read on its own; the same bytes attached as a file are.
ADD_ATTACHMENTS = """
    INSERT INTO attachments (sha256, size_bytes, media_type, text_state)
    SELECT decode(h, 'hex'), b, t, s FROM json_to_recordset(:rows::json) AS x(h text, b bigint, t text, s text)
    ON CONFLICT (sha256) DO UPDATE SET text_state = 'pending'
    WHERE attachments.text_state = 'empty' AND attachments.extractor_version = 0 AND excluded.text_state = 'pending'"""

ADD_MESSAGE_ATTACHMENTS = """
    INSERT INTO message_attachments (message_id, position, attachment_sha256, name, media_type, is_inline, content_id, detail)
    SELECT m, n, decode(h, 'hex'), f, t, l, c, d FROM json_to_recordset(:rows::json)
        AS x(m uuid, n int, h text, f text, t text, l boolean, c text, d jsonb)
    ON CONFLICT DO NOTHING"""

SET_TEXTS = """
    UPDATE attachments a SET text_state = x.s, text_reason = x.r, text_sha256 = decode(x.t, 'hex'), pages = x.p,
        extractor_version = x.v, needs_ocr = x.o
    FROM json_to_recordset(:rows::json) AS x(h text, s text, r text, t text, p jsonb, v int, o boolean)
    WHERE a.sha256 = decode(x.h, 'hex')"""

IS_BEHIND = "SELECT EXISTS (SELECT 1 FROM messages WHERE indexed_version < index_version)"
IS_UNREAD = "SELECT EXISTS (SELECT 1 FROM messages WHERE search_state = 'body')"
