"""Whose mail somebody may see: the one predicate that search, lists, threads, attachments, exports and figures all use."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Connection, text

from archiver.models.states import Role
from archiver.services.principal import Principal

# Own mailboxes by verified address, and what was granted: a mailbox, addresses by pattern (* stands for anything), a source.
# A mailbox that got an address which another one had is for those who proved to have it, or were granted it, since then; the
# former one is for those who were granted the address before.
_GRANTED = """
    SELECT b.id FROM mailboxes b JOIN users u ON u.id = :user_id
    WHERE (u.address_verified_at IS NOT NULL AND lower(b.address) = lower(u.email)
            AND (b.replaces_id IS NULL OR u.address_verified_at > b.created_at))
       OR EXISTS (
        SELECT 1 FROM grants g WHERE g.user_id = u.id {condition} AND (
            g.mailbox_id = b.id OR g.source_id = b.source_id
            OR lower(coalesce(b.former_address, b.address)) LIKE replace(replace(replace(replace(
                g.address_pattern, '\\', '\\\\'), '%', '\\%'), '_', '\\_'), '*', '%')
                AND (strpos(g.address_pattern, '*') > 0
                    OR CASE WHEN b.former_address IS NOT NULL THEN g.created_at < b.gone_at
                            ELSE b.replaces_id IS NULL OR g.created_at > b.created_at END)))"""
_VISIBLE = text(_GRANTED.format(condition=""))
_WRITABLE = text(_GRANTED.format(condition="AND g.may_ingest"))


@dataclass(frozen=True, slots=True)
class Scope:
    """All mailboxes (None), or these. Everything that shows mail asks it, and again on the rows that it is about to show."""

    mailboxes: frozenset[UUID] | None = None

    def sees(self, mailbox_id: UUID) -> bool:
        return self.mailboxes is None or mailbox_id in self.mailboxes

    def narrowed(self, mailbox_id: UUID | None) -> Scope:
        """To one mailbox, if it is in here; else to nothing."""
        if mailbox_id is None:
            return self
        return Scope(frozenset({mailbox_id}) if self.sees(mailbox_id) else frozenset())

    def copies(self, alias: str = "c") -> str:
        """The condition on a row of message_copies. A copy that was deleted is seen by nobody."""
        visible = "" if self.mailboxes is None else f" AND {alias}.mailbox_id = ANY(:scope_mailboxes)"
        return f"{alias}.deleted_at IS NULL{visible}"

    def messages(self, alias: str = "m") -> str:
        """The condition on a row of messages: one of its copies is seen."""
        return f"EXISTS (SELECT 1 FROM message_copies sc WHERE sc.message_id = {alias}.id AND {self.copies('sc')})"  # noqa: S608

    def search_state(self, alias: str = "m") -> str:
        """How far a message can be found by this scope: one whose visible copies all came after its document waits for the
        next, however long others have had it."""
        if self.mailboxes is None:
            return f"{alias}.search_state"
        return (
            f"CASE WHEN {alias}.indexed_at IS NULL OR EXISTS (SELECT 1 FROM message_copies si WHERE si.message_id = {alias}.id"  # noqa: S608
            f" AND {self.copies('si')} AND si.created_at <= {alias}.indexed_at) THEN {alias}.search_state ELSE 'pending' END"
        )

    def archived_at(self, alias: str = "m") -> str:
        """When the first visible copy came."""
        return self._first(alias, "created_at") if self.mailboxes is not None else f"{alias}.archived_at"

    def received_at(self, alias: str = "m") -> str:
        return self._first(alias, "received_at") if self.mailboxes is not None else f"{alias}.received_at"

    def _first(self, alias: str, column: str) -> str:
        seen = self.copies("sf")
        return f"(SELECT min(sf.{column}) FROM message_copies sf WHERE sf.message_id = {alias}.id AND {seen})"  # noqa: S608

    def values(self) -> dict[str, object]:
        """What the conditions are bound to."""
        return {} if self.mailboxes is None else {"scope_mailboxes": sorted(self.mailboxes)}


EVERYTHING = Scope()
NOTHING = Scope(frozenset())


def writable_by(connection: Connection, who: Principal) -> Scope:
    """The mailboxes that somebody may hand messages in for: their own, and those that were granted for it. Reading is no
    right to write; an administrator may hand in for everybody."""
    if who.role is Role.ADMINISTRATOR:
        return EVERYTHING
    if who.user_id is None:
        return NOTHING
    return Scope(frozenset(connection.execute(_WRITABLE, {"user_id": who.user_id}).scalars()))


def scope_of(connection: Connection, who: Principal) -> Scope:
    """Auditors see all, others only with that right; an administrator is nobody special here."""
    if who.role is Role.AUDITOR or who.may_read_all:
        return EVERYTHING
    if who.user_id is None:
        return NOTHING
    return Scope(frozenset(connection.execute(_VISIBLE, {"user_id": who.user_id}).scalars()))
