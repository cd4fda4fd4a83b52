"""To which mailboxes a journalled mail belongs, and what each of them may know about its recipients. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from archiver.journal.envelope import JournalEnvelope
from archiver.mail.formats.journal_reports import JournalReport, RecordedRecipient
from archiver.mail.routing import MailRoute

UNASSIGNED = "unassigned"
"""The mailbox of mail that belongs to none of the own domains."""


@dataclass(frozen=True, slots=True)
class Assignment:
    mailbox: str
    """An address, or UNASSIGNED."""
    recipients: tuple[str, ...]
    """`role:address`, sorted: what a reader of this mailbox may know. The sender sees everybody, a recipient only themselves:
    others may have received a blind copy."""


@dataclass(frozen=True, slots=True)
class OwnDomains:
    domains: frozenset[str]
    journal_addresses: frozenset[str]
    """Where the journal itself is sent to: they are no recipients of the mail."""

    @classmethod
    def of(cls, domains: Iterable[str], addresses: Iterable[str]) -> OwnDomains:
        cleaned = frozenset(domain.lower().removeprefix("@") for domain in domains)
        return cls(cleaned, frozenset(address.lower() for address in addresses))

    def owns(self, address: str) -> bool:
        return address.rpartition("@")[2].lower() in self.domains and address.lower() not in self.journal_addresses

    def is_journal(self, address: str) -> bool:
        lower = address.lower()
        return lower in self.journal_addresses or f"@{lower.rpartition('@')[2]}" in self.journal_addresses


def assign(
    own: OwnDomains, envelope: JournalEnvelope, route: MailRoute | None, report: JournalReport | None
) -> list[Assignment]:
    """At least one. `route` is None for a header that can't be read."""
    recorded = _recorded(own, envelope, route, report)
    if report is not None:
        senders: Collection[str] = report.senders
        others: list[str] = []
    else:
        senders = (*(route.senders if route else ()), *((envelope.sender,) if envelope.sender else ()))
        others = list(route.recipients) if route else []
    everything = _spell(recorded)
    boxes = {address.lower(): everything for address in senders if own.owns(address)}
    for address in (*(one.address for one in recorded), *others):
        if own.owns(address):
            key = address.lower()
            boxes.setdefault(key, _spell([one for one in recorded if one.address.lower() == key]))
    if not boxes:
        return [Assignment(UNASSIGNED, everything)]
    return [Assignment(address, recipients) for address, recipients in sorted(boxes.items())]


def _recorded(
    own: OwnDomains, envelope: JournalEnvelope, route: MailRoute | None, report: JournalReport | None
) -> list[RecordedRecipient]:
    if report is not None:
        return list(report.recipients)
    delivered = (*envelope.recipients, *(route.delivered_to if route else ()))
    named = dict.fromkeys(address.lower() for address in delivered if "@" in address and not own.is_journal(address))
    return [RecordedRecipient("recipient", address) for address in named]


def _spell(recipients: Iterable[RecordedRecipient]) -> tuple[str, ...]:
    found: set[str] = set()
    for one in recipients:
        found.add(f"{one.role}:{one.address}")
        if one.through:
            found.add(f"list:{one.through}")
    return tuple(sorted(found))
