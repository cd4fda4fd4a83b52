"""The settings of a source of mail files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from connectors.selection import SourceSettings, Strict

FOLDER = "{folder}"
ForcedKind = Literal["auto", "mbox", "mboxo", "mboxrd", "mboxcl", "mboxcl2", "eml", "emlx"]


def _paths(value: object) -> object:
    """One path, or several as a JSON list: a path may hold any character but a line end."""
    if not isinstance(value, str):
        return value
    return json.loads(value) if value.startswith("[") else [value]


def _absolute(paths: tuple[Path, ...]) -> tuple[Path, ...]:
    for path in paths:
        if not path.is_absolute():
            raise ValueError(f"{path} is not absolute: the workers may run in another folder")
    if not paths:
        raise ValueError("expected at least one file or folder")
    return paths


def _address(value: str) -> str:
    value = value.strip()
    local, _, domain = value.rpartition("@")
    if (value != FOLDER and not (local and domain)) or any(char.isspace() for char in value):
        raise ValueError(f"expected an address such as ann@example.org, {FOLDER}@example.org or {FOLDER}")
    return value


class FilesSettings(SourceSettings):
    """Spam, trash and drafts are included: a user who names files wants their content."""

    paths: Annotated[tuple[Path, ...], BeforeValidator(_paths), AfterValidator(_absolute)] = Field(
        description="files and folders; several as a JSON list"
    )
    mailbox: Annotated[str, AfterValidator(_address)] = Field(
        description=f"whose mail it is; with {FOLDER}, as in {FOLDER}@example.org, each top folder is a mailbox of its own"
    )
    kind: ForcedKind = Field(default="auto", description="what the files in `paths` are; without it their content decides")
    include_spam: bool = True
    include_trash: bool = True
    include_drafts: bool = True
    include_deleted: bool = Field(
        default=False,
        description="also what Thunderbird has deleted and not yet compacted away, and what can be recovered from a PST",
    )


class ImportSettings(FilesSettings):
    """Read once, from the beginning, whatever was read before."""

    number: int = Field(default=0, ge=0, description="raised by each import")


class FilesSecrets(Strict):
    """Mail files have no secrets."""
