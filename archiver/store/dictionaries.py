"""Zstandard dictionaries: small messages have most of their words in common, and a dictionary stores them once."""

from __future__ import annotations

import hashlib
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import zstandard

LEVEL = 3
DICTIONARY_BYTES = 112 << 10
SAMPLE_BYTES = 32 << 10
_SAMPLES_BYTES = 8 << 20
_FIRST_TRAINING = 400
_NEXT_TRAININGS = 4_000, 20_000, 100_000  # samples seen since the last one; after that, each 100,000
# Nearly as good as the parameters that the trainer would search for, in a tenth of the time.
_SEGMENT, _DMER, _HASTE = 1024, 8, 10
_TRIED_SAMPLES = 200
_WORTH_IT = 0.98
"""A new dictionary replaces the old one when recent mail becomes this much smaller with it."""


@dataclass(frozen=True, slots=True)
class Dictionary:
    id: int
    sha256: bytes
    data: bytes = field(repr=False)
    prepared: zstandard.ZstdCompressionDict = field(repr=False)

    @classmethod
    def of(cls, data: bytes) -> Dictionary:
        """The id is the beginning of the SHA-256, so that the same dictionary has the same id everywhere."""
        sha256 = hashlib.sha256(data).digest()
        prepared = zstandard.ZstdCompressionDict(data)
        prepared.precompute_compress(level=LEVEL)
        return cls(dictionary_id(sha256), sha256, data, prepared)


def dictionary_id(sha256: bytes) -> int:
    return int.from_bytes(sha256[:4], "big") or 1


def compressor(dictionary: Dictionary | None) -> zstandard.ZstdCompressor:
    """For one thread at a time."""
    prepared = dictionary.prepared if dictionary else None
    return zstandard.ZstdCompressor(level=LEVEL, dict_data=prepared, write_dict_id=False, write_checksum=False)


class Trainer:
    """Collects recent small contents, and trains a dictionary from them when it is worth it."""

    def __init__(self, current: Dictionary | None = None) -> None:
        self.current = current
        self.stored: set[int] = set()
        """Ids of dictionaries that are already in the archive, so that packs need not include them."""
        self._samples: deque[bytes] = deque()
        self._sample_bytes = 0
        self._seen = 0
        self._trainings = 0 if current is None else 1
        self._lock = threading.Lock()

    def observe(self, content: bytes) -> None:
        if not content:
            return
        with self._lock:
            sample = content[:SAMPLE_BYTES]
            self._samples.append(sample)
            self._sample_bytes += len(sample)
            self._seen += 1
            while self._sample_bytes > _SAMPLES_BYTES:
                self._sample_bytes -= len(self._samples.popleft())

    def train_if_due(self) -> Dictionary | None:
        """Replaces the current dictionary by a better one and returns it; None if there is nothing to gain yet."""
        with self._lock:
            if self._seen < self._due_after():
                return None
            self._seen = 0
            self._trainings += 1
            samples = list(self._samples)
        made = train(samples)
        if made is None or (self.current is not None and not _is_better(made, self.current, samples)):
            return None
        self.current = made
        return made

    def _due_after(self) -> int:
        if self._trainings == 0:
            return _FIRST_TRAINING
        return _NEXT_TRAININGS[min(self._trainings, len(_NEXT_TRAININGS)) - 1]


def train(samples: list[bytes]) -> Dictionary | None:
    try:
        made = zstandard.train_dictionary(DICTIONARY_BYTES, list(samples), k=_SEGMENT, d=_DMER, accel=_HASTE)
    except zstandard.ZstdError:  # too few samples, or nothing in common
        return None
    return Dictionary.of(made.as_bytes())


def _is_better(made: Dictionary, current: Dictionary, samples: list[bytes]) -> bool:
    recent = samples[-_TRIED_SAMPLES:]
    new, old = compressor(made), compressor(current)
    return sum(len(new.compress(item)) for item in recent) < _WORTH_IT * sum(len(old.compress(item)) for item in recent)


class Decompressors:
    """Decompressors by dictionary id, each thread its own. A dictionary that is not known yet is fetched by `load`."""

    def __init__(self, load: Callable[[int], bytes | None]) -> None:
        self._load = load
        self._known: dict[int, zstandard.ZstdCompressionDict] = {}
        self._local = threading.local()

    def add(self, dictionary: Dictionary) -> None:
        self._known.setdefault(dictionary.id, dictionary.prepared)

    def find(self, wanted: int) -> zstandard.ZstdDecompressor | None:
        """None if the dictionary is lost."""
        mine = self._mine()
        found = mine.get(wanted)
        if found is not None:
            return found
        if not wanted:
            return mine.setdefault(0, zstandard.ZstdDecompressor())
        prepared = self._known.get(wanted)
        if prepared is None:
            data = self._load(wanted)
            if data is None:
                return None
            prepared = self._known.setdefault(wanted, zstandard.ZstdCompressionDict(data))
        return mine.setdefault(wanted, zstandard.ZstdDecompressor(dict_data=prepared))

    def _mine(self) -> dict[int, zstandard.ZstdDecompressor]:
        try:
            made: dict[int, zstandard.ZstdDecompressor] = self._local.made
        except AttributeError:
            made = self._local.made = {}
        return made
