"""Mail that exists, slightly broken: cut, repeated, flipped, and with pieces of the grammar put in."""

from collections.abc import Sequence

from tests.fuzz.chance import Chance, pick
from tests.fuzz.grammar import WORDS

_MOST_BYTES = 1 << 20


def mutated(chance: Chance, seeds: Sequence[bytes]) -> bytes:
    raw = bytearray(pick(chance, seeds))
    for _ in range(1 + chance.below(8)):
        at, length = chance.below(len(raw) + 1), chance.below(60)
        action = chance.below(6)
        if action == 0:
            del raw[at : at + length]
        elif action == 1:
            raw[at:at] = pick(chance, WORDS) * pick(chance, (1, 1, 2, 50, 3000))
        elif action == 2:
            raw[at:at] = raw[at : at + length] * pick(chance, (1, 2, 100))
        elif action == 3 and raw:
            raw[at % len(raw)] ^= 1 << chance.below(8)
        elif action == 4:
            other = pick(chance, seeds)
            raw[at:at] = other[: chance.below(len(other) + 1)]
        else:
            raw[at:at] = bytes(chance.below(256) for _ in range(length))
    return bytes(raw[:_MOST_BYTES])
