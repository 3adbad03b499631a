"""Canonical names of relations: ``database.schema.name``, folded by the warehouse's own case rule.

Two texts that mean one relation must give one canonical text, since write claims are compared as texts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ..kernel.errors import InvalidDeclaration

CaseRule = Literal["lower", "upper", "preserve"]

_PARTS_MAX = 3
_PART = re.compile(r'"((?:[^"]|"")*)"|`([^`]*)`|\[([^\]]*)\]|([^."`\[\]]+)')


@dataclass(frozen=True, slots=True)
class NamingRule:
    """How unquoted names fold, and whether quoting keeps the case of a name."""

    case: CaseRule
    quoted_is_exact: bool


# An adapter that is not listed is treated as insensitive to case: that can only make two runs wait for each other.
_INSENSITIVE = NamingRule("lower", quoted_is_exact=False)
_RULES: Mapping[str, NamingRule] = {
    "duckdb": _INSENSITIVE,
    "databricks": _INSENSITIVE,
    "spark": _INSENSITIVE,
    "trino": _INSENSITIVE,
    "athena": _INSENSITIVE,
    "sqlserver": _INSENSITIVE,
    "postgres": NamingRule("lower", quoted_is_exact=True),
    "redshift": _INSENSITIVE,  # folds quoted names too, unless a session says otherwise
    "snowflake": NamingRule("upper", quoted_is_exact=True),
    "bigquery": NamingRule("preserve", quoted_is_exact=True),
    "clickhouse": NamingRule("preserve", quoted_is_exact=True),
}


def naming_rule(adapter: str | None) -> NamingRule:
    """The rule of an adapter."""
    return _RULES.get(adapter or "", _INSENSITIVE)


@dataclass(frozen=True, slots=True)
class Namespace:
    """Where a name that does not say its database or schema lives."""

    database: str | None = None
    schema: str | None = None


def canonical_relation(text: str, rule: NamingRule, namespace: Namespace) -> str:
    """``text`` with the missing parts filled in and each part folded.

    Raises ``InvalidDeclaration`` for a text that is no relation name.
    """
    parts = [_fold(part, quoted=quoted, rule=rule) for part, quoted in _split(text)]
    return ".".join([*_leading(_PARTS_MAX - len(parts), rule, namespace), *parts])


def _leading(missing: int, rule: NamingRule, namespace: Namespace) -> list[str]:
    """The parts in front of a name; a database without a schema would make another relation of it."""
    if missing == 0 or (missing == _PARTS_MAX - 1 and namespace.schema is None):
        return []
    known = [namespace.database, namespace.schema][:missing]
    return [_fold(part, quoted=False, rule=rule) for part in known if part]


def _split(text: str) -> list[tuple[str, bool]]:
    parts: list[tuple[str, bool]] = []
    position = 0
    while True:
        match = _PART.match(text, position)
        if match is None or not match.group(match.lastindex or 0).strip():
            raise InvalidDeclaration.of_field("writes", f"{text!r} is no relation; write database.schema.name")
        part = match.group(match.lastindex or 0)
        quoted = match.lastindex != len(match.groups())
        parts.append((part.replace('""', '"') if quoted else part.strip(), quoted))
        position = match.end()
        if position == len(text):
            break
        if text[position] != ".":
            raise InvalidDeclaration.of_field("writes", f"{text!r} is no relation; write database.schema.name")
        position += 1
    if len(parts) > _PARTS_MAX:
        raise InvalidDeclaration.of_field("writes", f"{text!r} has {len(parts)} parts; write database.schema.name")
    return parts


def _fold(part: str, *, quoted: bool, rule: NamingRule) -> str:
    exact = rule.case == "preserve" or (quoted and rule.quoted_is_exact)
    folded = part if exact else part.lower() if rule.case == "lower" else part.upper()
    return '"' + folded.replace('"', '""') + '"' if "." in folded else folded
