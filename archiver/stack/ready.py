"""How one of our own processes tells the supervisor that it is ready: a byte into a pipe that it was given."""

from __future__ import annotations

import contextlib
import os

VARIABLE = "ARCHIVER_READY_FD"


def notify_ready(*_: object) -> None:
    """Does nothing when nobody waits for it."""
    descriptor = os.environ.pop(VARIABLE, None)
    if descriptor is not None:
        with contextlib.suppress(OSError, ValueError):
            os.write(int(descriptor), b"1")
            os.close(int(descriptor))
