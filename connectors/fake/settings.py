"""The settings of the fake: how much mail to generate, and which trouble to simulate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from connectors.base import BATCH_MESSAGES
from connectors.selection import SourceSettings, Strict, Texts, matches


class Failure(Strict):
    """An error that is raised instead of a result. The name alone is enough: `"unavailable"`."""

    error: Literal["auth_failed", "throttled", "unavailable"]
    after: int = Field(default=0, ge=0, description="number of mailboxes listed before it")
    seconds: float = Field(default=1.0, ge=0, description="the pause of `throttled`")
    times: int | None = Field(default=None, ge=1, description="how often it happens; by default, always")


def _named_failure(value: object) -> object:
    return {"error": value} if isinstance(value, str) and not value.startswith("{") else _from_json(value)


def _from_json(value: object) -> object:
    """Nested settings can be given as JSON on a command line."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except json.JSONDecodeError as error:
        raise ValueError(f"not valid JSON: {error}") from error


NamedFailure = Annotated[Failure, BeforeValidator(_named_failure)]


class FakeThrottle(Strict):
    """The server asks for a pause."""

    after: int = Field(default=0, ge=0, description="number of batches before it, in each fetch")
    seconds: float = Field(default=1.0, ge=0)
    times: int = Field(default=1, ge=1)


class Trouble(Strict):
    """What goes wrong in a mailbox. Messages are named by their provider keys, `INBOX/0`.

    The second run of a folder is any fetch after its first listing was stored.
    """

    auth_failed: bool = False
    unavailable_after: int | None = Field(default=None, ge=0, description="number of batches before the connection is lost")
    unavailable_times: int | None = Field(default=None, ge=1, description="how often it is lost; by default, always")
    throttle: FakeThrottle | None = None
    hang: bool = Field(default=False, description="blocks in a socket read until close() is called")
    hang_after: int = Field(default=0, ge=0, description="number of batches before it")
    hang_times: int | None = Field(default=None, ge=1)
    state_lost: bool = Field(default=False, description="happens once, if there is a state")
    state_lost_folder: str | None = Field(default=None, description="only this folder; by default, the whole mailbox")
    same_batch_twice: bool = False
    poison: Texts = Field(default=(), description="keys that can't be fetched")
    poison_with_bytes: Texts = Field(default=(), description="keys that fail after their bytes were fetched")
    poison_heals: bool = Field(default=False, description="a refetch returns them")
    gap: Texts = Field(default=(), description="keys that are listed but never returned by a fetch")
    gap_refetched: bool = Field(default=False, description="a refetch returns them")
    gone: Texts = Field(default=(), description="keys that are gone in the second run")
    moved: dict[str, str] = Field(default_factory=dict, description="key → folder, in the second run")
    relabelled: dict[str, Texts] = Field(default_factory=dict, description="key → labels, in the second run")
    slow_seconds: float = Field(default=0.0, ge=0, description="before each batch; ends early when the job has to stop")
    hold_path: Path | None = Field(
        default=None, description="no batch is returned while this file exists, unless the job has to stop"
    )
    large_bytes: int = Field(default=0, ge=0, description="length of one message")
    large_key: str | None = Field(default=None, description="key of that message; by default, the first of the first folder")

    @property
    def remembers(self) -> bool:
        return bool(self.throttle or self.unavailable_times or self.hang_times or self.state_lost)


class FakeSettings(SourceSettings):
    mode: Literal["generated", "sample"] = "generated"
    seed: int = 1
    batch_messages: int = Field(default=100, ge=1, le=BATCH_MESSAGES)
    list_always: bool = Field(default=False, description="each run lists every folder; otherwise only changed ones")

    mailboxes: int = Field(default=3, ge=0)
    messages_per_mailbox: int = Field(default=100, ge=0, description="if increased later, only the new messages are returned")
    folders: Texts = ("INBOX", "Sent")
    bytes_per_message: int = Field(default=2000, ge=0)

    size: Literal["small", "medium", "large"] = Field(
        default="small", description="of the sample: about 500, 3,000 or 50,000 messages"
    )

    trouble: Annotated[Trouble, BeforeValidator(_from_json)] = Trouble()
    trouble_in: Annotated[dict[str, Trouble], BeforeValidator(_from_json)] = Field(
        default_factory=dict, description="address pattern → trouble that replaces the default one"
    )
    check_fails: NamedFailure | None = None
    listing_fails: NamedFailure | None = None
    same_mailbox_twice: bool = Field(default=False, description="each address is listed again, and once more in capitals")
    down_path: Path | None = Field(default=None, description="while this file exists, everything is unavailable")
    journal_path: Path | None = Field(default=None, description="a file that records a line per downloaded message")
    memory_path: Path | None = Field(default=None, description="a folder for the counters of troubles with a limit")

    @model_validator(mode="after")
    def _can_remember(self) -> Self:
        troubles = (self.trouble, *self.trouble_in.values())
        failures = (self.check_fails, self.listing_fails)
        counted = any(trouble.remembers for trouble in troubles) or any(fails and fails.times for fails in failures)
        if counted and self.memory_path is None:
            raise ValueError("trouble with a limit needs memory_path")
        if not self.folders:
            raise ValueError("a mailbox has at least one folder")
        return self

    def trouble_of(self, address: str) -> Trouble:
        return next((trouble for pattern, trouble in self.trouble_in.items() if matches(pattern, address)), self.trouble)


class FakeSecrets(Strict):
    """The fake has no secrets."""
