"""Which mail of a source is wanted: settings that all kinds share, and the rules that follow from them."""

from __future__ import annotations

import fnmatch
import hashlib
import re
from collections.abc import Iterable
from datetime import UTC, date, datetime
from enum import StrEnum
from functools import lru_cache
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


class Role(StrEnum):
    """What a folder is for, whatever it is called (RFC 6154)."""

    INBOX = "inbox"
    SENT = "sent"
    ARCHIVE = "archive"
    DRAFTS = "drafts"
    SPAM = "spam"
    TRASH = "trash"


class Strict(BaseModel):
    """What all settings have in common: a key that we do not know is an error, and nothing changes after validation."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def split_list(value: object) -> object:
    """`a, b` as ("a", "b"), so that a list can be given on a command line."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


Texts = Annotated[tuple[str, ...], BeforeValidator(split_list)]


class Destination(StrEnum):
    """Marks a setting that decides which server receives the secrets of a source."""

    HOST = "host"
    """Its value is a host name or an address."""
    URL = "url"
    ROUTE = "route"
    """It names no server, but decides how one is reached and trusted: a port, TLS, a certificate."""


class Multiline:
    """Marks a text of several lines: a list, or a certificate."""


LongText = Annotated[str, Multiline()]


class SourceSettings(Strict):
    """The settings of a source that every kind has. In a pattern, `*` stands for any text and `?` for one character."""

    mailboxes_in: Texts = Field(default=(), description="only the mailboxes whose address fits one of these patterns")
    mailboxes_out: Texts = Field(default=(), description="not the mailboxes whose address fits one of these patterns")
    folders_in: Texts = Field(default=(), description="only the folders that fit one of these patterns")
    folders_out: Texts = Field(default=(), description="not the folders that fit one of these patterns")
    date_from: date | None = Field(default=None, description="only what came in on this day (UTC) or later")
    include_spam: bool = False
    include_trash: bool = False
    include_drafts: bool = False
    schedule: str | None = Field(default=None, description="when to sync, as cron fields; without it, when all others are")

    def hosts(self) -> tuple[str, ...]:
        """The servers that a source with these settings connects to."""
        found = []
        for name, where in destinations(type(self)).items():
            value = getattr(self, name)
            if value and where is not Destination.ROUTE:
                found.append(str(value) if where is Destination.HOST else urlsplit(str(value)).hostname or "")
        return tuple(found)


def destinations(settings: type[BaseModel]) -> dict[str, Destination]:
    """The settings that are marked as one."""
    marks = {
        name: [one for one in info.metadata if isinstance(one, Destination)] for name, info in settings.model_fields.items()
    }
    return {name: found[0] for name, found in marks.items() if found}


def mailbox_rule(settings: SourceSettings, address: str) -> str | None:
    """The rule that leaves this mailbox out; None when it is wanted."""
    return _pattern_rule("mailboxes", settings.mailboxes_in, settings.mailboxes_out, address)


def folder_rule(settings: SourceSettings, folder: str, role: Role | None = None) -> str | None:
    """The rule that leaves this folder out; None when it is wanted. A folder that `folders_in` names is wanted in any role."""
    rule = _pattern_rule("folders", settings.folders_in, settings.folders_out, folder)
    if rule or settings.folders_in:
        return rule
    unwanted = {
        Role.SPAM: not settings.include_spam,
        Role.TRASH: not settings.include_trash,
        Role.DRAFTS: not settings.include_drafts,
    }
    return f"include_{role}: no" if role and unwanted.get(role, False) else None


def date_rule(settings: SourceSettings, received_at: datetime | None) -> str | None:
    """The rule that leaves out what came in at this time. Nothing is left out for having no date."""
    if settings.date_from is None or received_at is None or _day(received_at) >= settings.date_from:
        return None
    return f"date_from: {settings.date_from}"


def _day(at: datetime) -> date:
    """In UTC, where a server's date can be told in it: not the first day of the year 1 in the far east."""
    try:
        return at.astimezone(UTC).date()
    except OverflowError:
        return at.date()


def rules_digest(settings: SourceSettings) -> str:
    """Changes with every rule about folders and dates: a place in a folder holds only under the rules it was reached with."""
    rules = settings.model_dump_json(include={"folders_in", "folders_out", "date_from", *_INCLUDES})
    return hashlib.sha256(rules.encode()).hexdigest()[:12]


_INCLUDES = ("include_spam", "include_trash", "include_drafts")


def fits(pattern: str, text: str) -> bool:
    """Without regard to letter case. Brackets are plain characters: `[Gmail]/*` means what it says."""
    return _compiled(pattern).fullmatch(text.lower()) is not None


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    # `translate` makes each star give nothing back, so that many of them don't take polynomial time.
    return re.compile(fnmatch.translate(pattern.lower().replace("[", "[[]")))


def _pattern_rule(name: str, wanted: Iterable[str], unwanted: Iterable[str], text: str) -> str | None:
    for pattern in unwanted:
        if fits(pattern, text):
            return f"{name}_out: {pattern}"
    wanted = tuple(wanted)
    if wanted and not any(fits(pattern, text) for pattern in wanted):
        return f"{name}_in: {', '.join(wanted)}"
    return None
