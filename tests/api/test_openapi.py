"""The OpenAPI document: current in the docs, valid, and saying what the application does."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from openapi_spec_validator import validate

from chalicelib.entrypoints.api.openapi import document, text
from chalicelib.entrypoints.api.routing import Operation
from chalicelib.entrypoints.api.table import operations
from tests.api.site import Site

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
REMAKE = "run: python -m chalicelib.entrypoints.api.openapi > docs/reference/openapi.json"


def _without_version(openapi: str) -> str:
    return re.sub(r'"version": "[^"]*"', '"version": ""', openapi, count=1)


def test_the_document_in_the_docs_is_current() -> None:
    kept = (REFERENCE / "openapi.json").read_text(encoding="utf-8")
    assert _without_version(kept) == _without_version(text()), REMAKE


def test_the_document_is_valid() -> None:
    validate(document())


def test_the_document_is_served(shared_site: Site) -> None:
    assert shared_site.caller().get("/v1/openapi.json").body == json.loads(text())


@pytest.mark.parametrize("operation", operations(), ids=lambda operation: operation.name)
def test_an_operation_is_described(operation: Operation) -> None:
    described = document()["paths"][operation.path][operation.method.lower()]
    assert described["summary"]
    assert described["security"] == ([] if operation.permission is None else [{"token": []}])
    assert {str(int(status)) for status in operation.statuses} <= described["responses"].keys()
    assert {"500", "503"} <= described["responses"].keys()
    assert ("401" in described["responses"]) == (operation.permission is not None)
    assert ("requestBody" in described) == (operation.body_model is not None)
    declared = {parameter["name"] for parameter in described["parameters"] if parameter["in"] == "path"}
    assert declared == set(re.findall(r"{(\w+)}", operation.path))


@pytest.mark.parametrize("operation", operations(), ids=lambda operation: operation.name)
def test_an_operation_stands_in_the_reference(operation: Operation) -> None:
    row = f"| `{operation.method} {operation.path}` | {operation.permission or 'none'} |"
    assert row in (REFERENCE / "api.md").read_text(encoding="utf-8")


def test_no_times_without_a_zone_are_promised() -> None:
    assert "naive" not in text()
    formats = set(re.findall(r'"format": "([a-z-]+)"', text()))
    assert formats <= {"date-time"}
