"""Anchors the audit log every minute, when the process starts and when it stops; looks at the start whether it was cut."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from sqlalchemy.exc import DBAPIError

from archiver.errors import ArchiverError
from archiver.logs import get_logger
from archiver.services.audit_anchors import Anchors

_EVERY_SECONDS = 60.0

log = get_logger("audit")


@dataclass(frozen=True, slots=True)
class Anchoring:
    anchors: Anchors
    stopping: threading.Event

    def start(self) -> threading.Thread:
        thread = threading.Thread(target=self._run, daemon=True, name="anchoring")
        thread.start()
        return thread

    def _run(self) -> None:
        checked = False
        while True:
            stops = self.stopping.is_set()
            try:
                if not checked:
                    self.anchors.check()
                    checked = True
                self.anchors.write()
            except (DBAPIError, ArchiverError) as error:  # away: what is not anchored now is anchored in a minute
                log.warning("audit_not_anchored", error=(str(error).splitlines() or [type(error).__name__])[0])
            except Exception:
                log.exception("audit_not_anchored")
            if stops:
                return
            self.stopping.wait(_EVERY_SECONDS)
