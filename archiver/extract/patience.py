"""How long the attachments of one message may take together, so that hundreds of slow ones don't keep a worker for days."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from archiver.extract import limits
from archiver.extract.extraction import Extraction, ExtractionState


@dataclass(slots=True)
class Patience:
    """For one message. Its time is what its own attachments used, whatever else the process did."""

    clock: Callable[[], float] = time.monotonic
    spent: float = field(default=0.0, init=False)

    def spend(self, extract: Callable[[float], Extraction]) -> Extraction:
        """Calls `extract` with the seconds that the next attachment has; not at all once the message's time is up.

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
