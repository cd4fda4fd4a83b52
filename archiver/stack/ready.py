"""What each of our own long-running processes does once it is ready: it tells the supervisor, by a byte into a pipe that it
was given, and looks for garbage less often from then on."""

from __future__ import annotations

import contextlib
import gc
import os

VARIABLE = "ARCHIVER_READY_FD"
# Messages are many small objects without cycles: looking for some after every 700 new ones took a seventh of the time.
_COLLECT_AFTER = 20_000


def notify_ready(*_: object) -> None:
    """Tells nobody when nobody waits for it."""
    gc.freeze()  # what is loaded by now stays
    gc.set_threshold(_COLLECT_AFTER)
    descriptor = os.environ.pop(VARIABLE, None)
    if descriptor is not None:
        with contextlib.suppress(OSError, ValueError):
            os.write(int(descriptor), b"1")
            os.close(int(descriptor))
