"""A rebuild of an archive in which one address belonged to two mailboxes, one after the other."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from archiver.maintenance.recovery.rebuild import rebuild
from archiver.maintenance.snapshot import save_config
from archiver.sync import mailboxes
from archiver.sync.mailboxes import ListedMailbox
from connectors.base import Batch, RawMessage
from tests.integration.store.conftest import SOURCE, World

ALICE = "alice@example.org"


def _of_alice(world: World, provider_id: str, key: str) -> None:
    with world.engine.begin() as connection:
        listed = [ListedMailbox(ALICE, None, provider_id)]
        (mailbox_id,) = mailboxes.record(connection, SOURCE, listed, is_whole=False).ids
    message = RawMessage(key, f"Subject: {key}\r\n\r\n{key}".encode(), folder="INBOX")
    world.open().store_batch(world.origin(mailbox_id), Batch(messages=(message,)))


@pytest.mark.parametrize("snapshot", ["none", "before", "after"])
def test_each_keeps_its_mail(world: World, new_world: Callable[..., World], snapshot: str) -> None:
    _of_alice(world, "1", "first")
    if snapshot == "before":
        save_config(world.engine, world.archive)
    _of_alice(world, "2", "second")
    if snapshot == "after":
        save_config(world.engine, world.archive)
    copies = "SELECT c.provider_key, c.mailbox_id FROM message_copies c JOIN mailboxes b ON b.id = c.mailbox_id ORDER BY 1"
    boxes = "SELECT id, address, former_address, replaces_id, gone_at IS NULL FROM mailboxes WHERE provider_id > '' ORDER BY 1"
    before, before_boxes = world.rows(copies), world.rows(boxes)
    assert len({mailbox_id for _, mailbox_id in before}) == 2
    world.close()

    rebuilt = new_world(empty=True, folder=world.folder)
    rebuilt.open()
    assert rebuild(rebuilt.engine, rebuilt.archive).damage == []
    assert rebuilt.rows(copies) == before
    assert rebuilt.rows(boxes) == before_boxes
