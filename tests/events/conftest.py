"""The same installation that the tests of the API use."""

from tests.api.conftest import cloud, services, shared_site, site
from tests.postgres import application_url, postgres, store

__all__ = ["application_url", "cloud", "postgres", "services", "shared_site", "site", "store"]
