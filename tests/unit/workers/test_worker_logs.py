"""The log of a run: parts, bounds, masks."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from chalicelib.workers.logs import RunLog


def written(log: RunLog, *chunks: bytes) -> list[Path]:
    for chunk in chunks:
        os.write(log.output, chunk)
    log.child_has_it()
    log.finish()
    return log.full_parts()


def test_lines_are_cut_into_parts(tmp_path: Path) -> None:
    parts = written(RunLog(tmp_path / "log", part_bytes=10), b"0123456789\n", b"next\n", b"end")
    assert [part.name for part in parts] == ["0001.log", "0002.log"]
    assert b"".join(part.read_bytes() for part in parts) == b"0123456789\nnext\nend"


def test_secrets_are_masked_also_across_writes(tmp_path: Path) -> None:
    log = RunLog(tmp_path / "log", ["hunter2hunter2", "no"])
    parts = written(log, b"the password is hunter2", b"hunter2, no doubt\n")
    assert parts[0].read_text() == "the password is [hidden], no doubt\n"
    assert log.tail() == "the password is [hidden], no doubt\n"


def test_a_talkative_child_is_read_to_the_end_and_kept_to_a_bound(tmp_path: Path) -> None:
    log = RunLog(tmp_path / "log", part_bytes=100_000, run_bytes=200_000)
    writer = threading.Thread(target=lambda: [os.write(log.output, b"x" * 999 + b"\n") for _ in range(2_000)])
    writer.start()
    writer.join(20)
    assert not writer.is_alive()
    parts = written(log)
    kept = b"".join(part.read_bytes() for part in parts)
    assert 200_000 <= len(kept) < 400_000
    assert kept.endswith(b"[the log is full; what follows was dropped]\n")


def test_an_endless_line_is_cut(tmp_path: Path) -> None:
    log = RunLog(tmp_path / "log", part_bytes=1_000)
    written(log, *[b"y" * 10_000] * 20)
    assert sum(path.stat().st_size for path in (tmp_path / "log").iterdir()) == 200_000


def test_a_disk_that_takes_nothing_does_not_hang_the_child(tmp_path: Path) -> None:
    log = RunLog(tmp_path / "log")
    (tmp_path / "log").rmdir()
    assert written(log, *[b"z" * 50_000 + b"\n"] * 20) == []
    assert log.tail().endswith("z\n")
