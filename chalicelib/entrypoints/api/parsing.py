"""From the text of a request to its models. Everything wrong is said at once, by field."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Never, TypeVar
from urllib.parse import unquote_to_bytes

from pydantic import BaseModel, ValidationError

from ...kernel.errors import FieldError, IdInvalid, InvalidRequest, Malformed, TooLarge, UnsupportedMedia
from ...kernel.limits import REQUEST_BODY_BYTES
from ...kernel.records import CLIENT_ID_PATTERN

Model = TypeVar("Model", bound=BaseModel)


def path_fields(model: type[Model], encoded: Mapping[str, str]) -> Model:
    """The path's parameters, which arrive percent-encoded (a trigger's name holds a ``/``)."""
    return _strings(model, {name: _decoded(name, value) for name, value in encoded.items()})


def query_fields(model: type[Model], given: Mapping[str, Sequence[str]]) -> Model:
    """The query's parameters, each at most once; unknown ones are refused."""
    twice = [FieldError(name, "repeated", "give it once") for name, values in given.items() if len(values) > 1]
    if twice:
        raise _invalid(twice)
    return _strings(model, {name: values[0] for name, values in given.items()})


def check_size(body: bytes) -> None:
    """Refuse a body over 4 MB."""
    if len(body) > REQUEST_BODY_BYTES:
        raise TooLarge(f"send at most {REQUEST_BODY_BYTES} bytes; upload large documents by their presigned address")


def body_fields(model: type[Model], content_type: str, body: bytes, *, strict: bool) -> Model:
    """The JSON body. When ``strict``, numbers are not read from strings, nor booleans from numbers."""
    _check_media(content_type)
    text = _checked_json(body)
    try:
        return model.model_validate_json(text, strict=strict)
    except ValidationError as error:
        raise _invalid(_field_errors(error)) from None


def _strings(model: type[Model], values: Mapping[str, str]) -> Model:
    try:
        return model.model_validate_strings(dict(values))
    except ValidationError as error:
        raise _invalid(_field_errors(error)) from None


def _decoded(name: str, encoded: str) -> str:
    try:
        return unquote_to_bytes(encoded).decode()
    except UnicodeDecodeError:
        raise Malformed(f"the path's {name} is not percent-encoded UTF-8") from None


def _check_media(content_type: str) -> None:
    media, _, parameters = content_type.lower().partition(";")
    charset = parameters.replace('"', "").strip()
    if media.strip() != "application/json" or charset not in {"", "charset=utf-8"}:
        raise UnsupportedMedia("send the body as Content-Type: application/json, in UTF-8")


def _checked_json(body: bytes) -> str:
    """The body's text when it is JSON without what Postgres and other readers would refuse or read otherwise."""
    try:
        text = body.decode()
        value = json.loads(text, object_pairs_hook=_without_repeats, parse_constant=_no_constant, parse_float=_finite)
        json.dumps(value, ensure_ascii=False).encode()  # a lone surrogate has no UTF-8 form
    except (ValueError, RecursionError) as error:
        raise Malformed(f"the body is not well-formed JSON: {_reason(error)}") from None
    return text


def _without_repeats(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    read: dict[str, Any] = {}
    for name, value in pairs:
        if name in read:
            raise ValueError("a name stands twice in one object")
        read[name] = value
    return read


def _no_constant(name: str) -> Never:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number is too large")
    return number


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at line {error.lineno}, column {error.colno}"
    if isinstance(error, UnicodeError):
        return "it is not UTF-8"
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)


def _field_errors(error: ValidationError) -> list[FieldError]:
    return [
        FieldError(".".join(map(str, part["loc"])) or "body", _code_of(part), part["msg"])
        for part in error.errors(include_url=False, include_input=False)
    ]


def _code_of(part: Any) -> str:
    is_id = part.get("ctx", {}).get("pattern") == CLIENT_ID_PATTERN
    return IdInvalid.code if is_id else str(part["type"])


def _invalid(fields: Sequence[FieldError]) -> InvalidRequest | IdInvalid:
    kind = IdInvalid if all(field.code == IdInvalid.code for field in fields) else InvalidRequest
    return kind("; ".join(f"{field.field}: {field.message}" for field in fields[:5]), fields=fields)
