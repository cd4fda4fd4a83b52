"""Anchors the audit log every minute, at startup and at shutdown, and checks at startup that it was not truncated."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from archiver.db.engine import DATABASE_ERRORS
from archiver.errors import ArchiverError
from archiver.evidence.anchors import Anchors
from archiver.logs import get_logger
from connectors.errors import first_line

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
            except (*DATABASE_ERRORS, ArchiverError) as error:  # a server is down: the next attempt is in a minute
                log.warning("audit_not_anchored", error=first_line(error))
            except Exception:
                log.exception("audit_not_anchored")
            if stops:
                return
            self.stopping.wait(_EVERY_SECONDS)
