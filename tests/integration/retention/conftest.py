"""The archives of the store tests, for retention."""

from tests.integration.store.conftest import new_world, world

__all__ = ["new_world", "world"]
