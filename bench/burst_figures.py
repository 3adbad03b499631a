"""What a burst is told by, ours and that of others."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from .document import Figure, Figures, rounded
from .percentiles import percentile
from .process_tree import Cost


def wait_until(moment: datetime) -> None:
    """Sleep; ``RuntimeError`` when it is over already, since then nothing can be measured."""
    seconds = (moment - datetime.now(UTC)).total_seconds()
    if seconds < 0:
        raise RuntimeError(f"the preparation took {-seconds:.0f} s too long; the machine is too busy")
    time.sleep(seconds)


def figures_of(count: int, latencies: Sequence[float], cost: Cost) -> Figures:
    """The figures of one burst, named by its size."""
    return {
        f"finished_{count}_seconds": rounded(max(latencies)),
        f"latency_{count}_p50_seconds": rounded(percentile(latencies, 50)),
        f"latency_{count}_p95_seconds": rounded(percentile(latencies, 95)),
        f"cpu_{count}_seconds": rounded(cost.cpu_seconds),
        f"memory_{count}_mb": rounded(cost.memory_mb),
    }


def ratios(counts: Sequence[int], figures: Figures, peers: Mapping[str, Figures]) -> dict[str, Figure]:
    """How much longer each peer takes until the last run of a burst has finished."""
    names = [f"finished_{count}_seconds" for count in counts]
    return {
        f"{peer}_{name.removesuffix('_seconds')}": _ratio(theirs.get(name), figures[name])
        for peer, theirs in peers.items()
        for name in names
    }


def _ratio(theirs: Figure, ours: Figure) -> Figure:
    if not isinstance(theirs, int | float) or not isinstance(ours, int | float):
        return None
    return rounded(theirs / ours)
