"""What a burst is told by, and what a tree of processes costs."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from bench.burst_figures import figures_of, ratios
from bench.document import Figures
from bench.process_tree import Cost, measured_tree, tree

BUSY = "import time\nuntil = time.process_time() + 0.3\nwhile time.process_time() < until: pass\n"


def test_a_burst_is_told_by_its_last_run() -> None:
    figures = figures_of(3, [3.0, 1.0, 2.0], Cost(cpu_seconds=1.5, memory_mb=200.04))
    assert figures == {
        "finished_3_seconds": 3.0,
        "latency_3_p50_seconds": 2.0,
        "latency_3_p95_seconds": 3.0,
        "cpu_3_seconds": 1.5,
        "memory_3_mb": 200.0,
    }


def test_a_peer_without_a_figure_has_no_ratio() -> None:
    peers: dict[str, Figures] = {"slow": {"finished_50_seconds": 30.0}, "absent": {"unavailable": "no such package"}}
    assert ratios((50,), {"finished_50_seconds": 3.0}, peers) == {"slow_finished_50": 10.0, "absent_finished_50": None}


def test_what_ended_children_used_is_counted() -> None:
    with measured_tree(os.getpid()) as cost:
        subprocess.run([sys.executable, "-c", BUSY], check=True)
    assert 0.25 <= cost.cpu_seconds < 30


def test_memory_is_that_of_the_whole_tree() -> None:
    code = "import sys\nheld = b'x' * 50_000_000\nprint(len(held), flush=True)\nsys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdout.readline()
        with measured_tree(child.pid, look_seconds=0.01) as cost:
            assert [process.pid for process in tree(child.pid)] == [child.pid]
            assert cost.looked.wait(30)
        child.stdin.close()
    assert cost.memory_mb == pytest.approx(60, abs=20)
