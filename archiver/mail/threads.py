"""The keys by which messages find their thread. Pure; `archiver/indexing/threads.py` maintains threads in the database."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from archiver.mail.header.addresses import Address
from archiver.mail.header.headers import Headers

FALLBACK_DAYS = 30
FALLBACK_WINDOW = timedelta(days=FALLBACK_DAYS)

# Reply and forward marks in the languages of the usual mail programs, with counters: Re[2]:, RE (3):, AW:, 回复：
_PREFIX = re.compile(
    r"\s*+(?:(?:re|r|aw|antw|antwort|sv|vs|vl|odp|ynt|rif|res|resp|ref|fw|fwd|wg|tr|rv|enc|doorst|vb|vá|továbbítás|回复|答复|转发|回覆|轉寄|ответ"
    r"|отв|пересл)\s*+(?:\[\d{1,3}\]|\(\d{1,3}\)|\*\d{1,3}|\^\d{1,3})?+\s*+[:：]|\[(?:fwd|fw)[:：]?)\s*",
    re.IGNORECASE,
)
# A list tag is the same in all mail of the list. Tags with numbers distinguish mails ([PATCH v2 3/7], [Bug 12], [ticket #5]),
# and
# so do the words that reviewers of patches use.
_LIST_TAG = re.compile(r"\s*+\[(?![^\[\]]{0,40}\b(?:patch|rfc|resend|git pull)\b)[^\[\]\d/#]{1,40}\]\s*", re.IGNORECASE)
_PREFIXES = 20


@dataclass(frozen=True, slots=True)
class Correspondents:
    """Sender and recipients of a message. Addresses in lower case."""

    senders: frozenset[str] = frozenset()
    recipients: frozenset[str] = frozenset()

    def know(self, others: "Correspondents") -> bool:
        """Whether one of the two wrote to the other. Writing to the same list or person does not count."""
        return not (self.senders.isdisjoint(others.recipients) and self.recipients.isdisjoint(others.senders))


@dataclass(frozen=True, slots=True)
class ThreadKeys:
    """How a message finds its conversation: by any id it refers to; without one, by a subject with a reply mark."""

    message_id: str
    parents: tuple[str, ...]  # nearest first
    subject: str  # normalised; empty if too little is left to identify a conversation
    is_reply: bool  # by its subject
    correspondents: Correspondents = Correspondents()

    @property
    def ids(self) -> tuple[str, ...]:
        return (self.message_id, *self.parents) if self.message_id else self.parents

    @property
    def goes_by_subject(self) -> bool:
        """Whether it is a reply that only its subject connects with what it answers. A message that names what it answers to is
        never joined by subject: weekly reports with answers to each of them would all be one conversation."""
        return self.is_reply and bool(self.subject) and not self.parents

    def may_answer(self, earlier: "ThreadKeys", apart: timedelta) -> bool:
        """Whether it may be a reply to the other; of several, it replies to the latest. `apart` is the time between the two."""
        return (
            self.goes_by_subject
            and self.subject == earlier.subject
            and timedelta(0) <= apart <= FALLBACK_WINDOW
            and self.correspondents.know(earlier.correspondents)
        )


def thread_keys(headers: Headers) -> ThreadKeys:
    nearest = [*headers.in_reply_to[:1], *reversed(headers.references), *headers.in_reply_to[1:]]
    parents = tuple(dict.fromkeys(parent for parent in nearest if parent != headers.message_id))
    subject, is_reply = normalise_subject(headers.subject)
    correspondents = Correspondents(
        _addresses(headers.from_ + headers.sender + headers.reply_to), _addresses(headers.recipients)
    )
    return ThreadKeys(headers.message_id, parents, subject, is_reply, correspondents)


def _addresses(people: Iterable[Address]) -> frozenset[str]:
    return frozenset(person.key for person in people if person.address)


def normalise_subject(subject: str) -> tuple[str, bool]:
    """The subject without reply marks, list tags, case and spacing, and whether it had a reply mark."""
    subject, is_reply = _without_prefixes(subject)
    subject = " ".join(subject.casefold().split())
    if is_reply and subject.endswith("]") and "[" not in subject:
        subject = subject[:-1]
    return (subject if any(map(str.isalnum, subject)) and len(subject) > 1 else ""), is_reply


def is_reply_subject(subject: str) -> bool:
    return _without_prefixes(subject)[1]


def _without_prefixes(subject: str) -> tuple[str, bool]:
    is_reply = False
    for _ in range(_PREFIXES):
        if ":" not in subject and "[" not in subject and "：" not in subject:
            break
        prefix = _PREFIX.match(subject) or _LIST_TAG.match(subject)
        if prefix is None or (prefix.re is _LIST_TAG and prefix.end() == len(subject)):
            break
        is_reply = is_reply or prefix.re is _PREFIX
        subject = subject[prefix.end() :]
    return subject, is_reply
