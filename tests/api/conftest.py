"""The whole API in this process: real services on a real Postgres, queues and leases in moto."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from moto import mock_aws

from chalicelib.bootstrap import Services, build_services
from chalicelib.cloud.aws import Aws
from chalicelib.cloud.provision import provision
from chalicelib.settings import Settings, read_settings
from tests.api.site import Site
from tests.postgres import (
    PostgresServer,
    StoreAddress,
    application_url,
    database,
    owner_url,
    postgres,
    store,
    store_url,
)

__all__ = ["application_url", "database", "owner_url", "postgres", "store", "store_url"]


def _settings(store: StoreAddress) -> Settings:
    return read_settings(
        {
            "TIDEMILL_STAGE": "test",
            "TIDEMILL_DATABASE_URL": store.application_url,
            "TIDEMILL_DATABASE_CONNECTIONS": "4",
        }
    )


@pytest.fixture(scope="module")
def cloud() -> Iterator[None]:
    """Queues, table and bucket; made once per module, because making boto3's clients is slow."""
    with mock_aws():
        provision(Aws(read_settings({"TIDEMILL_STAGE": "test"})))
        yield


@pytest.fixture
def services(store: StoreAddress, cloud: None) -> Iterator[Services]:
    """An installation with a store of this test's own; queues and leases are emptied behind it."""
    built = build_services(_settings(store))
    yield built
    Site(built).woken()
    for item in built.aws.leases.partition("boots#0"):
        built.aws.leases.delete(item["pk"], item["sk"], owner_token=item["owner_token"])
    built.close()


@pytest.fixture
def site(services: Services) -> Site:
    """The API of this test's own installation."""
    return Site(services)


@pytest.fixture(scope="module")
def shared_site(postgres: PostgresServer, cloud: None) -> Iterator[Site]:
    """An installation for the tests of one module that only look, or make things that no other test counts."""
    address = postgres.create_store()
    built = build_services(_settings(address))
    yield Site(built)
    built.close()
    postgres.drop(address)
