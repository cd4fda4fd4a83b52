"""Items that are not part of a batch yet."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from connectors.base import BATCH_BYTES, BATCH_MESSAGES, BATCH_SECONDS
from connectors.files.items import Found, FoundMessage


@dataclass(slots=True)
class Group:
    found: list[Found] = field(default_factory=list)
    bytes: int = 0
    began: float = field(default_factory=time.monotonic)

    def fits(self, one: Found) -> bool:
        if not self.found:
            return True
        size = one.size if isinstance(one, FoundMessage) else 0
        if self.bytes + size > BATCH_BYTES:
            return False
        return not (isinstance(one, FoundMessage) and one.data is None)

    @property
    def is_full(self) -> bool:
        late = bool(self.found) and time.monotonic() - self.began > BATCH_SECONDS
        return len(self.found) >= BATCH_MESSAGES or self.bytes >= BATCH_BYTES or late

    def add(self, one: Found) -> None:
        if not self.found:
            self.began = time.monotonic()
        self.found.append(one)
        self.bytes += one.size if isinstance(one, FoundMessage) else 0
