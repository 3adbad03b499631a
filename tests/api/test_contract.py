"""The document against the application, over HTTP: generated requests, and what may never come back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    ignored_auth,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from chalicelib.entrypoints.api.openapi import document
from chalicelib.local.api_server import ApiServer
from tests.api.site import LOCATION, TARGET, Site

SCHEMA: Any = schemathesis.openapi.from_dict(document())
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    negative_data_rejection,
    ignored_auth,
]
EXAMPLES = 10


@pytest.fixture(scope="module")
def address(shared_site: Site) -> Iterator[str]:
    """The API on a real port."""
    server = ApiServer(shared_site.app, new_request_id=lambda: shared_site.services.ids.mint("req"))
    bound = server.bind()
    server.start()
    yield bound
    server.stop()


@pytest.fixture(scope="module")
def secret(shared_site: Site) -> str:
    shared_site.operator.post("/v1/admin/locations", {"location": LOCATION})
    shared_site.operator.json("PUT", f"/v1/admin/locations/{LOCATION}/targets/{TARGET}", {})
    assert shared_site.operator.token is not None
    return shared_site.operator.token


@SCHEMA.parametrize()
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
def test_an_operation_keeps_to_its_description(case: Any, address: str, secret: str) -> None:
    response = case.call_and_validate(
        base_url=address, headers={"Authorization": f"Bearer {secret}"}, checks=CHECKS, timeout=30
    )
    assert secret not in response.text
    assert response.headers["x-request-id"]
