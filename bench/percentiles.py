"""Percentiles of a sample."""

from __future__ import annotations

import math
from collections.abc import Iterable


def percentile(values: Iterable[float], percent: float) -> float:
    """The nearest-rank percentile: the smallest value that at least ``percent`` of the sample do not exceed.

    Every answer is a value that was measured. Raises ``ValueError`` for an empty sample, or a percent not in (0, 100].
    """
    ordered = sorted(values)
    if not ordered:
        raise ValueError("an empty sample has no percentiles")
    if not 0 < percent <= 100:
        raise ValueError(f"{percent} is no percentage above 0 and up to 100")
    return ordered[math.ceil(len(ordered) * percent / 100) - 1]


def median(values: Iterable[float]) -> float:
    """The 50th percentile."""
    return percentile(values, 50)
