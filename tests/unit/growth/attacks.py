"""Texts on which a pattern may need more than linear time: a beginning, something repeated, and an end at which it fails."""

import random
from collections.abc import Iterator
from typing import Any

from tests.unit.growth.backtracking import Backtracking, TooManySteps

_ALPHABET = "a0Z_- \t\n\r\"'<>()[]{}\\:;,.=@?*/+&#%|!~^\x00\x7f\xe9\u200b\u56de"
_ENDS = ("", "\x01", "\n\x01")
_CHARACTERS = frozenset({"LITERAL", "NOT_LITERAL", "ANY", "IN"})
_REPEATS = frozenset({"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"})
_FEW, _MORE = 16, 48
_MANY, _VERY_MANY = 96, 288
_SUSPICIOUS = 3.7  # three times the size: linear is 3, quadratic 9
_PROVEN = 5.0
_ALLOWED = 400_000
_STARTS, _PAIRS = 14, 120


class Attacks:
    def __init__(self, machine: Backtracking) -> None:
        self._machine = machine
        self._chance = random.Random(repr(machine.pattern.pattern))
        self._nodes: list[tuple[Any, Any]] = []
        self._collect(machine.tree)
        self._letters = self._classes()

    def worst(self, method: str) -> str | None:
        """A text that proves more than linear growth, or None."""
        for start, middle, end in self._shapes():
            if self._growth(start, middle, end, method, _FEW, _MORE) > _SUSPICIOUS:
                growth = self._growth(start, middle, end, method, _MANY, _VERY_MANY)
                if growth > _PROVEN:
                    return f"{start!r} + {middle!r} * n + {end!r}: {growth:.1f} times the steps for 3 times the size"
        return None

    def _growth(self, start: str, middle: str, end: str, method: str, few: int, more: int) -> float:
        try:
            less = self._machine.count(start + middle * few + end, method, _ALLOWED)
            return self._machine.count(start + middle * more + end, method, _ALLOWED * 3) / max(1, less)
        except TooManySteps:
            return float("inf")

    def _shapes(self) -> Iterator[tuple[str, str, str]]:
        starts = list(dict.fromkeys(["", *self._samples(self._before_repeats(), 3)]))[:_STARTS]
        bodies = list(dict.fromkeys(self._samples([[node] for node in self._repeated()], 3)))
        whole = list(dict.fromkeys([*starts[1:], *self._samples([list(self._machine.tree)], 4)]))
        pairs = [a + b for a in self._letters for b in self._letters if a != b]
        for end in _ENDS:
            for middle in (*self._letters, *bodies, *whole):
                for start in starts if middle in self._letters or middle in bodies else [""]:
                    if middle:
                        yield start, middle, end
        for middle in self._chance.sample(pairs, min(len(pairs), _PAIRS)):
            for start in starts[:4]:
                yield start, middle, "\x01"

    def _collect(self, tree: Any) -> None:
        for op, value in tree:
            self._nodes.append((op, value))
            for child in _children(op, value):
                self._collect(child)

    def _repeated(self) -> list[tuple[Any, Any]]:
        return [node for op, value in self._nodes if str(op) in _REPEATS for node in [_sequence(value[2])]]

    def _classes(self) -> list[str]:
        """One letter for each set of characters that the pattern tells apart."""
        characters = [node for node in self._nodes if str(node[0]) in _CHARACTERS]
        literal = [chr(value) for op, value in characters if str(op) in ("LITERAL", "NOT_LITERAL")]
        seen: dict[tuple[bool, ...], str] = {}
        fits = [self._machine.fits(*node) for node in characters]
        for char in dict.fromkeys([*_ALPHABET, *literal]):
            if self._is_possible(char):
                seen.setdefault(tuple(fit(char) for fit in fits), char)
        several = [char for key, char in seen.items() if sum(key) != 1]
        return several if len(several) <= 16 else self._chance.sample(several, 16)

    def _is_possible(self, char: str) -> bool:
        return not self._machine.is_bytes or ord(char) < 256

    def examples(self, count: int) -> list[str]:
        return list(dict.fromkeys(self._samples([list(self._machine.tree)], count)))

    def _before_repeats(self) -> list[list[tuple[Any, Any]]]:
        found: list[list[tuple[Any, Any]]] = []

        def walk(tree: Any, before: list[tuple[Any, Any]]) -> None:
            for op, value in tree:
                if str(op) in _REPEATS:
                    found.append(list(before))
                for child in _children(op, value):
                    walk(child, before)
                before = [*before, (op, value)]

        walk(self._machine.tree, [])
        found.sort(key=len)
        unique = list({repr(one): one for one in found}.values())
        return unique if len(unique) <= 8 else self._chance.sample(unique, 8)

    def _samples(self, sequences: list[list[tuple[Any, Any]]], each: int) -> list[str]:
        return [self._sample(nodes) for nodes in sequences for _ in range(each)]

    def _sample(self, nodes: Any) -> str:
        return "".join(self._one(op, value) for op, value in nodes)

    def _one(self, op: Any, value: Any) -> str:
        name = str(op)
        if name in _CHARACTERS:
            return self._character(op, value)
        if name == "BRANCH":
            return self._sample(self._chance.choice(value[1]))
        if name in _REPEATS:
            least, most, tree = value
            times = self._chance.randint(least, min(int(most), least + 2))
            return "".join(self._sample(tree) for _ in range(times))
        if name in ("SUBPATTERN", "ATOMIC_GROUP", "SEQUENCE"):
            return "".join(self._sample(child) for child in _children(op, value))
        if name == "ASSERT" and value[0] < 0:
            return self._sample(value[1])  # what must stand before
        return ""

    def _character(self, op: Any, value: Any) -> str:
        if str(op) == "LITERAL":
            return chr(value)
        fits = self._machine.fits(op, value)
        few = [char for char in _ALPHABET if fits(char) and self._is_possible(char)] or [
            chr(n) for n in range(256) if fits(chr(n))
        ]
        return self._chance.choice(few) if few else ""


def _sequence(tree: Any) -> tuple[Any, Any]:
    return "SEQUENCE", tree


def _children(op: Any, value: Any) -> list[Any]:
    name = str(op)
    if name == "BRANCH":
        return list(value[1])
    if name in _REPEATS:
        return [value[2]]
    if name == "SUBPATTERN":
        return [value[3]]
    if name in ("ASSERT", "ASSERT_NOT"):
        return [value[1]]
    return [value] if name in ("ATOMIC_GROUP", "SEQUENCE") else []
