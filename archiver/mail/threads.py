"""Threads, the pure part: by which keys messages find each other. Keeping threads right in the database is a service."""

import re
from dataclasses import dataclass
from datetime import timedelta

from archiver.mail.headers import Headers

FALLBACK_DAYS = 30
FALLBACK_WINDOW = timedelta(days=FALLBACK_DAYS)

# Reply and forward marks in the languages of the usual mail programs, with counters: Re[2]:, RE (3):, AW:, 回复：
_PREFIX = re.compile(
    r"\s*+(?:(?:re|r|aw|antw|antwort|sv|vs|vl|odp|ynt|rif|res|resp|ref|fw|fwd|wg|tr|rv|enc|doorst|vb|vá|továbbítás|回复|答复|转发|回覆|轉寄|ответ"
    r"|отв|пересл)\s*+(?:\[\d{1,3}\]|\(\d{1,3}\)|\*\d{1,3}|\^\d{1,3})?+\s*+[:：]|\[(?:fwd|fw)[:：]?)\s*",
    re.IGNORECASE,
)
_LIST_TAG = re.compile(r"\s*+\[[^\[\]]{1,40}\]\s*")
_PREFIXES = 20


@dataclass(frozen=True, slots=True)
class ThreadKeys:
    """How a message finds its thread: by any id, else, within one mailbox and 30 days, by subject and a shared participant."""

    message_id: str
    parents: tuple[str, ...]  # nearest first
    subject: str  # normalised; empty if too little is left to go by
    is_reply: bool  # the subject says so
    participants: frozenset[str]

    @property
    def ids(self) -> tuple[str, ...]:
        return (self.message_id, *self.parents) if self.message_id else self.parents

    def may_join(self, other: "ThreadKeys", apart: timedelta) -> bool:
        """The fallback, for messages without references; `apart` is the time between the two."""
        return (
            bool(self.subject)
            and self.subject == other.subject
            and (self.is_reply or other.is_reply)
            and not (self.parents and other.parents)
            and abs(apart) <= FALLBACK_WINDOW
            and not self.participants.isdisjoint(other.participants)
        )


def thread_keys(headers: Headers) -> ThreadKeys:
    nearest = [*headers.in_reply_to[:1], *reversed(headers.references), *headers.in_reply_to[1:]]
    parents = tuple(dict.fromkeys(parent for parent in nearest if parent != headers.message_id))
    subject, is_reply = normalise_subject(headers.subject)
    people = headers.from_ + headers.sender + headers.reply_to + headers.recipients
    return ThreadKeys(
        message_id=headers.message_id,
        parents=parents,
        subject=subject,
        is_reply=is_reply,
        participants=frozenset(person.key for person in people if person.address),
    )


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
