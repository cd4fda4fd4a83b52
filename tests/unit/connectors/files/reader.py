"""Reads files with the connector, as an import would."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from connectors.base import FailedMessage, MailboxRef, RawMessage, Skipped
from connectors.files import FilesConnector, FilesSettings, ImportSettings
from tests.contract.subject import QuietContext, nothing, read

ADDRESS = "ann@example.org"


@dataclass(slots=True)
class Got:
    messages: list[RawMessage] = field(default_factory=list)
    data: list[bytes] = field(default_factory=list)
    failed: list[FailedMessage] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    state: dict[str, Any] = field(default_factory=dict)

    @property
    def reasons(self) -> dict[str, str]:
        return {one.provider_key: one.reason for one in self.failed}

    @property
    def rules(self) -> dict[str, str]:
        return {one.provider_key: one.rule for one in self.skipped}

    @property
    def folders(self) -> set[str]:
        return {one.folder for one in self.messages}


def connector(*paths: Path, scratch: Path, model: type[FilesSettings] = ImportSettings, **settings: Any) -> FilesConnector:
    values = {"mailbox": ADDRESS, "paths": list(paths), **settings}
    return FilesConnector(model.model_validate(values), QuietContext(scratch))


def fetched(opened: FilesConnector, state: dict[str, Any] | None = None, known: Any = nothing) -> Got:
    got = Got(state=dict(state or {}))
    for batch in opened.fetch(MailboxRef(ADDRESS), state or {}, known):
        got.messages += batch.messages
        got.data += [read(message) for message in batch.messages]
        got.failed += batch.failed
        got.skipped += batch.skipped
        got.state |= batch.state
    return got


def imported(path: Path, scratch: Path | None = None, **settings: Any) -> Got:
    opened = connector(path, scratch=scratch or path.parent / "scratch", **settings)
    try:
        return fetched(opened)
    finally:
        opened.close()
