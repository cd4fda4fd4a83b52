"""Small messages, several in one call (`$batch`): one HTTP request for up to twenty, of which Graph counts each.

How Graph puts a message into the answer of a batch is written down for files only: in base64. So a server is tried out first,
with messages that were fetched singly, and must give the same bytes. What is not as it should be later on is fetched singly.
"""

from __future__ import annotations

import binascii
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from connectors.errors import ConnectorError, Throttled
from connectors.microsoft.entries import IMMUTABLE
from connectors.microsoft.folders import MAIL
from connectors.microsoft.graph import AT_ONCE, BATCH_REQUESTS, Graph, Refused, Sub, segment
from connectors.microsoft.line import pause_asked_for

_ANSWER_BYTES = 4 << 20
"""Graph's own limit lies about here. A larger answer is not read to its end, and the next bundles are smaller."""
_TOO_LARGE = (413, 507)
_SAMPLES = 4
_SAMPLE_BYTES = 256 << 10
_LOST_CHARACTER = "\N{REPLACEMENT CHARACTER}".encode()
"""Stands for bytes that somebody could not read as UTF-8. A message may have it by itself; fetched singly it is certain."""
_FROM_URL_SAFE = str.maketrans("-_", "+/")

_TRIED_OUT: dict[str, int] = {}
"""By this process, for each server: how many messages a bundle may have. None, if it does not give the right bytes."""


def message_path(base: str, key: str) -> str:
    return f"{base}/messages/{segment(key)}/$value"


@dataclass(frozen=True, slots=True)
class Bundle:
    contents: list[bytes | None]
    """Of the first messages that were asked for, as many as the quota allowed. None: single requests have to tell."""
    gone: frozenset[str] = frozenset()
    pause: Throttled | None = None
    """What did not come may be asked for after it."""


class Bundles:
    """Those of one connector."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._most = BATCH_REQUESTS if graph.at_once >= AT_ONCE else graph.at_once
        """Fewer after an answer that was too large, or none."""
        self._lock = threading.Lock()
        self._samples: dict[str, bytes] = {}

    @property
    def most(self) -> int:
        """Messages in one; below 2 there are none."""
        return min(self._most, _TRIED_OUT.get(self._graph.root, 0))

    def try_out(self, base: str, key: str, content: bytes) -> None:
        """With a small message as it came singly: when there are enough of them, they are asked for once more."""
        if self._graph.root in _TRIED_OUT or self._most < 2 or len(content) > _SAMPLE_BYTES:
            return
        with self._lock:
            enough = min(self._most, _SAMPLES)
            if len(self._samples) >= enough:
                return  # another thread is at it
            self._samples[key] = content
            if len(self._samples) < enough:
                return
        try:
            self._compare(base, self._samples)
        finally:
            self._samples = {}

    def _compare(self, base: str, samples: Mapping[str, bytes]) -> None:
        bundle = self.fetch(base, list(samples))
        came = [(content, sample) for content, sample in zip(bundle.contents, samples.values(), strict=False) if content]
        if any(content != sample for content, sample in came):
            self._allow(0)
        elif came:
            _TRIED_OUT.setdefault(self._graph.root, BATCH_REQUESTS)
        else:
            self._most //= 2  # so that it is not tried for ever

    def fetch(self, base: str, keys: Sequence[str]) -> Bundle:
        keys = keys[: self._graph.turns_at_hand(len(keys))]
        try:
            answers = self._graph.one_batch([message_path(base, key) for key in keys], MAIL, IMMUTABLE, _ANSWER_BYTES)
        except Throttled:
            raise
        except (Refused, ConnectorError) as error:  # single requests tell what it is
            if isinstance(error, Refused) and error.status not in _TOO_LARGE:
                self._allow(0)
            self._most //= 2
            return Bundle([None] * len(keys))
        contents = [self._content(answer) for answer in answers]
        gone = frozenset(key for key, answer in zip(keys, answers, strict=True) if answer.is_gone)
        return Bundle(contents, gone, self._pause(answers))

    def _pause(self, answers: Sequence[Sub]) -> Throttled | None:
        """There is a report that more than four are too many (2022), though Microsoft says that it works on four at once."""
        asked = [answer.headers for answer in answers if answer.is_throttled]
        if not asked:
            return None
        if len(answers) > AT_ONCE:
            self._allow(AT_ONCE)
        return self._graph.throttled(max(asked, key=lambda headers: pause_asked_for(headers, 0.0)))

    def _content(self, answer: Sub) -> bytes | None:
        if answer.status != 200:
            return None
        content = decoded(answer.text)
        if not content:
            self._allow(0)
        return content if content and _LOST_CHARACTER not in content else None

    def _allow(self, most: int) -> None:
        """No larger ones from this server, as long as this process lives."""
        _TRIED_OUT[self._graph.root] = min(most, _TRIED_OUT.get(self._graph.root, most))


def decoded(text: str) -> bytes | None:
    """Base64 in one of its two alphabets, and nothing else. A message is none itself: it has colons, blanks and line ends."""
    if "+" not in text and "/" not in text:
        text = text.translate(_FROM_URL_SAFE)
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except (binascii.Error, ValueError):
        return None
