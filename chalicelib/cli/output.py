"""What a command answers, and how it reaches stdout, a file or a terminal."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from ..kernel.errors import OutputFailed, ResultNotDelivered, UsageError


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under column names; every cell is text."""

    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    empty: str = "nothing"


@dataclass(frozen=True, slots=True)
class Facts:
    """Names with values, one a line."""

    pairs: Sequence[tuple[str, str]]


Block = Table | Facts | str


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answer of a command: the document of ``--json`` and what people read instead.

    ``committed`` says what was changed, for the message when the answer cannot be written (S4); empty for reads.
    """

    document: Any
    blocks: Sequence[Block] = ()
    committed: str = ""
    exit_code: int = 0
    warnings: Sequence[str] = field(default=())


def say(text: str) -> None:
    """One line of progress on stderr. A closed stderr stops no command."""
    try:
        if sys.stderr is not None:
            sys.stderr.write(f"{printable(text, keep=chr(10))}\n")
            sys.stderr.flush()
    except OSError:
        return


def printable(text: str, *, keep: str = "") -> str:
    """``text`` with control characters made visible: data must not steer a terminal."""
    return "".join(one if one.isprintable() or one in keep else repr(one)[1:-1] for one in text)


def cell(value: object) -> str:
    """One value as a cell: ``-`` for nothing, no control characters."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple) and all(isinstance(one, str) for one in value):
        return printable(", ".join(value)) or "-"
    if isinstance(value, Mapping | list | tuple):
        return printable(json.dumps(value, ensure_ascii=False, default=str))
    return printable(str(value))


def check_file(path: Path | None) -> None:
    """Refuse a result file that cannot be made, before anything is sent."""
    if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
        raise UsageError.of_field("--json-output", f"{path} cannot be written; name a file in a folder that exists")


def deliver(outcome: Outcome, *, as_json: bool, file: Path | None) -> None:
    """Write the answer to the file, to stdout as a document, or to stdout for people.

    Raises ``ResultNotDelivered`` after a change and ``OutputFailed`` after a read.
    """
    try:
        if file is not None:
            _write_file(file, json_text(outcome.document, ascii_only=False))
        if as_json:
            _write(json_text(outcome.document, ascii_only=not _is_utf8(sys.stdout)))
        elif file is None:
            _write(rendered(outcome.blocks, sys.stdout))
    except (OSError, ValueError) as problem:
        raise _undelivered(outcome.committed, problem) from None


def json_text(document: Any, *, ascii_only: bool) -> str:
    """The document as it is written: indented, one line break at its end."""
    return json.dumps(document, indent=2, ensure_ascii=ascii_only, allow_nan=False) + "\n"


def rendered(blocks: Sequence[Block], stream: TextIO | None) -> str:
    """All blocks as text: drawn on a terminal, plain columns otherwise."""
    if stream is not None and _is_terminal(stream):
        from .terminal import drawn

        return drawn(blocks)
    return "".join(f"{line}\n" for block in blocks for line in _plain(block))


def silence_stdout() -> None:
    """Nothing more goes to a stdout that failed, also not at the interpreter's end."""
    try:
        descriptor = sys.stdout.fileno()
    except (AttributeError, OSError, ValueError):
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


def _undelivered(committed: str, problem: Exception) -> OutputFailed | ResultNotDelivered:
    reason = getattr(problem, "strerror", None) or str(problem)
    if not committed:
        return OutputFailed(f"the answer could not be written ({reason}); nothing was changed")
    return ResultNotDelivered(f"done, but the result could not be written ({reason}). Nothing is lost: {committed}")


def _write(text: str) -> None:
    if sys.stdout is None:
        raise OSError("stdout is closed")
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError:
        silence_stdout()
        raise


def _write_file(path: Path, text: str) -> None:
    """Readable by its owner only: some results hold a token that is shown once."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)


def _is_utf8(stream: TextIO | None) -> bool:
    return stream is not None and (stream.encoding or "").lower().replace("-", "") == "utf8"


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except ValueError:
        return False


def _plain(block: Block) -> Iterator[str]:
    if isinstance(block, str):
        yield printable(block, keep="\n")
    elif isinstance(block, Facts):
        yield from _columns(block.pairs)
    elif block.rows:
        yield from _columns([block.columns, *block.rows])
    else:
        yield block.empty


def _columns(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Left-aligned columns, two spaces apart, no spaces at the end of a line."""
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))] if rows else []
    for row in rows:
        yield "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
