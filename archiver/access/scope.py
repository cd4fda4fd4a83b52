"""The mail that a principal can see: one predicate for search, lists, threads, attachments, exports and statistics."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from uuid import UUID

from sqlalchemy import Connection

from archiver.access.principal import Principal
from archiver.db.sql import query
from archiver.db.states import UserRole

# Own mailboxes by verified address, and what was granted: a mailbox, addresses by pattern (* matches anything), a source.
# When an address moves from one mailbox to another, the new mailbox is visible to users whose address was verified, or granted,
# since the move; the former mailbox stays visible to users who were granted the address before it.
_OWN_ADDRESS = """(u.address_verified_at IS NOT NULL AND lower(b.address) = lower(u.email)
            AND (b.replaces_id IS NULL OR u.address_verified_at > b.created_at))"""
_FITS = """(g.mailbox_id = b.id OR g.source_id = b.source_id
            OR lower(coalesce(b.former_address, b.address)) LIKE replace(replace(replace(replace(
                g.address_pattern, '\\', '\\\\'), '%', '\\%'), '_', '\\_'), '*', '%')
                AND (strpos(g.address_pattern, '*') > 0
                    OR CASE WHEN b.former_address IS NOT NULL THEN g.created_at < b.gone_at
                            ELSE b.replaces_id IS NULL OR g.created_at > b.created_at END))"""
_GRANTED = f"""
    SELECT b.id FROM mailboxes b JOIN users u ON u.id = :user_id
    WHERE {_OWN_ADDRESS}
       {{own_mail}}
       OR EXISTS (SELECT 1 FROM grants g WHERE g.user_id = u.id {{condition}} AND {_FITS})"""  # noqa: S608
# An administrator who said that this archive is for their own mail reads every mailbox that is nobody else's: not of a source
# that another user added, and not the verified address of another user.
_OWN_MAIL = """
       OR (u.role = 'administrator' AND u.settings @> '{"own_mail": true}'
            AND EXISTS (SELECT 1 FROM ingestion_sources s
                WHERE s.id = b.source_id AND (s.owner_id IS NULL OR s.owner_id = u.id))
            AND NOT EXISTS (SELECT 1 FROM users o
                WHERE o.id <> u.id AND o.address_verified_at IS NOT NULL AND lower(o.email) = lower(b.address)))"""
_OWN = """
    SELECT b.id FROM mailboxes b JOIN users u ON u.id = :user_id
    WHERE u.address_verified_at IS NOT NULL AND lower(b.address) = lower(u.email)
        AND (b.replaces_id IS NULL OR u.address_verified_at > b.created_at)"""
_REASONS = f"""
    SELECT b.id, b.address, s.name AS source, {_OWN_ADDRESS} AS is_own_address,
        (false {_OWN_MAIL}) AS is_own_mail,
        ARRAY(SELECT g.id FROM grants g WHERE g.user_id = u.id AND {_FITS} ORDER BY g.id) AS grant_ids
    FROM mailboxes b JOIN users u ON u.id = :user_id JOIN ingestion_sources s ON s.id = b.source_id
    WHERE CAST(:after AS uuid) IS NULL OR b.id > :after ORDER BY b.id LIMIT :limit"""  # noqa: S608
_VISIBLE = _GRANTED.format(condition="", own_mail=_OWN_MAIL)
_AT_ONCE = 5_000
_WRITABLE = _GRANTED.format(condition="AND g.may_ingest", own_mail="")


_HIDDEN = "SELECT name FROM retention_labels WHERE hides_from_auditors ORDER BY name"


@dataclass(frozen=True, slots=True)
class MailScope:
    """All mailboxes (None), or these. Everything that shows mail applies it, and once more to the rows it is about to show."""

    mailboxes: frozenset[UUID] | None = None
    reader: UUID | None = field(default=None, compare=False)
    """Whose own tags and notes count; None: only shared ones."""
    hidden_labels: tuple[str, ...] = ()
    """Messages with one of these retention labels are not in the scope."""

    @property
    def is_everything(self) -> bool:
        return self.mailboxes is None and not self.hidden_labels

    def sees(self, mailbox_id: UUID) -> bool:
        return self.mailboxes is None or mailbox_id in self.mailboxes

    def narrow_to(self, mailbox_id: UUID | None) -> MailScope:
        """Only this mailbox, if it is in the scope; otherwise nothing."""
        if mailbox_id is None:
            return self
        return replace(self, mailboxes=frozenset({mailbox_id}) if self.sees(mailbox_id) else frozenset())

    def copies(self, alias: str = "c") -> str:
        """The condition on a row of message_copies. Deleted copies are visible to no principal."""
        visible = "" if self.mailboxes is None else f" AND {alias}.mailbox_id = ANY(:scope_mailboxes)"
        if self.hidden_labels:
            visible += (
                f" AND NOT EXISTS (SELECT 1 FROM message_labels hl WHERE hl.message_id = {alias}.message_id"  # noqa: S608
                " AND hl.label = ANY(:scope_hidden))"
            )
        return f"{alias}.deleted_at IS NULL{visible}"

    def messages(self, alias: str = "m") -> str:
        """The condition on a row of messages: one of its copies is visible."""
        return f"EXISTS (SELECT 1 FROM message_copies sc WHERE sc.message_id = {alias}.id AND {self.copies('sc')})"  # noqa: S608

    def search_state(self, alias: str = "m") -> str:
        """How far a message is searchable within this scope. If all its visible copies are newer than its document, it is
        pending until the next one, even if it has long been searchable for other users."""
        if self.mailboxes is None:
            return f"{alias}.search_state"
        return (
            f"CASE WHEN {alias}.indexed_at IS NULL OR EXISTS (SELECT 1 FROM message_copies si WHERE si.message_id = {alias}.id"  # noqa: S608
            f" AND {self.copies('si')} AND si.created_at <= {alias}.indexed_at) THEN {alias}.search_state ELSE 'pending' END"
        )

    def archived_at(self, alias: str = "m") -> str:
        """When the first visible copy was archived."""
        return self._first(alias, "created_at") if self.mailboxes is not None else f"{alias}.archived_at"

    def received_at(self, alias: str = "m") -> str:
        return self._first(alias, "received_at") if self.mailboxes is not None else f"{alias}.received_at"

    def date_origin(self, alias: str = "m") -> str:
        """If the message itself has no date, only the visible copies decide whether a server gave one."""
        if self.mailboxes is None:
            return f"{alias}.date_origin"
        by_server = f"CASE WHEN {self.received_at(alias)} IS NULL THEN 'none' ELSE 'server' END"
        return f"CASE WHEN {alias}.date_origin IN ('server', 'none') THEN {by_server} ELSE {alias}.date_origin END"

    def _first(self, alias: str, column: str) -> str:
        seen = self.copies("sf")
        return f"(SELECT min(sf.{column}) FROM message_copies sf WHERE sf.message_id = {alias}.id AND {seen})"  # noqa: S608

    def values(self) -> dict[str, object]:
        """The parameters of the conditions."""
        found: dict[str, object] = {} if self.mailboxes is None else {"scope_mailboxes": sorted(self.mailboxes)}
        return found | ({"scope_hidden": list(self.hidden_labels)} if self.hidden_labels else {})


@dataclass(frozen=True, slots=True)
class ReadingReasons:
    """Why a user can read a mailbox; for no reason, they can't."""

    id: UUID
    address: str
    source: str
    is_own_address: bool
    is_own_mail: bool
    """An administrator who said that this archive is for their own mail."""
    grant_ids: list[UUID]

    @property
    def can_read(self) -> bool:
        return self.is_own_address or self.is_own_mail or bool(self.grant_ids)


EVERYTHING = MailScope()
NOTHING = MailScope(frozenset())


def writable_by(connection: Connection, principal: Principal) -> MailScope:
    """The mailboxes that a principal can submit messages to: their own, and those granted for it; for an administrator, all.
    The right to read does not include the right to write."""
    if principal.role is UserRole.ADMINISTRATOR:
        return EVERYTHING
    if principal.user_id is None:
        return NOTHING
    return MailScope(frozenset(query(connection, _WRITABLE, UUID, user_id=principal.user_id)))


def own_mailboxes(connection: Connection, principal: Principal) -> frozenset[UUID]:
    """The mailboxes with the verified address of the principal, which is what makes a mailbox their own."""
    if principal.user_id is None:
        return frozenset()
    return frozenset(query(connection, _OWN, UUID, user_id=principal.user_id))


def scope_of(connection: Connection, principal: Principal) -> MailScope:
    """Auditors see all mail, without what a label hides from them; other users only with that right. Administrators get no
    exception."""
    if principal.role is UserRole.AUDITOR:
        return MailScope(reader=principal.user_id, hidden_labels=tuple(query(connection, _HIDDEN, str)))
    if principal.may_read_all:
        return MailScope(reader=principal.user_id)
    if principal.user_id is None:
        return NOTHING
    return MailScope(frozenset(query(connection, _VISIBLE, UUID, user_id=principal.user_id)), principal.user_id)


def explain_scope(connection: Connection, user_id: UUID, limit: int) -> tuple[list[ReadingReasons], bool]:
    """The mailboxes that a user can read without the right to read all, each with the reasons; and whether there are more."""
    found: list[ReadingReasons] = []
    after: UUID | None = None
    while len(found) <= limit:
        rows = query(connection, _REASONS, ReadingReasons, user_id=user_id, after=after, limit=_AT_ONCE)
        found += [row for row in rows if row.can_read]
        if len(rows) < _AT_ONCE:
            break
        after = rows[-1].id
    return found[:limit], len(found) > limit
