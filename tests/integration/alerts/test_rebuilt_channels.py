"""Who is told of alerts, and the changed rules, are in the packs: a rebuild brings them back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from archiver.access.principal import LOCAL_OPERATOR
from archiver.alerts import channels, rules
from archiver.alerts.channels import ChannelWishes
from archiver.config import Settings
from archiver.db.states import AlertSeverity
from archiver.maintenance.recovery.rebuild import rebuild
from archiver.maintenance.snapshot import save_config
from archiver.secrets import Keyring
from connectors.base import Batch
from tests.integration.store.conftest import World, new_world, world  # noqa: F401  (fixtures)
from tests.integration.store.filled import messages_of


def test_channels_and_rules_survive_a_rebuild(
    world: World,  # noqa: F811
    new_world: Callable[..., World],  # noqa: F811
    tmp_path: Path,
) -> None:
    world.open().store_batch(world.origin(), Batch(messages_of(1)))
    settings, keyring = Settings(archiver_data=tmp_path), Keyring.generate()
    wishes = ChannelWishes(AlertSeverity.CRITICAL, ("gap",), False, "de", "Europe/Berlin", "22:00", "07:00")
    address = "https://hooks.example.org/x#planted-secret"
    with world.engine.begin() as connection:
        channels.add_channel(connection, settings, keyring, LOCAL_OPERATOR, "On call", address, wishes)
        gone = channels.add_channel(connection, settings, keyring, LOCAL_OPERATOR, "Former", address)
        rules.change_rule(connection, LOCAL_OPERATOR, "disk_low", threshold=20)
    save_config(world.engine, world.archive)
    with world.engine.begin() as connection:
        channels.remove_channel(connection, LOCAL_OPERATOR, gone)
        expected = channels.load_channels(connection, settings, keyring)
    save_config(world.engine, world.archive)
    world.close()
    rebuilt = new_world(empty=True, folder=world.folder)
    rebuilt.open()
    rebuild(rebuilt.engine, rebuilt.archive)
    with rebuilt.engine.connect() as connection:
        assert channels.load_channels(connection, settings, keyring) == expected
        assert rules.load_rules(connection)["disk_low"].threshold == 20
    assert not any(b"planted-secret" in path.read_bytes() for path in world.folder.iterdir())
