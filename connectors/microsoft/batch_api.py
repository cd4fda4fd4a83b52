"""Fetches small messages in bundles (`$batch`): one HTTP request for up to twenty, each of which Graph counts.

How Graph encodes a message in the response of a batch is documented for files only: in base64. So a server is first tested with
messages that were fetched singly, and must return the same bytes. Later deviations are fetched singly.
"""

from __future__ import annotations

import binascii
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from connectors.errors import ConnectorError, Throttled
from connectors.http import retry_after
from connectors.microsoft.folders import MAIL
from connectors.microsoft.graph import AT_ONCE, BATCH_REQUESTS, Graph, GraphRefused, Sub, segment
from connectors.microsoft.metadata import IMMUTABLE

_ANSWER_BYTES = 4 << 20
"""About Graph's own limit. A larger response is not read to its end, and the next bundles are smaller."""
_TOO_LARGE = (413, 507)
_SAMPLES = 4
_SAMPLE_BYTES = 256 << 10
_LOST_CHARACTER = "\N{REPLACEMENT CHARACTER}".encode()
"""Marks bytes that a server failed to decode as UTF-8. The original message may contain it too; fetching singly decides."""
_FROM_URL_SAFE = str.maketrans("-_", "+/")

_TRIED_OUT: dict[str, int] = {}
"""Per process and server: how many messages a bundle may have; None if the server does not return the right bytes."""


def message_path(base: str, key: str) -> str:
    return f"{base}/messages/{segment(key)}/$value"


@dataclass(frozen=True, slots=True)
class Bundle:
    contents: list[bytes | None]
    """The first requested messages, as many as the quota allowed. None for a message that has to be fetched singly."""
    gone: frozenset[str] = frozenset()
    pause: Throttled | None = None
    """The pause before the rest may be requested."""


class Bundles:
    """The bundles of one connector."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._limit = BATCH_REQUESTS if graph.at_once >= AT_ONCE else graph.at_once
        """Reduced after a response that was too large; may reach 0."""
        self._lock = threading.Lock()
        self._samples: dict[str, bytes] = {}

    @property
    def limit(self) -> int:
        """Messages per bundle; below 2, bundles are disabled."""
        return min(self._limit, _TRIED_OUT.get(self._graph.root, 0))

    def try_out(self, base: str, key: str, content: bytes) -> None:
        """Collects a small message that was fetched singly; once there are enough, they are fetched again as a bundle."""
        if self._graph.root in _TRIED_OUT or self._limit < 2 or len(content) > _SAMPLE_BYTES:
            return
        with self._lock:
            enough = min(self._limit, _SAMPLES)
            if len(self._samples) >= enough:
                return  # another thread is testing
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
            self._limit //= 2  # so that testing ends eventually

    def fetch(self, base: str, keys: Sequence[str]) -> Bundle:
        keys = keys[: self._graph.turns_at_hand(len(keys))]
        try:
            answers = self._graph.one_batch([message_path(base, key) for key in keys], MAIL, IMMUTABLE, _ANSWER_BYTES)
        except Throttled:
            raise
        except (GraphRefused, ConnectorError) as error:  # single requests will report the problem
            if isinstance(error, GraphRefused) and error.status not in _TOO_LARGE:
                self._allow(0)
            self._limit //= 2
            return Bundle([None] * len(keys))
        contents = [self._content(answer) for answer in answers]
        gone = frozenset(key for key, answer in zip(keys, answers, strict=True) if answer.is_gone)
        return Bundle(contents, gone, self._pause(answers))

    def _pause(self, answers: Sequence[Sub]) -> Throttled | None:
        """According to a report (2022), more than four are too many, although Microsoft documents that four run at once."""
        throttled = [answer.headers for answer in answers if answer.is_throttled]
        if not throttled:
            return None
        if len(answers) > AT_ONCE:
            self._allow(AT_ONCE)
        return self._graph.throttled(max(throttled, key=lambda headers: retry_after(headers, 0.0)))

    def _content(self, answer: Sub) -> bytes | None:
        if answer.status != 200:
            return None
        content = decode(answer.text)
        if not content:
            self._allow(0)
        return content if content and _LOST_CHARACTER not in content else None

    def _allow(self, limit: int) -> None:
        """Limits bundles from this server for the lifetime of this process."""
        _TRIED_OUT[self._graph.root] = min(limit, _TRIED_OUT.get(self._graph.root, limit))


def decode(text: str) -> bytes | None:
    """Decodes base64 in either alphabet, and nothing else. A raw message is never valid base64: it has colons and spaces."""
    if "+" not in text and "/" not in text:
        text = text.translate(_FROM_URL_SAFE)
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except (binascii.Error, ValueError):
        return None
