"""Selects the mail of a source: settings that all kinds share, and the rules that follow from them."""

from __future__ import annotations

import fnmatch
import hashlib
import re
from collections.abc import Iterable
from datetime import UTC, date, datetime
from enum import StrEnum
from functools import lru_cache
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator


class FolderRole(StrEnum):
    """The purpose of a folder, whatever its name (RFC 6154)."""

    INBOX = "inbox"
    SENT = "sent"
    ARCHIVE = "archive"
    DRAFTS = "drafts"
    SPAM = "spam"
    TRASH = "trash"


class Strict(BaseModel):
    """Base of all settings: an unknown key is an error, and instances are immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def split_list(value: object) -> object:
    """Turns `a, b` into ("a", "b"), so that a list can be given on a command line."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


Texts = Annotated[tuple[str, ...], BeforeValidator(split_list)]


class Destination(StrEnum):
    """Marks a setting that decides which server receives the secrets of a source."""

    HOST = "host"
    """The value is a host name or an address."""
    URL = "url"
    ROUTE = "route"
    """Names no server, but decides how one is reached and trusted: a port, TLS, a certificate."""


class Multiline:
    """Marks a multi-line text: a list, or a certificate."""


LongText = Annotated[str, Multiline()]


class SourceSettings(Strict):
    """The settings that every kind of source has. In a pattern, `*` matches any text and `?` one character."""

    mailboxes_in: Texts = Field(default=(), description="only mailboxes whose address matches one of these patterns")
    mailboxes_out: Texts = Field(default=(), description="no mailboxes whose address matches one of these patterns")
    folders_in: Texts = Field(default=(), description="only folders that match one of these patterns")
    folders_out: Texts = Field(default=(), description="no folders that match one of these patterns")
    date_from: date | None = Field(default=None, description="only mail received on or after this day (UTC)")
    date_to: date | None = Field(default=None, description="only mail received on or before this day (UTC)")
    include_spam: bool = False
    include_trash: bool = False
    include_drafts: bool = False
    schedule: str | None = Field(default=None, description="when to sync, as cron fields; by default, with all other sources")

    @model_validator(mode="after")
    def _check_dates(self) -> Self:
        if self.date_from is not None and self.date_to is not None and self.date_to < self.date_from:
            raise ValueError(f"date_to ({self.date_to}) is before date_from ({self.date_from}): no mail would be archived")
        return self

    @property
    def has_dates(self) -> bool:
        return self.date_from is not None or self.date_to is not None

    def hosts(self) -> tuple[str, ...]:
        """The servers that a source with these settings connects to."""
        found = []
        for name, where in destinations(type(self)).items():
            value = getattr(self, name)
            if value and where is not Destination.ROUTE:
                found.append(str(value) if where is Destination.HOST else urlsplit(str(value)).hostname or "")
        return tuple(found)


class ServerSettings(SourceSettings):
    """Of sources whose archived mail can be deleted on the server, to make room."""

    delete_after_days: int | None = Field(
        default=None, ge=1, le=36_500, description="allow deleting archived mail at the source that is older than this"
    )
    delete_needs_backup: bool = Field(default=True, description="delete only mail that is also in the newest backup")


def destinations(settings: type[BaseModel]) -> dict[str, Destination]:
    """The settings that are marked as a destination."""
    marks = {
        name: [one for one in info.metadata if isinstance(one, Destination)] for name, info in settings.model_fields.items()
    }
    return {name: found[0] for name, found in marks.items() if found}


def mailbox_rule(settings: SourceSettings, address: str) -> str | None:
    """The rule that excludes this mailbox; None if it is selected."""
    return _pattern_rule("mailboxes", settings.mailboxes_in, settings.mailboxes_out, address)


def folder_rule(settings: SourceSettings, folder: str, role: FolderRole | None = None) -> str | None:
    """The rule that excludes this folder; None if it is selected. A folder that `folders_in` names is selected in any role."""
    rule = _pattern_rule("folders", settings.folders_in, settings.folders_out, folder)
    if rule or settings.folders_in:
        return rule
    unwanted = {
        FolderRole.SPAM: not settings.include_spam,
        FolderRole.TRASH: not settings.include_trash,
        FolderRole.DRAFTS: not settings.include_drafts,
    }
    return f"include_{role}: no" if role and unwanted.get(role, False) else None


def date_rule(settings: SourceSettings, received_at: datetime | None) -> str | None:
    """The rule that excludes mail received at this time. Mail without a date is never excluded."""
    if received_at is None or not settings.has_dates:
        return None
    day = _day(received_at)
    if settings.date_from is not None and day < settings.date_from:
        return f"date_from: {settings.date_from}"
    return f"date_to: {settings.date_to}" if settings.date_to is not None and day > settings.date_to else None


def _day(at: datetime) -> date:
    """In UTC, if the date exists there: the first day of the year 1 in an eastern time zone does not."""
    try:
        return at.astimezone(UTC).date()
    except OverflowError:
        return at.date()


def rules_digest(settings: SourceSettings) -> str:
    """Changes with every rule about folders and dates: a cursor is valid only under the rules it was reached with."""
    rules = settings.model_dump_json(include={"folders_in", "folders_out", "date_from", *_INCLUDES})
    if settings.date_to is not None:  # without it, the digest is that of releases which did not have it
        rules += str(settings.date_to)
    return hashlib.sha256(rules.encode()).hexdigest()[:12]


_INCLUDES = ("include_spam", "include_trash", "include_drafts")


def matches(pattern: str, text: str) -> bool:
    """Ignores case. Brackets are plain characters, as in `[Gmail]/*`."""
    return _compiled(pattern).fullmatch(text.lower()) is not None


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    # `translate` makes each star possessive, so that many stars do not take polynomial time.
    return re.compile(fnmatch.translate(pattern.lower().replace("[", "[[]")))


def _pattern_rule(name: str, wanted: Iterable[str], unwanted: Iterable[str], text: str) -> str | None:
    for pattern in unwanted:
        if matches(pattern, text):
            return f"{name}_out: {pattern}"
    wanted = tuple(wanted)
    if wanted and not any(matches(pattern, text) for pattern in wanted):
        return f"{name}_in: {', '.join(wanted)}"
    return None
