"""Delivery reports (RFC 3464) and read receipts (RFC 8098): what happened to a mail, for each recipient."""

from dataclasses import dataclass

from archiver.mail.defects import Defects
from archiver.mail.header.fields import split_block
from archiver.mail.header.words import unstructured

_RECIPIENTS = 1_000


@dataclass(frozen=True, slots=True)
class Delivery:
    """What happened to the mail for one recipient."""

    action: str  # failed, delayed, delivered, relayed, expanded; or the disposition of a receipt
    status: str  # 5.1.1
    recipient: str
    original_recipient: str
    diagnostic: str

    def as_text(self) -> str:
        return " ".join(
            word for word in (self.action, self.status, self.recipient, self.original_recipient, self.diagnostic) if word
        )


def read_report(body: bytes) -> tuple[Delivery, ...]:
    """The recipients of a message/delivery-status or message/disposition-notification."""
    deliveries: list[Delivery] = []
    body = body.replace(b"\r\n", b"\n").strip(b"\n")
    for group in body.split(b"\n\n")[: _RECIPIENTS + 1]:
        fields: dict[str, str] = {}
        for name, value in split_block(group.lstrip(b"\n") + b"\n\n", Defects()).fields:
            fields.setdefault(name, unstructured(value[:4096], Defects()))
        recipient = _address(fields.get("final-recipient", ""))
        original = _address(fields.get("original-recipient", ""))
        if recipient or original:
            action = (fields.get("action") or fields.get("disposition", "")).lower()
            diagnostic = fields.get("diagnostic-code", "").partition(";")
            status = fields.get("status", "").partition(" ")[0]
            deliveries.append(Delivery(action, status, recipient, original, diagnostic[2].strip() or diagnostic[0]))
    return tuple(deliveries)


def _address(value: str) -> str:
    """`rfc822; someone@example.org` without its type."""
    kind, semicolon, address = value.partition(";")
    return (address if semicolon else kind).strip().strip("<>")
