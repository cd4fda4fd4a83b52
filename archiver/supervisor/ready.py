"""What each of Archiver's long-running processes does once it is ready: it notifies the supervisor with a byte in an inherited
pipe, and makes garbage collections less frequent."""

from __future__ import annotations

import contextlib
import gc
import os

VARIABLE = "ARCHIVER_READY_FD"
# Messages are many small objects without cycles: a collection after every 700 new ones took a seventh of the time.
_COLLECT_AFTER = 20_000


def notify_ready(*_: object) -> None:
    """Notifies nothing if the process was not started by a supervisor."""
    gc.freeze()  # what is loaded by now lives as long as the process
    gc.set_threshold(_COLLECT_AFTER)
    descriptor = os.environ.pop(VARIABLE, None)
    if descriptor is not None:
        with contextlib.suppress(OSError, ValueError):
            os.write(int(descriptor), b"1")
            os.close(int(descriptor))
