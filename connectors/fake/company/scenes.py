"""Who writes to whom and when, without any text: cheap enough to compute for every mailbox."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random

from connectors.fake.company import people
from connectors.fake.company.broken import BROKEN
from connectors.fake.company.languages import TONGUES
from connectors.fake.company.people import Employee
from connectors.fake.company.topics import LIST, ORDER, WORK

FIRST_AT = datetime(2020, 2, 3, tzinfo=UTC)
_DAYS = 1850


@dataclass(frozen=True, slots=True)
class Note:
    """A message, before its text is generated."""

    sender: Employee
    to: tuple[Employee, ...]
    sent_at: datetime
    cc: tuple[Employee, ...] = ()

    @property
    def recipients(self) -> tuple[Employee, ...]:
        return self.to + self.cc


@dataclass(frozen=True, slots=True)
class Scene:
    """Messages that belong together."""

    number: int
    kind: str
    notes: tuple[Note, ...]
    topic: str = ""
    """The name of the topic, language or kind of damage."""


class SceneList:
    """All scenes of the organisation, each generated from its number alone."""

    def __init__(self, seed: int, staff_count: int, scenes_count: int) -> None:
        self.staff = people.STAFF[:staff_count]
        self._people = [person for person in self.staff if person is not people.ACCOUNTS]
        self.scenes_count = scenes_count
        self._seed = zlib.crc32(str(seed).encode())
        self._players: list[int] = []
        self._fixed = {(2 * place + 1) * scenes_count // (2 * len(_FIXED)): scene for place, scene in enumerate(_FIXED)}

    def random(self, number: int, purpose: int) -> Random:
        return Random((self._seed << 32) + number * 4 + purpose)  # noqa: S311

    def scene(self, number: int) -> Scene:
        rng = self.random(number, 0)
        kind, topic = self._fixed.get(number) or (rng.choices(_KINDS, cum_weights=_WEIGHTS)[0], "")
        day = FIRST_AT + timedelta(days=int(_DAYS * (number + rng.random()) / self.scenes_count))
        at = _weekday(day) + timedelta(seconds=rng.randrange(7 * 3600, 17 * 3600))
        topic, notes = _CASTS[kind](self, rng, at, topic)
        return Scene(number, kind, notes, topic)

    def scenes(self, person: Employee) -> Iterator[Scene]:
        """The scenes that this person takes part in. Participation is cached as one bit per person."""
        if not self._players:
            self._players = [self._bits(self.scene(number)) for number in range(self.scenes_count)]
        bit = 1 << self.staff.index(person)
        return (self.scene(number) for number, players in enumerate(self._players) if players & bit)

    def _bits(self, scene: Scene) -> int:
        players = {player for note in scene.notes for player in (note.sender, *note.recipients)}
        return sum(1 << number for number, person in enumerate(self.staff) if person in players)

    def some(self, rng: Random, least: int, limit: int) -> list[Employee]:
        """Random employees; shared mailboxes do not write."""
        return rng.sample(self._people, rng.randint(least, min(limit, len(self._people))))


Cast = tuple[str, tuple[Note, ...]]


def _later(rng: Random, at: datetime) -> datetime:
    """The time of a reply: mostly the same day, never at night or on a weekend."""
    at += timedelta(minutes=int(min(rng.expovariate(1 / 150), 6000)) + 3, seconds=rng.randrange(60))
    if not 7 <= at.hour < 18:
        at += timedelta(hours=(8 - at.hour) % 24)
    return _weekday(at)


def _weekday(at: datetime) -> datetime:
    return at + timedelta(days=7 - at.weekday()) if at.weekday() > 4 else at


def _work(stage: SceneList, rng: Random, at: datetime, _: str) -> Cast:
    topic = rng.choice([topic for topic in WORK if topic.first_year <= at.year <= topic.last_year])
    group = stage.some(rng, 2, 5)
    notes = [Note(group[0], tuple(group[1:2]), at, tuple(group[2:]))]
    for _number in range(rng.choice((0, 1, 1, 2, 2, 3, 5))):
        at = _later(rng, at)
        sender = rng.choice([person for person in group if person != notes[-1].sender])
        others = tuple(person for person in group if person not in (sender, notes[-1].sender))
        notes.append(Note(sender, (notes[-1].sender,), at, others))
    return topic.name, tuple(notes)


def _dialogue(outside: Employee, inside: list[Employee], rng: Random, at: datetime, length: int) -> tuple[Note, ...]:
    """A dialogue started from outside; colleagues are copied."""
    notes = []
    for number in range(length):
        pair = (outside, inside[0]) if number % 2 == 0 else (inside[0], outside)
        notes.append(Note(pair[0], (pair[1],), at, tuple(inside[1:])))
        at = _later(rng, at)
    return tuple(notes)


def _order(stage: SceneList, rng: Random, at: datetime, _: str) -> Cast:
    inside = stage.some(rng, 1, 2)
    return ORDER.name, _dialogue(rng.choice(people.CUSTOMERS), inside, rng, at, rng.randint(1, 3))


def _foreign(stage: SceneList, rng: Random, at: datetime, language: str) -> Cast:
    language = language or rng.choice(_LANGUAGES)
    seller = people.STAFF[people.SELLERS[language]]
    inside = [seller] if seller in stage.staff else [stage.staff[0]]
    inside += [person for person in stage.some(rng, 1, 1) if person not in inside and rng.random() < 0.5]
    return language, _dialogue(rng.choice(people.FOREIGN[language]), inside, rng, at, rng.randint(1, 3))


def _invoice(stage: SceneList, rng: Random, at: datetime, _: str) -> Cast:
    cc = (stage.staff[2],) if rng.random() < 0.4 else ()
    return "invoice", (Note(rng.choice(people.SUPPLIERS), (people.ACCOUNTS,), at, cc),)


def _newsletter(stage: SceneList, rng: Random, at: datetime, _: str) -> Cast:
    return "newsletter", (Note(rng.choice(people.NEWSLETTERS), tuple(stage.some(rng, 1, 1)), at),)


def _list(stage: SceneList, rng: Random, at: datetime, _: str) -> Cast:
    group = stage.some(rng, 2, 4)
    notes = []
    for _number in range(rng.randint(1, 3)):
        sender = rng.choice((*people.CUSTOMERS, group[0]))
        notes.append(Note(sender, (LAMPMAKERS,), at, tuple(group)))
        at = _later(rng, at)
    return LIST.name, tuple(notes)


def _meeting(stage: SceneList, rng: Random, at: datetime, _: str) -> Cast:
    group = stage.some(rng, 2, 5)
    return "meeting", (Note(group[0], tuple(group[1:]), at),)


def _travel(stage: SceneList, rng: Random, at: datetime, _: str) -> Cast:
    return "travel", (Note(people.TRAVEL, tuple(stage.some(rng, 1, 1)), at),)


def _spam(stage: SceneList, rng: Random, at: datetime, _: str) -> Cast:
    return "spam", (Note(rng.choice(people.STRANGERS), tuple(stage.some(rng, 1, 2)), at),)


def _bounce(stage: SceneList, rng: Random, at: datetime, _: str) -> Cast:
    sender = stage.some(rng, 1, 1)[0]
    lost = Employee("Old Contact", f"contact{rng.randrange(90)}@closed-shop.example", "", "Closed Shop")
    return "bounce", (Note(sender, (lost,), at), Note(POSTMASTER, (sender,), at + timedelta(seconds=4)))


def _away(stage: SceneList, rng: Random, at: datetime, _: str) -> Cast:
    sender, away = stage.some(rng, 2, 2)
    return "away", (Note(sender, (away,), at), Note(away, (sender,), at + timedelta(seconds=2)))


def _draft(stage: SceneList, rng: Random, at: datetime, _: str) -> Cast:
    sender = stage.some(rng, 1, 1)[0]
    return "draft", (Note(sender, (rng.choice(people.CUSTOMERS),), at),)


def _broken(stage: SceneList, rng: Random, at: datetime, name: str) -> Cast:
    sender, to = rng.choice(people.CUSTOMERS), tuple(stage.some(rng, 1, 1))
    return name, tuple(Note(sender, to, at + timedelta(hours=number)) for number in range(len(BROKEN[name])))


def _unreadable(stage: SceneList, rng: Random, at: datetime, _: str) -> Cast:
    return "unreadable", (Note(rng.choice(people.CUSTOMERS), tuple(stage.some(rng, 1, 1)), at),)


LAMPMAKERS = Employee("Lampmakers", "lampmakers@lists.craft.example", "", "")
POSTMASTER = Employee("Mail Delivery System", f"mailer-daemon@{people.DOMAIN}", "", "")
_LANGUAGES = tuple(TONGUES)
_CASTS: dict[str, Callable[[SceneList, Random, datetime, str], Cast]] = {
    "work": _work,
    "order": _order,
    "foreign": _foreign,
    "invoice": _invoice,
    "newsletter": _newsletter,
    "list": _list,
    "meeting": _meeting,
    "travel": _travel,
    "spam": _spam,
    "bounce": _bounce,
    "away": _away,
    "draft": _draft,
    "broken": _broken,
    "unreadable": _unreadable,
}
_KINDS = tuple(_CASTS)[:-2]
_WEIGHTS = (36, 52, 68, 75, 82, 86, 90, 93, 96, 97, 99, 100)

_FIXED = sorted(
    [
        *(("broken", name) for name in BROKEN),
        *(("foreign", language) for language in TONGUES),
        *((kind, "") for kind in ("bounce", "draft", "travel", "spam", "invoice", "newsletter", "meeting", "list")),
        *[("unreadable", "")] * 4,
    ],
    key=lambda scene: zlib.crc32(scene[1].encode() + scene[0].encode()),
)
"""Scenes that even the smallest sample has, spread over the years."""
