"""Mail of a list, generated together with the truth about its conversations: what real lists make difficult, and nothing else.

Weekly reports under one subject, each with answers; patch series and their next versions; long discussions; notices that nobody
answers; short subjects that everybody uses; and replies from mail programs that name nothing but the subject.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

LIST = "dev@lists.example.org"
_START = datetime(2022, 1, 3, 9, tzinfo=UTC)
_SHORT = ("question", "help", "test", "update", "meeting", "build broken", "release")
_PARTS = ("parser", "index", "queue", "store", "search", "reader", "writer", "cursor", "ledger", "journal")
_VERBS = ("fix", "speed up", "rework", "document", "remove", "split", "test")


@dataclass(frozen=True, slots=True)
class TrueMail:
    """A generated mail, and the number of its conversation."""

    raw: bytes
    conversation: int


@dataclass(slots=True)
class ListTraffic:
    """`nameless`: the share of replies that name no message."""

    weeks: int = 150
    nameless: float = 0.1
    chance: random.Random = field(default_factory=lambda: random.Random(22))
    _mails: list[TrueMail] = field(default_factory=list)
    _conversations: int = 0

    def mails(self) -> list[TrueMail]:
        for week in range(self.weeks):
            at = _START + timedelta(weeks=week)
            for kind, count in self._in_a_week():
                for number in range(count):
                    self._conversations += 1
                    kind(at + timedelta(hours=self.chance.uniform(0, 120)), number)
        return self._mails

    def _in_a_week(self) -> tuple[tuple[Callable[[datetime, int], None], int], ...]:
        return (self._report, 2), (self._series, 4), (self._discussion, 12), (self._notice, 3), (self._short, 14)

    def _report(self, at: datetime, number: int) -> None:
        author = self._person() if number else "lead@example.org"
        subject = ("Weekly report", "Status of the builds")[number]
        first = self._write(at, author, subject, ())
        self._answers(at, author, subject, (first,), self.chance.randint(0, 4))

    def _series(self, at: datetime, number: int) -> None:
        author, subject = self._person(), f"{self.chance.choice(_PARTS)}: {self.chance.choice(_VERBS)} {number}"
        patches = self.chance.randint(2, 7)
        for version in range(1, self.chance.randint(2, 4)):
            tag = "PATCH" if version == 1 else f"PATCH v{version}"
            self._conversations += version > 1
            cover = self._write(at, author, f"[{tag} 0/{patches}] {subject}", ())
            for patch in range(1, patches + 1):
                sent = at + timedelta(seconds=patch)
                title = f"[{tag} {patch}/{patches}] {subject} in {_PARTS[patch]}"
                one = self._write(sent, author, title, (cover,))
                self._answers(sent, author, title, (cover, one), self.chance.choice((0, 0, 1, 3)))
            at += timedelta(days=self.chance.randint(5, 12))

    def _discussion(self, at: datetime, number: int) -> None:
        author = self._person()
        subject = f"{self.chance.choice(_VERBS)} the {self.chance.choice(_PARTS)} of {self.chance.choice(_PARTS)}?"
        first = self._write(at, author, subject, ())
        self._answers(at, author, subject, (first,), self.chance.randint(0, 9))

    def _notice(self, at: datetime, number: int) -> None:
        self._write(at, "robot@example.org", ("Build failed", "New release of the tools", "Backup finished")[number], ())

    def _short(self, at: datetime, number: int) -> None:
        author, subject = self._person(), self.chance.choice(_SHORT)
        first = self._write(at, author, subject, ())
        self._answers(at, author, subject, (first,), self.chance.randint(0, 5))

    def _answers(self, at: datetime, author: str, subject: str, before: tuple[str, ...], count: int) -> None:
        """Each answers to the first one, or to an answer before it."""
        asked = [(at, author, before)]
        for _ in range(count):
            asked_at, whom, path = self.chance.choice(asked)
            sent = asked_at + timedelta(hours=self.chance.expovariate(1 / 30) + 0.1)
            answerer = self._person()
            names = () if self.chance.random() < self.nameless else path
            one = self._write(sent, answerer, f"Re: {subject}", names, to=f"{whom}, {LIST}")
            asked.append((sent, answerer, (*path, one)))

    def _write(self, at: datetime, author: str, subject: str, references: tuple[str, ...], to: str = LIST) -> str:
        name = f"{len(self._mails)}.{self.chance.getrandbits(32):08x}@example.org"
        head = [f"From: {author}", f"To: {to}", f"Subject: {subject}", f"Date: {format_datetime(at)}", f"Message-ID: <{name}>"]
        if references:
            head += [f"In-Reply-To: <{references[-1]}>", "References: " + " ".join(f"<{one}>" for one in references)]
        self._mails.append(TrueMail("\r\n".join([*head, "", "text", ""]).encode(), self._conversations))
        return name

    def _person(self) -> str:
        return f"person{self.chance.randint(1, 80)}@example.org"


def true_groups(mails: list[TrueMail]) -> Iterator[list[int]]:
    """The places of the mails of each conversation."""
    groups: dict[int, list[int]] = {}
    for place, mail in enumerate(mails):
        groups.setdefault(mail.conversation, []).append(place)
    yield from groups.values()
