"""Every test here gets a real store of its own; see ``tests/postgres.py``."""

from tests.postgres import application_url, database, owner_url, postgres, store, store_url

__all__ = ["application_url", "database", "owner_url", "postgres", "store", "store_url"]
