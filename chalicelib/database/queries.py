"""Named queries in ``.sql`` files: ``-- name: pick_due`` starts one, ``:name`` is a parameter."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources

_NAME = re.compile(r"^-- name: ([a-z_]+)\s*$", re.MULTILINE)
# A parameter is ':name' that is not part of a '::cast' or of a longer word.
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)\b")
_COMMENT = re.compile(r"--[^\n]*")


@dataclass(frozen=True)
class Query:
    """One named statement, with its parameters in the driver's own form."""

    name: str
    text: str
    parameters: frozenset[str]

    @cached_property
    def encoded(self) -> bytes:
        """The text as the driver takes it: always the same object, by which it finds what it knows of it."""
        return self.text.encode()


class Queries:
    """The statements of one file, by name."""

    def __init__(self, source: str, text: str) -> None:
        self._source = source
        parts = _NAME.split(text)
        self._queries = {name: _parse(name, body) for name, body in zip(parts[1::2], parts[2::2], strict=True)}

    def __getitem__(self, name: str) -> Query:
        return self._queries[name]

    def names(self) -> list[str]:
        """All names, in the order of the file."""
        return list(self._queries)


def _parse(name: str, body: str) -> Query:
    text = _COMMENT.sub("", body).strip().rstrip(";")
    parameters = frozenset(_PARAMETER.findall(text))
    driver_text = _PARAMETER.sub(r"%(\1)s", text.replace("%", "%%"))
    return Query(name, driver_text, parameters)


@cache
def load_queries(package: str, file_name: str = "queries.sql") -> Queries:
    """The statements of a package's file, read once per process."""
    text = resources.files(package).joinpath(file_name).read_text(encoding="utf-8")
    return Queries(f"{package}/{file_name}", text)
