"""Limits the time for all attachments of one message, so that hundreds of slow ones don't occupy a worker for days."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from archiver.extract import limits
from archiver.extract.extraction import Extraction, ExtractionState


@dataclass(slots=True)
class Patience:
    """The time budget of one message. Counts only the time that its own attachments took."""

    clock: Callable[[], float] = time.monotonic
    spent: float = field(default=0.0, init=False)

    def spend(self, extract: Callable[[float], Extraction]) -> Extraction:
        """Calls `extract` with the number of seconds for the next attachment.

        After its time an attachment still gets a moment. What it says is kept for its content, wherever else that comes, and
        one message with slow files should not make files unreadable that it shares with others.
        """
        if self.spent >= 2 * limits.MESSAGE_SECONDS:
            return Extraction(
                ExtractionState.TIMEOUT, f"the attachments of its message took more than {2 * limits.MESSAGE_SECONDS:g} seconds"
            )
        started = self.clock()
        try:
            return extract(max(limits.HURRIED_SECONDS, limits.MESSAGE_SECONDS - self.spent))
        finally:
            self.spent += self.clock() - started
