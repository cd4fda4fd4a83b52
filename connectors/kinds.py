"""The kinds of sources there are: how each is configured, and how it is opened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from connectors.base import Connector, Context
from connectors.fake import FakeConnector, FakeSecrets, FakeSettings


@dataclass(frozen=True, slots=True)
class Kind:
    name: str
    title: str
    """For people."""
    settings: type[BaseModel]
    """A SourceSettings. Validated whenever a source is added or edited; an unknown key is an error."""
    secrets: type[BaseModel]
    """What is sealed. All fields are SecretStr; there may be none."""
    open: Callable[[Any, Any, Context], Connector]
    """From validated settings, validated secrets and the context of a job. Connects to nothing yet."""
    runs_once: bool = False
    """File imports: there is no next time."""


def _open_fake(settings: FakeSettings, _: FakeSecrets, context: Context) -> Connector:
    return FakeConnector(settings, context)


KINDS: dict[str, Kind] = {
    kind.name: kind for kind in (Kind("fake", "Sample mail, made on the spot", FakeSettings, FakeSecrets, _open_fake),)
}
