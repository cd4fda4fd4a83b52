"""How fast a provider lets mail be read, as far as its limits are known before anything was measured."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pace:
    mailbox_per_second: float | None = None
    """Messages of one mailbox."""
    all_per_second: float | None = None
    """Messages of all mailboxes together."""
    mailbox_bytes_per_day: int = 0
    """What one mailbox may download in a day; 0 if that is not limited."""

    def messages_per_second(self, mailboxes: int) -> float | None:
        """With this many mailboxes at once."""
        if self.mailbox_per_second is None:
            return self.all_per_second
        found = self.mailbox_per_second * max(1, mailboxes)
        return min(found, self.all_per_second) if self.all_per_second is not None else found
