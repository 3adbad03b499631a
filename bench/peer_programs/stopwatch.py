"""What all peer programs share: cases on stdin, microseconds per next occurrence on stdout.

It runs in the peers' environments and beside our own code, so it imports nothing but the standard library.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from datetime import datetime

# Takes an expression, a zone's name and a start; gives what computes the next occurrence, one per call.
Begin = Callable[[str, str, datetime], Callable[[], datetime]]


def measure(begin: Begin, cases: list[list[str]], start: str, steps: int, repeats: int) -> dict[str, object]:
    """``microseconds_per_next`` of the fastest of ``repeats`` walks over all cases, ``steps`` occurrences of each.

    ``last``: where each case ended, in seconds since 1970, which shows who computed the same occurrences.
    """
    first = datetime.fromisoformat(start)
    walks = [_walk(begin, cases, first, steps) for _ in range(repeats)]
    fastest = min(seconds for seconds, _ in walks)
    return {"microseconds_per_next": fastest / (len(cases) * steps) * 1e6, "last": walks[0][1]}


def _walk(begin: Begin, cases: list[list[str]], first: datetime, steps: int) -> tuple[float, list[float]]:
    """Processor seconds of one walk, without making the objects and the first step, which may fill a cache."""
    ready = [begin(cron, zone, first) for cron, zone in cases]
    last = [step() for step in ready]
    began = time.process_time()
    for place, step in enumerate(ready):
        for _ in range(steps):
            last[place] = step()
    return time.process_time() - began, [moment.timestamp() for moment in last]


def answer(begin: Begin) -> None:
    """The whole program of a peer."""
    sys.stdout.write(json.dumps(measure(begin, **json.load(sys.stdin))) + "\n")
