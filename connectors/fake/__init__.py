"""A source with generated mail, for tests of the engine and for the demo."""

from connectors.fake.connector import FakeConnector
from connectors.fake.settings import FakeSecrets, FakeSettings, Trouble

__all__ = ["FakeConnector", "FakeSecrets", "FakeSettings", "Trouble"]
