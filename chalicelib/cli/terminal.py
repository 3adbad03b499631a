"""Blocks drawn for a terminal with rich; loaded only when stdout is one."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO

from rich import box
from rich.console import Console
from rich.table import Table as Drawn
from rich.text import Text

from .output import Block, Facts, printable

_STYLE_OF_STATE = {
    "succeeded": "green", "failed": "red", "launch_failed": "red", "cancelled": "yellow", "running": "cyan",
    "claimed": "cyan", "queued": "magenta",
}  # fmt: skip


def drawn(blocks: Sequence[Block]) -> str:
    """All blocks with colour and lines, as wide as the terminal."""
    buffer = StringIO()
    console = Console(file=buffer, force_terminal=True, highlight=False)
    for block in blocks:
        console.print(_piece(block))
    return buffer.getvalue()


def _piece(block: Block) -> Text | Drawn:
    if isinstance(block, str):
        return Text(printable(block, keep="\n"))
    if isinstance(block, Facts):
        return _facts(block)
    if not block.rows:
        return Text(block.empty, style="dim")
    table = Drawn(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in block.columns:
        table.add_column(name, overflow="fold")
    for row in block.rows:
        table.add_row(*(_value(text) for text in row))
    return table


def _facts(block: Facts) -> Drawn:
    table = Drawn(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in block.pairs:
        table.add_row(Text(name), _value(value))
    return table


def _value(text: str) -> Text:
    """Never markup: brackets in data stay brackets."""
    return Text(text, style=_STYLE_OF_STATE.get(text, ""))
