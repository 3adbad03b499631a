"""A world whose time passes only when told."""

from tests.store.scheduler.conftest import clock, world

__all__ = ["clock", "world"]
