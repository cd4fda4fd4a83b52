"""Queries made at random, and what they mean, found by looking at every message. Knows nothing of the parser and the index."""

from __future__ import annotations

import random
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from uuid import UUID

from tests.integration.search.mail_world import Kept, MailWorld

Test = Callable[["Seen"], bool]
_LATIN = re.compile("[a-z0-9]{2,20}")


def fold(text: str) -> str:
    text = unicodedata.normalize("NFKD", text.casefold()).replace("ı", "i")
    for letter, plain in (("ø", "o"), ("ł", "l"), ("đ", "d"), ("ð", "d"), ("þ", "th"), ("æ", "ae"), ("œ", "oe"), ("ħ", "h")):
        text = text.replace(letter, plain)
    return "".join(char for char in text if not unicodedata.combining(char) and unicodedata.category(char) != "Cf")


def run(text: str) -> str:
    """The words of a text, each between two spaces."""
    return " " + " ".join(re.findall(r"[^\W_]+", fold(text))) + " "


@dataclass(slots=True)
class Seen:
    """A message as a scan sees it."""

    kept: Kept
    passages: list[str]
    subject: str
    names: list[str]
    people: dict[str, list[tuple[str, str]]]
    places: list[tuple[str, str, tuple[str, ...]]]
    everything: str = ""

    @classmethod
    def of(cls, kept: Kept) -> Seen:
        marked = [False] * len(kept.mail.text)
        for start, end, _ in kept.mail.spans:
            marked[start:end] = [True] * (end - start)
        passages, begin = [], 0
        for place in range(1, len(marked) + 1):
            if place == len(marked) or marked[place] != marked[begin]:
                passages.append(run(kept.mail.text[begin:place]))
                begin = place
        people: dict[str, list[tuple[str, str]]] = {}
        for row in kept.rows.participants:
            people.setdefault(str(row["r"]), []).append((row["a"], row["n"] or ""))
        names = [one.name for one in kept.mail.attachments if one.name]
        places = [(place.mailbox, place.folder, place.labels) for place in kept.places]
        return cls(kept, passages, run(kept.rows.message["subject"] or ""), names, people, places)

    def person_texts(self, *roles: str) -> list[str]:
        return [run(text) for role in roles for one in self.people.get(role, ()) for text in one if text]

    def has(self, words: str) -> bool:
        if not self.everything:
            texts = [*self.passages, self.subject, *map(run, self.names), *self.person_texts(*ROLES)]
            texts += [run("\n".join(page.text for page in file.pages)) for file in self.kept.files]
            self.everything = "\n".join(texts)
        return f" {words} " in self.everything


ROLES = ("from", "sender", "reply_to", "to", "cc", "bcc")


@dataclass(frozen=True, slots=True)
class Query:
    text: str
    test: Test


_HELD = re.compile(r"\b(?:in|label|mailbox|source):")
"""Side by side, these are about one and the same copy, which `_held` tests by itself."""


class Maker:
    """Makes queries out of what is in the mail."""

    def __init__(self, world: MailWorld, seed: int) -> None:
        self.random = random.Random(seed)
        self.world = world
        self.seen = [Seen.of(kept) for kept in world.kept.values()]
        self.words = self._vocabulary()

    def _vocabulary(self) -> list[str]:
        found: dict[str, int] = {}
        for seen in self.seen:
            for word in {word for passage in seen.passages for word in passage.split()}:
                found[word] = found.get(word, 0) + 1
        return sorted(word for word, count in found.items() if _LATIN.fullmatch(word) and count > 1)

    def scan(self, query: Query, visible: frozenset[str] | None = None) -> set[UUID]:
        return {seen.kept.id for seen in self.seen if self._may(seen, visible) and query.test(_limited(seen, visible))}

    def _may(self, seen: Seen, visible: frozenset[str] | None) -> bool:
        return visible is None or any(mailbox in visible for mailbox, _, _ in seen.places)

    def exact(self, depth: int = 2) -> Query:
        """Words in quotation marks, operators, and combinations of them."""
        if depth == 0 or self.random.random() < 0.25:
            return self.leaf()
        kind = self.random.choice(["and", "and", "or", "not", "group"])
        if kind == "not":
            inner = self.exact(depth - 1)
            sign = self.random.choice(["-", "NOT "])
            return Query(f"{sign}({inner.text})", lambda seen: not inner.test(seen))
        first, second = self.exact(depth - 1), self.exact(depth - 1)
        if kind == "or":
            return Query(f"(({first.text}) OR ({second.text}))", lambda seen: first.test(seen) or second.test(seen))
        while _HELD.search(first.text) and _HELD.search(second.text):
            second = self.exact(depth - 1)
        return Query(f"({first.text}) ({second.text})", lambda seen: first.test(seen) and second.test(seen))

    def ranked(self) -> tuple[Query, Query]:
        """Bare words, which find what has them and more, and the same words as a naive scan finds them."""
        words = self.random.sample(self.words, self.random.randint(1, 3))
        more = self.leaf() if self.random.random() < 0.5 else Query("", lambda _: True)
        text = " ".join([*words, more.text]).strip()
        return Query(text, lambda seen: all(map(seen.has, words)) and more.test(seen)), more

    def leaf(self) -> Query:
        makers = [self._word, self._word, self._phrase, self._phrase, self._subject, self._person, self._person, self._file]
        makers += [self._when, self._size, self._held, self._held, self._exact_value]
        return self.random.choice(makers)()

    def _any(self) -> Seen:
        return self.random.choice(self.seen)

    def _word(self) -> Query:
        word = self.random.choice(self.words)
        shown = self.random.choice([word, word.upper(), word.capitalize()])
        return Query(f'"{shown}"', lambda seen: seen.has(word))

    def _phrase(self) -> Query:
        for _ in range(50):
            words = self.random.choice(self._any().passages or [""]).split()
            start = self.random.randrange(max(1, len(words)))
            some = words[start : start + self.random.randint(2, 4)]
            if len(some) > 1 and all(map(_LATIN.fullmatch, some)):
                if self.random.random() < 0.2:
                    some = some[::-1]
                return self._words(" ".join(some))
        return self._word()

    def _words(self, some: str) -> Query:
        return Query(f'"{some}"', lambda seen: seen.has(some))

    def _subject(self) -> Query:
        words = [word for word in self._any().subject.split() if _LATIN.fullmatch(word)]
        if not words:
            return self._word()
        start = self.random.randrange(len(words))
        some = " ".join(words[start : start + self.random.randint(1, 2)])
        return Query(f'subject:"{some}"', lambda seen: f" {some} " in seen.subject)

    def _person(self) -> Query:
        role = self.random.choice(["from", "to", "cc", "bcc", "participant"])
        roles = ROLES if role == "participant" else (role,)
        people = [one for name in roles for one in self._any().people.get(name, ())]
        if not people:
            return self._size()
        address, name = self.random.choice(people)
        if re.search(r'[\s"()*]', address) or "@" not in address:
            return self._size()
        kind = self.random.choice(["address", "domain", "word", "wildcard", "name"])
        if kind == "address":
            return self._among(f"{role}:{address.upper()}", roles, lambda one, _: one == address)
        if kind == "domain":
            domain = address.rpartition("@")[2]
            return self._among(f"{role}:@{domain}", roles, lambda one, _: one.endswith(f"@{domain}") and "@" in one)
        if kind == "wildcard":
            pattern = f"{address[:2]}*{address[-4:]}"
            return self._among(
                f"{role}:{pattern}", roles, lambda one, _: "@" in one and fnmatchcase(one, pattern.replace("[", "[[]"))
            )
        words = run(name if kind == "name" else address).split()
        words = [word for word in words if _LATIN.fullmatch(word)]
        if not words:
            return self._size()
        some = " ".join(words[:2]) if kind == "name" else self.random.choice(words)
        return Query(f'{role}:"{some}"', lambda seen: any(f" {some} " in text for text in seen.person_texts(*roles)))

    def _among(self, text: str, roles: Sequence[str], fits: Callable[[str, str], bool]) -> Query:
        return Query(text, lambda seen: any(fits(*one) for role in roles for one in seen.people.get(role, ())))

    def _file(self) -> Query:
        names = [name for seen in self.seen for name in seen.names]
        if not names or self.random.random() < 0.3:
            return Query("has:attachment", lambda seen: seen.kept.mail.has_attachments)
        name = self.random.choice(names)
        words = [word for word in run(name).split() if _LATIN.fullmatch(word)]
        if not words:
            return Query("filename:*", lambda seen: any(run(one).strip() for one in seen.names))
        ending = name.rpartition(".")[2].lower()
        if self.random.random() < 0.4 and "." in name and re.fullmatch("[a-z0-9]{1,10}", ending):
            return Query(f"filename:*.{ending}", lambda seen: any(one.lower().endswith(f".{ending}") for one in seen.names))
        some = " ".join(words[: self.random.randint(1, 2)])
        return Query(f'filename:"{some}"', lambda seen: any(f" {some} " in run(one) for one in seen.names))

    def _when(self) -> Query:
        day = self._any().kept.sort_at.replace(hour=0, minute=0, second=0, microsecond=0)
        kind = self.random.choice(["before", "after", "on", "year"])
        if kind == "before":
            return Query(f"before:{day:%Y-%m-%d}", lambda seen: seen.kept.sort_at < day)
        if kind == "after":
            return Query(f"after:{day:%Y/%m/%d}", lambda seen: seen.kept.sort_at >= day)
        if kind == "on":
            return Query(f"on:{day:%Y-%m-%d}", lambda seen: day <= seen.kept.sort_at < day + timedelta(days=1))
        return Query(f"on:{day.year:04}", lambda seen: seen.kept.sort_at.astimezone(UTC).year == day.year)

    def _size(self) -> Query:
        size = self._any().kept.rows.message["size_bytes"]
        if self.random.random() < 0.5:
            return Query(f"larger:{size}", lambda seen: seen.kept.rows.message["size_bytes"] > size)
        return Query(f"smaller:{size // 1024}K", lambda seen: seen.kept.rows.message["size_bytes"] < size // 1024 * 1024)

    def _held(self) -> Query:
        mailbox, folder, labels = self.random.choice(self._any().places)
        kind = self.random.choice(["in", "wild", "label", "mailbox", "source", "both"])
        if kind == "label" and labels:
            return Query(f'label:"{labels[0].lower()}"', lambda seen: any(labels[0] in one for _, _, one in seen.places))
        if kind == "wild":
            return Query(
                f"in:{folder[:2]}*", lambda seen: any(one.lower().startswith(folder[:2].lower()) for _, one, _ in seen.places)
            )
        if kind == "mailbox":
            return Query(f"-mailbox:{mailbox}", lambda seen: all(one != mailbox for one, _, _ in seen.places))
        if kind == "source":
            domain = mailbox.partition("@")[2]
            return Query(f'source:"source of {domain}"', lambda seen: any(one.endswith(domain) for one, _, _ in seen.places))
        if kind == "both":
            return Query(
                f'mailbox:{mailbox} in:"{folder}"', lambda seen: any((a, b) == (mailbox, folder) for a, b, _ in seen.places)
            )
        return Query(f'in:"{folder.upper()}"', lambda seen: any(one.lower() == folder.lower() for _, one, _ in seen.places))

    def _exact_value(self) -> Query:
        seen = self._any()
        sha256, message_id = seen.kept.rows.sha256, seen.kept.rows.message["internet_message_id"]
        kind = self.random.choice(["sha256", "message-id", "thread", "list", "retention"])
        if kind == "message-id" and message_id and not re.search(r'[\s"]', message_id):
            wanted = message_id.lower()
            return Query(
                f'message-id:"<{message_id}>"',
                lambda one: (one.kept.rows.message["internet_message_id"] or "").lower() == wanted,
            )
        lists = sorted({one.kept.mail.headers.list_id for one in self.seen if one.kept.mail.headers.list_id})
        if kind == "list" and lists:
            found = self.random.choice(lists)
            if not re.search(r'["\s]', found) and "." in found:
                return Query(f'list:"{found}"', lambda one: one.kept.mail.headers.list_id == found)
        if kind == "retention":
            label = self.random.choice(["personal", "keep-until", "*"])
            return Query(
                f"retention:{label}",
                lambda one: bool(one.kept.retention_labels) if label == "*" else label in one.kept.retention_labels,
            )
        if kind == "thread":
            return Query(f"thread:{seen.kept.id}", lambda one: one.kept.id == seen.kept.id)
        return Query(f"sha256:{sha256.hex()}", lambda one: one.kept.rows.sha256 == sha256)


def _limited(seen: Seen, visible: frozenset[str] | None) -> Seen:
    """The message as someone sees it who may see certain mailboxes."""
    if visible is None:
        return seen
    places = [place for place in seen.places if place[0] in visible]
    seen.has("")
    return replace(seen, places=places)


NOW = datetime(2026, 1, 1, tzinfo=UTC)
