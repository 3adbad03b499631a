"""The OpenAPI 3.1 document, made from the table of operations and their models.

``python -m chalicelib.entrypoints.api.openapi`` writes it to standard output; ``docs/reference/openapi.json`` keeps it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Literal

from pydantic import BaseModel, TypeAdapter

from ... import __version__
from ...kernel import errors
from ...kernel.errors import TidemillError, status_of
from .problems import PROBLEM_TYPE, Problem
from .routing import Operation
from .table import operations

Part = Literal["path", "query", "body", "answer"]
_REFERENCE = "#/components/schemas/{model}"
_MODES: Mapping[Part, Literal["validation", "serialization"]] = {
    "path": "validation",
    "query": "validation",
    "body": "validation",
    "answer": "serialization",
}
_EVERYWHERE = (
    errors.Malformed, errors.InvalidRequest, errors.IdInvalid, errors.TooLarge, errors.Unavailable, TidemillError,
)  # fmt: skip
_WITH_TOKEN = (
    errors.NotAuthenticated, errors.TokenExpired, errors.TokenRevoked, errors.Forbidden, errors.NotFound,
)  # fmt: skip
_WITH_BODY = (errors.UnsupportedMedia,)
_WITH_CONDITION = (errors.PreconditionFailed, errors.PreconditionRequired)
_CONDITIONS = tuple(
    {"name": name, "in": "header", "required": False, "description": description, "schema": {"type": "string"}}
    for name, description in (
        (
            "If-Match",
            "The `etag` of the document that is changed; the change is refused (412) when it has another one by now.",
        ),
        (
            "If-None-Match",
            "`*`: the document is new; refused (412) when it is there already. One of the two is needed (428).",
        ),
    )
)


@cache
def document() -> dict[str, Any]:
    """The whole document; the same object at each call, so it is not to be changed."""
    rows = operations()
    schemas, components = _schemas(rows)
    paths: dict[str, dict[str, Any]] = {}
    for row in rows:
        paths.setdefault(row.path, {})[row.method.lower()] = _operation(row, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Tidemill", "version": __version__, "description": _DESCRIPTION},
        "paths": paths,
        "components": {
            "schemas": dict(sorted(components.items())),
            "responses": _shared_responses(rows, schemas["problem", "answer"]),
            "headers": {"X-Request-Id": {"required": True, "schema": {"type": "string"}}},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def text() -> str:
    """The document as the file in the docs holds it."""
    return json.dumps(document(), indent=2, ensure_ascii=False) + "\n"


_DESCRIPTION = (
    "Every error is `application/problem+json` with a stable `code`; every answer has `X-Request-Id`. "
    "Lists are pages: pass `next_cursor` on as `cursor` under the same filters."
)


def _schemas(rows: Sequence[Operation]) -> tuple[Mapping[tuple[str, Part], Any], dict[str, Any]]:
    wanted = [((row.name, part), _MODES[part], adapter) for row in rows for part, adapter in _parts(row)]
    found, rest = TypeAdapter.json_schemas(
        [*wanted, (("problem", "answer"), "validation", TypeAdapter(Problem))], ref_template=_REFERENCE
    )
    return {key: schema for (key, _), schema in found.items()}, rest["$defs"]


def _parts(row: Operation) -> Iterable[tuple[Part, TypeAdapter[Any]]]:
    yield "path", TypeAdapter(row.path_model)
    yield "query", TypeAdapter(row.query_model)
    yield "answer", row.answer
    if row.body_model is not None:
        yield "body", TypeAdapter(row.body_model)


def _operation(row: Operation, schemas: Mapping[tuple[str, Part], Any]) -> dict[str, Any]:
    summary, _, description = row.description.partition("\n")
    described: dict[str, Any] = {
        "operationId": row.name,
        "tags": [row.tag],
        "summary": summary.rstrip("."),
        "parameters": [
            *_parameters(row.path_model, "path"),
            *_parameters(row.query_model, "query"),
            *(_CONDITIONS if row.conditional else ()),
        ],
        "responses": _responses(row, schemas),
        "security": [] if row.permission is None else [{"token": []}],
    }
    if description.strip():
        described["description"] = description.strip()
    if row.permission is not None:
        described["x-permission"] = row.permission
    if row.body_model is not None:
        described["requestBody"] = {
            "required": True,
            "content": _content("application/json", schemas[row.name, "body"]),
        }
    return described


def _parameters(model: type[BaseModel], place: Literal["path", "query"]) -> Iterable[dict[str, Any]]:
    schema = model.model_json_schema(ref_template=_REFERENCE)
    required = schema.get("required", [])
    for name, described in schema.get("properties", {}).items():
        yield {"name": name, "in": place, "required": name in required, "schema": _without_null(described)}


def _without_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A parameter of a URL is there or not; it is never null."""
    kept = {name: value for name, value in schema.items() if name not in {"title", "default", "anyOf"}}
    options = [option for option in schema.get("anyOf", []) if option != {"type": "null"}]
    default = {"default": schema["default"]} if schema.get("default") is not None else {}
    return kept | default | (options[0] if len(options) == 1 else {"anyOf": options} if options else {})


def _responses(row: Operation, schemas: Mapping[tuple[str, Part], Any]) -> dict[str, Any]:
    answer = schemas[row.name, "answer"]
    good = {str(int(status)): _response(status.phrase, "application/json", answer) for status in row.statuses}
    if row.conditional:
        for response in good.values():
            response["headers"]["ETag"] = {"required": True, "schema": {"type": "string"}}
    refused = {
        str(status): {"$ref": f"#/components/responses/{'-'.join(codes)}"} for status, codes in _codes(row).items()
    }
    return good | dict(sorted(refused.items()))


def _shared_responses(rows: Sequence[Operation], problem: Any) -> dict[str, Any]:
    """One response per set of codes: most operations are refused for the same reasons."""
    combined = {codes: status for row in rows for status, codes in _codes(row).items()}
    return {
        "-".join(codes): _response(" or ".join(f"`{code}`" for code in codes), PROBLEM_TYPE, problem)
        for codes in sorted(combined)
    }


def _codes(row: Operation) -> Mapping[int, tuple[str, ...]]:
    kinds: list[type[TidemillError]] = [*_EVERYWHERE, *row.errors]
    kinds += _WITH_TOKEN if row.permission is not None else ()
    kinds += _WITH_BODY if row.body_model is not None else ()
    kinds += _WITH_CONDITION if row.conditional else ()
    codes: dict[int, list[str]] = {}
    for kind in kinds:
        of_status = codes.setdefault(status_of(kind()), [])
        if kind.code not in of_status:
            of_status.append(kind.code)
    return {status: tuple(names) for status, names in codes.items()}


def _response(description: str, media: str, schema: Any) -> dict[str, Any]:
    identified = {"X-Request-Id": {"$ref": "#/components/headers/X-Request-Id"}}
    return {"description": description, "headers": identified, "content": _content(media, schema)}


def _content(media: str, schema: Any) -> dict[str, Any]:
    return {media: {"schema": schema}}


if __name__ == "__main__":
    sys.stdout.write(text())
