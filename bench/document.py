"""What a benchmark answers: one JSON object with four keys, or a table for people."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field

Figure = int | float | str | None
Figures = Mapping[str, Figure]


@dataclass(frozen=True, slots=True)
class Document:
    """``figures`` are ours, ``peers`` theirs: figures, or for each peer its own.

    A peer that could not be measured is ``None`` with a ``..._reason``, or has ``unavailable``, which says why.
    ``ratios`` compare two figures of this run; against a peer, above 1 means that ours is faster.
    """

    name: str
    figures: Figures
    peers: Mapping[str, Figure | Figures] = field(default_factory=dict)
    ratios: Figures = field(default_factory=dict)

    def to_json(self) -> str:
        """The object as one line. A NaN or an infinity raises ``ValueError``."""
        return json.dumps(asdict(self), ensure_ascii=False, allow_nan=False)

    def to_table(self) -> str:
        """The same as lines of a group, a name and a value."""
        groups = {"figures": self.figures, "peers": self.peers, "ratios": self.ratios}
        lines = [(group, name, _shown(value)) for group, values in groups.items() for name, value in _flat(values)]
        width = max((len(name) for _, name, _ in lines), default=0)
        return "\n".join([self.name, *(f"  {group:8} {name:{width}}  {value}" for group, name, value in lines)])


def _flat(values: Mapping[str, Figure | Figures]) -> Iterator[tuple[str, Figure]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from ((f"{name}.{inner}", figure) for inner, figure in value.items())
        else:
            yield name, value


def rounded(value: float) -> float:
    """Four significant digits: more would be noise."""
    return float(f"{value:.4g}")


def say(text: str) -> None:
    """Progress, on stderr."""
    print(text, file=sys.stderr, flush=True)


def _shown(value: Figure) -> str:
    return "-" if value is None else f"{value:,}" if isinstance(value, int | float) else value
