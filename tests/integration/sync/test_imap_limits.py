"""The limits of the installation for IMAP sources, shared by all workers through Redis."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID, uuid4

import pytest

from archiver.config import load_settings
from archiver.db.states import SourceStatus
from archiver.sources.mailboxes import imap_quotas
from archiver.sources.rows import Source
from archiver.supervisor.valkey import EmbeddedValkey
from archiver.sync.connector_context import ConnectorContext
from archiver.sync.quotas import Buckets
from connectors.base import Quota
from connectors.errors import Throttled

LIMITS = {"IMAP_SERVER_MESSAGES_PER_MINUTE": "1000", "IMAP_OWNER_MESSAGES_PER_MINUTE": "400"}


def source(kind: str = "imap", host: str = "imap.example.org", owner: UUID | None = None) -> Source:
    return Source(uuid4(), kind, "s", SourceStatus.ACTIVE, None, {"host": host}, None, None, 0, None, None, None, owner)


def context(buckets: Buckets, found: Source) -> ConnectorContext:
    settings = load_settings(LIMITS)
    resources = SimpleNamespace(settings=settings, buckets=buckets, stopping=threading.Event())
    return ConnectorContext(cast(Any, resources), found.id, lambda _: None, lambda _: None, imap_quotas(settings, found))


def test_only_imap_has_them_and_only_if_they_are_set() -> None:
    assert imap_quotas(load_settings({}), source()) == []
    assert imap_quotas(load_settings(LIMITS), source("microsoft")) == []
    owner = uuid4()
    assert imap_quotas(load_settings(LIMITS), source(host="IMAP.Example.org", owner=owner)) == [
        Quota("imap:server:imap.example.org", 1000),
        Quota(f"imap:owner:{owner}", 400),
    ]


def test_two_workers_share_the_server_and_the_owner(valkey: EmbeddedValkey) -> None:
    ann, bob = uuid4(), uuid4()
    first, second = Buckets(valkey.url()), Buckets(valkey.url())
    try:
        assert context(first, source(owner=ann)).wait_for_turn(40.0) == 1
        with pytest.raises(Throttled, match="this installation's quota") as pause:
            context(second, source(host="other.example.org", owner=ann)).wait_for_turn(10.0)
        assert 0 < pause.value.retry_after_seconds < 60
        assert context(second, source(owner=bob)).wait_for_turn(40.0) == 1, "another owner has turns of its own"
        with pytest.raises(Throttled):
            context(first, source(owner=None)).wait_for_turn(90.0)  # the server's tenth of a minute is nearly used up
        assert context(first, source("microsoft", owner=ann)).wait_for_turn(40.0) == 1
    finally:
        first.close()
        second.close()
