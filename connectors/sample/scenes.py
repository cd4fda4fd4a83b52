"""Who writes to whom and when, without a word of text: cheap enough to ask for every mailbox."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random

from connectors.sample import people
from connectors.sample.broken import BROKEN
from connectors.sample.languages import TONGUES
from connectors.sample.people import Person
from connectors.sample.topics import LIST, ORDER, WORK

FIRST_AT = datetime(2020, 2, 3, tzinfo=UTC)
_DAYS = 1850


@dataclass(frozen=True, slots=True)
class Note:
    """A message, before it is written."""

    sender: Person
    to: tuple[Person, ...]
    sent_at: datetime
    cc: tuple[Person, ...] = ()

    @property
    def recipients(self) -> tuple[Person, ...]:
        return self.to + self.cc


@dataclass(frozen=True, slots=True)
class Scene:
    """Some messages that belong together."""

    number: int
    kind: str
    notes: tuple[Note, ...]
    topic: str = ""
    """Name of the topic, language or damage."""


class Stage:
    """All scenes of the organisation, each made from its number alone."""

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

    def scenes(self, person: Person) -> Iterator[Scene]:
        """Those in which this person plays. Who plays where is remembered, as a bit for each."""
        if not self._players:
            self._players = [self._bits(self.scene(number)) for number in range(self.scenes_count)]
        bit = 1 << self.staff.index(person)
        return (self.scene(number) for number, players in enumerate(self._players) if players & bit)

    def _bits(self, scene: Scene) -> int:
        players = {player for note in scene.notes for player in (note.sender, *note.recipients)}
        return sum(1 << number for number, person in enumerate(self.staff) if person in players)

    def some(self, rng: Random, least: int, most: int) -> list[Person]:
        """People who talk; a shared mailbox does not."""
        return rng.sample(self._people, rng.randint(least, min(most, len(self._people))))


Cast = tuple[str, tuple[Note, ...]]


def _later(rng: Random, at: datetime) -> datetime:
    """An answer: mostly the same day, and never at night or on a weekend."""
    at += timedelta(minutes=int(min(rng.expovariate(1 / 150), 6000)) + 3, seconds=rng.randrange(60))
    if not 7 <= at.hour < 18:
        at += timedelta(hours=(8 - at.hour) % 24)
    return _weekday(at)


def _weekday(at: datetime) -> datetime:
    return at + timedelta(days=7 - at.weekday()) if at.weekday() > 4 else at


def _work(stage: Stage, rng: Random, at: datetime, _: str) -> Cast:
    topic = rng.choice([topic for topic in WORK if topic.first_year <= at.year <= topic.last_year])
    group = stage.some(rng, 2, 5)
    notes = [Note(group[0], tuple(group[1:2]), at, tuple(group[2:]))]
    for _number in range(rng.choice((0, 1, 1, 2, 2, 3, 5))):
        at = _later(rng, at)
        sender = rng.choice([person for person in group if person != notes[-1].sender])
        others = tuple(person for person in group if person not in (sender, notes[-1].sender))
        notes.append(Note(sender, (notes[-1].sender,), at, others))
    return topic.name, tuple(notes)


def _dialogue(outside: Person, inside: list[Person], rng: Random, at: datetime, length: int) -> tuple[Note, ...]:
    """From outside, and back and forth; colleagues read along."""
    notes = []
    for number in range(length):
        pair = (outside, inside[0]) if number % 2 == 0 else (inside[0], outside)
        notes.append(Note(pair[0], (pair[1],), at, tuple(inside[1:])))
        at = _later(rng, at)
    return tuple(notes)


def _order(stage: Stage, rng: Random, at: datetime, _: str) -> Cast:
    inside = stage.some(rng, 1, 2)
    return ORDER.name, _dialogue(rng.choice(people.CUSTOMERS), inside, rng, at, rng.randint(1, 3))


def _foreign(stage: Stage, rng: Random, at: datetime, language: str) -> Cast:
    language = language or rng.choice(_LANGUAGES)
    seller = people.STAFF[people.SELLERS[language]]
    inside = [seller] if seller in stage.staff else [stage.staff[0]]
    inside += [person for person in stage.some(rng, 1, 1) if person not in inside and rng.random() < 0.5]
    return language, _dialogue(rng.choice(people.FOREIGN[language]), inside, rng, at, rng.randint(1, 3))


def _invoice(stage: Stage, rng: Random, at: datetime, _: str) -> Cast:
    cc = (stage.staff[2],) if rng.random() < 0.4 else ()
    return "invoice", (Note(rng.choice(people.SUPPLIERS), (people.ACCOUNTS,), at, cc),)


def _newsletter(stage: Stage, rng: Random, at: datetime, _: str) -> Cast:
    return "newsletter", (Note(rng.choice(people.NEWSLETTERS), tuple(stage.some(rng, 1, 1)), at),)


def _list(stage: Stage, rng: Random, at: datetime, _: str) -> Cast:
    group = stage.some(rng, 2, 4)
    notes = []
    for _number in range(rng.randint(1, 3)):
        sender = rng.choice((*people.CUSTOMERS, group[0]))
        notes.append(Note(sender, (LAMPMAKERS,), at, tuple(group)))
        at = _later(rng, at)
    return LIST.name, tuple(notes)


def _meeting(stage: Stage, rng: Random, at: datetime, _: str) -> Cast:
    group = stage.some(rng, 2, 5)
    return "meeting", (Note(group[0], tuple(group[1:]), at),)


def _travel(stage: Stage, rng: Random, at: datetime, _: str) -> Cast:
    return "travel", (Note(people.TRAVEL, tuple(stage.some(rng, 1, 1)), at),)


def _spam(stage: Stage, rng: Random, at: datetime, _: str) -> Cast:
    return "spam", (Note(rng.choice(people.STRANGERS), tuple(stage.some(rng, 1, 2)), at),)


def _bounce(stage: Stage, rng: Random, at: datetime, _: str) -> Cast:
    sender = stage.some(rng, 1, 1)[0]
    lost = Person("Old Contact", f"contact{rng.randrange(90)}@closed-shop.example", "", "Closed Shop")
    return "bounce", (Note(sender, (lost,), at), Note(POSTMASTER, (sender,), at + timedelta(seconds=4)))


def _away(stage: Stage, rng: Random, at: datetime, _: str) -> Cast:
    sender, away = stage.some(rng, 2, 2)
    return "away", (Note(sender, (away,), at), Note(away, (sender,), at + timedelta(seconds=2)))


def _draft(stage: Stage, rng: Random, at: datetime, _: str) -> Cast:
    sender = stage.some(rng, 1, 1)[0]
    return "draft", (Note(sender, (rng.choice(people.CUSTOMERS),), at),)


def _broken(stage: Stage, rng: Random, at: datetime, name: str) -> Cast:
    sender, to = rng.choice(people.CUSTOMERS), tuple(stage.some(rng, 1, 1))
    return name, tuple(Note(sender, to, at + timedelta(hours=number)) for number in range(len(BROKEN[name])))


def _unreadable(stage: Stage, rng: Random, at: datetime, _: str) -> Cast:
    return "unreadable", (Note(rng.choice(people.CUSTOMERS), tuple(stage.some(rng, 1, 1)), at),)


LAMPMAKERS = Person("Lampmakers", "lampmakers@lists.craft.example", "", "")
POSTMASTER = Person("Mail Delivery System", f"mailer-daemon@{people.DOMAIN}", "", "")
_LANGUAGES = tuple(TONGUES)
_CASTS: dict[str, Callable[[Stage, Random, datetime, str], Cast]] = {
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
"""What the smallest sample has, too, spread over the years."""
