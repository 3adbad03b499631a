"""An answer of the server becomes a value or one of the kernel's errors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..kernel.errors import FieldError, TidemillError, all_errors
from ..kernel.limits import TEXT_FIELD_CHARACTERS
from .redaction import redacted

_FIELDS_SHOWN = 100
_CLIENT_ERROR, _SERVER_ERROR = 400, 500


def error_classes() -> Mapping[str, type[TidemillError]]:
    """Every error class by its code."""
    return {error.code: error for error in all_errors()}


def error_of(status: int, content: bytes, request_id: str | None, *secrets: str) -> TidemillError:
    """The error that a problem document stands for; its ``facts`` hold status, code and request id.

    A code that this release does not know, or an answer that is no problem document, becomes a plain
    ``TidemillError`` whose ``facts["status"]`` decides the exit code.
    """
    problem = _document(content)
    code = problem.get("code")
    known = error_classes().get(code) if isinstance(code, str) else None
    told = problem.get("facts")
    facts: dict[str, object] = {
        **(told if isinstance(told, dict) else {}),
        "status": status,
        "code": code if isinstance(code, str) else None,
        "request_id": problem.get("request_id") or request_id,
    }
    detail = _text(problem.get("detail") or problem.get("title"), *secrets) or _plain_detail(status)
    return (known or TidemillError)(detail, fields=_fields(problem, *secrets), facts=facts)


def _document(content: bytes) -> Mapping[str, Any]:
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _plain_detail(status: int) -> str:
    if status < _SERVER_ERROR:
        return f"the server refused the request with status {status} and gave no reason; is --server right?"
    return f"the server failed with status {status} and gave no reason; repeat later"


def _text(value: object, *secrets: str) -> str:
    return redacted(value, *secrets)[:TEXT_FIELD_CHARACTERS] if isinstance(value, str) else ""


def _fields(problem: Mapping[str, Any], *secrets: str) -> list[FieldError]:
    errors = problem.get("errors")
    rows = errors[:_FIELDS_SHOWN] if isinstance(errors, list) else []
    return [
        FieldError(
            _text(row.get("field"), *secrets), _text(row.get("code"), *secrets), _text(row.get("message"), *secrets)
        )
        for row in rows
        if isinstance(row, dict)
    ]
