"""A source that makes its mail up: it proves the engine in tests, and it is where the demo's mail comes from."""

from connectors.fake.connector import FakeConnector
from connectors.fake.settings import FakeSecrets, FakeSettings, Trouble

__all__ = ["FakeConnector", "FakeSecrets", "FakeSettings", "Trouble"]
