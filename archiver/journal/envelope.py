"""The SMTP envelope of a message, as the spool stores it next to the bytes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson


@dataclass(frozen=True, slots=True)
class JournalEnvelope:
    received_at: datetime
    client: str
    """The address of the mail server that sent it."""
    sender: str
    """Empty for the null sender, which journal reports have."""
    recipients: tuple[str, ...]

    def encode(self) -> bytes:
        return orjson.dumps(
            {
                "at": self.received_at.isoformat(),
                "client": self.client,
                "sender": self.sender,
                "recipients": self.recipients,
            }
        )

    @classmethod
    def decode(cls, data: bytes) -> JournalEnvelope:
        found: dict[str, Any] = orjson.loads(data)
        return cls(datetime.fromisoformat(found["at"]), found["client"], found["sender"], tuple(found["recipients"]))
