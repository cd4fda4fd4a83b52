"""A backtracking matcher over the parse tree of Python's own regular expressions that counts its steps.

The engine in C can't be asked how often it steps back. This one takes the same tree (`re._parser`), tries alternatives in the
same order, and counts each comparison of a character and each attempt to go on, so that growth can be told without a clock. It
lacks the engine's shortcuts (literal prefixes, known characters that must follow), all of which are constant factors.

Repeats with a bound, such as `{1,998}`, are cut to `BOUND`: they are linear whatever the input is, with the bound as a factor.
"""

import re
import sys
from collections.abc import Callable
from functools import reduce
from itertools import groupby
from typing import Any

BOUND = 8
_parser: Any = vars(re)["_parser"]
_constants: Any = vars(re)["_constants"]
_ONE_CHARACTER = frozenset({"LITERAL", "NOT_LITERAL", "ANY", "IN"})

Text = str | bytes
Continue = Callable[[int], bool]
Matcher = Callable[[int, Continue], bool]


def _then(first: Matcher, second: Matcher) -> Matcher:
    return lambda at, go_on: first(at, lambda after: second(after, go_on))


class TooManySteps(Exception):
    """More than were allowed."""


class _Fitting(dict[str, bool]):
    """Whether a character fits, asked once for each."""

    def __init__(self, ask: Callable[[str], bool]) -> None:
        super().__init__()
        self._ask = ask

    def __missing__(self, char: str) -> bool:
        self[char] = fits = self._ask(char)
        return fits


class Backtracking:
    """One pattern, ready to be run on texts."""

    def __init__(self, pattern: "re.Pattern[Any]", bound: int = BOUND) -> None:
        self.pattern = pattern
        self._bound = bound
        self.tree = _parser.parse(pattern.pattern, pattern.flags & ~re.DEBUG)
        self.is_bytes = isinstance(pattern.pattern, bytes)
        self._flags = pattern.flags
        self._groups: dict[int, tuple[int, int]] = {}
        self._chars: dict[str, _Fitting] = {}
        self._root = self._sequence(list(self.tree))
        first = self.tree[0] if len(self.tree) else ("", None)
        self._first = self.fits(*first) if str(first[0]) in _ONE_CHARACTER else None
        self._text = ""
        self.steps = self._allowed = 0

    def count(self, text: str, method: str, allowed: int) -> int:
        """The steps of `match`, `fullmatch`, or of going through the whole text as `findall` and `sub` do."""
        self._text, self.steps, self._allowed = text, 0, allowed
        deep = sys.getrecursionlimit()
        sys.setrecursionlimit(100_000)
        try:
            if method == "search":
                self._walk()
            else:
                self._at(0, len(text) if method == "fullmatch" else None)
        finally:
            sys.setrecursionlimit(deep)
        return self.steps

    def matches(self, text: str) -> bool:
        self._text, self.steps, self._allowed = text, 0, 1_000_000
        return self._at(0, None) is not None

    def _walk(self) -> None:
        at, text, first = 0, self._text, self._first
        while at <= len(text):
            if first is not None and (at == len(text) or not first(text[at])):  # the step that it would fail at
                self._step()
                at += 1
                continue
            end = self._at(at, None)
            at = end if end is not None and end > at else at + 1

    def _at(self, start: int, must_end: int | None) -> int | None:
        found: list[int] = []
        self._groups = {}

        def end(at: int) -> bool:
            if must_end is not None and at != must_end:
                return False
            found.append(at)
            return True

        return found[0] if self._root(start, end) else None

    def _step(self, count: int = 1) -> None:
        self.steps += count
        if self.steps > self._allowed:
            raise TooManySteps

    def _sequence(self, nodes: list[tuple[Any, Any]]) -> Matcher:
        matchers = [
            self._characters(list(group)) if is_literal else reduce(_then, (self._node(*node) for node in group))
            for is_literal, group in groupby(nodes, key=lambda node: str(node[0]) in _ONE_CHARACTER)
        ]
        return reduce(_then, matchers) if matchers else lambda at, go_on: go_on(at)

    def _node(self, op: Any, value: Any) -> Matcher:
        name = str(op)
        if name in _ONE_CHARACTER:
            return self._characters([(op, value)])
        maker = {
            "BRANCH": self._branch, "SUBPATTERN": self._group, "MAX_REPEAT": self._greedy, "MIN_REPEAT": self._lazy,
            "POSSESSIVE_REPEAT": self._possessive, "ATOMIC_GROUP": self._atomic, "ASSERT": self._looking,
            "ASSERT_NOT": self._not_looking, "AT": self._position, "GROUPREF": self._reference,
        }.get(name)  # fmt: skip
        if maker is None:
            raise NotImplementedError(f"{name} in {self.pattern.pattern!r}: teach it to {__name__}")
        return maker(value)

    def _characters(self, nodes: list[tuple[Any, Any]]) -> Matcher:
        """Several in a row, without a call for each: most steps of most patterns are these."""
        all_fit = [self.fits(*node) for node in nodes]

        def run(at: int, go_on: Continue) -> bool:
            text, here = self._text, at
            for fits in all_fit:
                if here >= len(text) or not fits(text[here]):
                    self._step(here - at + 1)
                    return False
                here += 1
            self._step(here - at)
            return go_on(here)

        return run

    def fits(self, op: Any, value: Any) -> Callable[[str], bool]:
        """Asked of the engine itself, on a pattern of this one character, so that categories and case are as it has them."""
        return self._chars.setdefault(repr((op, value)), _Fitting(lambda char: self._ask(op, value, char))).__getitem__

    def _ask(self, op: Any, value: Any, char: str) -> bool:
        state = _parser.State()
        state.flags, state.str = self._flags & ~re.DEBUG, self.pattern.pattern
        tree = _parser.SubPattern(state, [(op, value)])
        one = re._compiler.compile(tree, tree.state.flags)  # type: ignore[attr-defined]
        # The compiler takes a tree without its source for one of text; of bytes there is no other way than Latin-1.
        return one.match(char) is not None

    def _branch(self, value: Any) -> Matcher:
        choices = [self._sequence(list(choice)) for choice in value[1]]

        def run(at: int, go_on: Continue) -> bool:
            self._step()
            return any(choice(at, go_on) for choice in choices)

        return run

    def _group(self, value: Any) -> Matcher:
        number, _, _, tree = value
        inner = self._sequence(list(tree))
        if number is None:
            return inner

        def run(at: int, go_on: Continue) -> bool:
            def closed(end: int) -> bool:
                before = self._groups.get(number)
                self._groups[number] = (at, end)
                if go_on(end):
                    return True
                if before is None:
                    self._groups.pop(number, None)
                else:
                    self._groups[number] = before
                return False

            return inner(at, closed)

        return run

    def _bounds(self, value: Any) -> tuple[int, float, Any]:
        least, most, tree = value
        limit = float("inf") if most is _constants.MAXREPEAT else int(most)
        if limit != float("inf"):
            limit = min(limit, self._bound)
        return min(least, self._bound), limit, list(tree)

    def _greedy(self, value: Any) -> Matcher:
        least, most, nodes = self._bounds(value)
        if len(nodes) == 1 and str(nodes[0][0]) in _ONE_CHARACTER:
            return self._greedy_character(least, most, nodes[0])
        inner = self._sequence(nodes)

        def run(at: int, go_on: Continue, done: int = 0) -> bool:
            def again(end: int) -> bool:
                return (end > at or done < least) and run(end, go_on, done + 1)

            self._step()
            if done < most and inner(at, again):
                return True
            return done >= least and go_on(at)

        return run

    def _greedy_character(self, least: int, most: float, node: tuple[Any, Any]) -> Matcher:
        fits = self.fits(*node)

        def run(at: int, go_on: Continue) -> bool:
            end = self._run_of(at, fits, most)
            while end - at >= least:
                self._step()
                if go_on(end):
                    return True
                end -= 1
            return False

        return run

    def _run_of(self, at: int, fits: Callable[[str], bool], most: float) -> int:
        end, text = at, self._text
        last = min(len(text), at + most)
        while end < last and fits(text[end]):
            end += 1
        self._step(end - at + 1)
        return end

    def _lazy(self, value: Any) -> Matcher:
        least, most, nodes = self._bounds(value)
        inner = self._sequence(nodes)

        def run(at: int, go_on: Continue, done: int = 0) -> bool:
            self._step()
            if done >= least and go_on(at):
                return True
            return done < most and inner(at, lambda end: end > at and run(end, go_on, done + 1))

        return run

    def _possessive(self, value: Any) -> Matcher:
        least, most, nodes = self._bounds(value)
        inner = self._sequence(nodes)

        def run(at: int, go_on: Continue) -> bool:
            done = 0
            while done < most:
                self._step()
                end = self._once(inner, at)
                if end is None or (end == at and done >= least):
                    break
                at, done = end, done + 1
            return done >= least and go_on(at)

        return run

    def _once(self, inner: Matcher, at: int) -> int | None:
        found: list[int] = []

        def keep(end: int) -> bool:
            found.append(end)
            return True

        return found[0] if inner(at, keep) else None

    def _atomic(self, value: Any) -> Matcher:
        inner = self._sequence(list(value))

        def run(at: int, go_on: Continue) -> bool:
            self._step()
            end = self._once(inner, at)
            return end is not None and go_on(end)

        return run

    def _looking(self, value: Any, wanted: bool = True) -> Matcher:
        direction, tree = value
        inner = self._sequence(list(tree))
        width = tree.getwidth()[0] if direction < 0 else 0

        def run(at: int, go_on: Continue) -> bool:
            self._step()
            is_there = at >= width and inner(at - width, lambda _: True)
            return is_there is wanted and go_on(at)

        return run

    def _not_looking(self, value: Any) -> Matcher:
        return self._looking(value, wanted=False)

    def _position(self, value: Any) -> Matcher:
        name = str(value)

        def run(at: int, go_on: Continue) -> bool:
            self._step()
            return self._is_at(name, at) and go_on(at)

        return run

    def _is_at(self, name: str, at: int) -> bool:
        text = self._text
        if name in ("AT_BEGINNING", "AT_BEGINNING_LINE", "AT_BEGINNING_STRING"):
            lines = name == "AT_BEGINNING_LINE" or (name == "AT_BEGINNING" and bool(self._flags & re.MULTILINE))
            return at == 0 or (lines and text[at - 1] == "\n")
        if name in ("AT_END", "AT_END_LINE", "AT_END_STRING"):
            if at == len(text):
                return True
            lines = name == "AT_END_LINE" or (name == "AT_END" and bool(self._flags & re.MULTILINE))
            return name != "AT_END_STRING" and text[at] == "\n" and (lines or at == len(text) - 1)
        before = at > 0 and self._is_word(text[at - 1])
        after = at < len(text) and self._is_word(text[at])
        return (before != after) is ("NON" not in name)

    def _is_word(self, char: str) -> bool:
        return (char.isascii() or not self.is_bytes) and (char.isalnum() or char == "_")

    def _reference(self, number: Any) -> Matcher:
        def run(at: int, go_on: Continue) -> bool:
            if number not in self._groups:
                return False
            start, end = self._groups[number]
            said = self._text[start:end]
            self._step(len(said) + 1)
            return self._text.startswith(said, at) and go_on(at + len(said))

        return run
