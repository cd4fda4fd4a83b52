"""Where the grammar's choices come from: chance, or bytes that a fuzzer varies."""

import random
from collections.abc import Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")


class Chance(Protocol):
    def below(self, limit: int) -> int:
        """0 … limit - 1."""
        ...


class RandomChance:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def below(self, limit: int) -> int:
        return self._random.randrange(limit)


class GivenChance:
    """Each choice takes a byte or more; when they are used up, all choices are the first one, which ends the mail."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def below(self, limit: int) -> int:
        size = (limit.bit_length() + 7) // 8
        piece = self._data[self._at : self._at + size]
        self._at += size
        return int.from_bytes(piece, "big") % limit


def pick(chance: Chance, choices: Sequence[T]) -> T:
    return choices[chance.below(len(choices))]


def one_in(chance: Chance, count: int) -> bool:
    return chance.below(count) == count - 1
