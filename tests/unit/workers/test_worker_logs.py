"""The log of a run: parts, bounds, masks."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

from chalicelib.workers.logs import RunLog
from chalicelib.workers.masking import Mask


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
    log = RunLog(tmp_path / "log", Mask(["hunter2hunter2", "no"]))
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


def printing(log: RunLog, program: str) -> str:
    """What is kept of a program that prints; it has the pipe alone and is not held up."""
    subprocess.run([sys.executable, "-c", program], stdout=log.output, check=True, timeout=30)
    log.child_has_it()
    log.finish()
    return b"".join(part.read_bytes() for part in log.full_parts()).decode(errors="surrogateescape")


def test_as_much_as_thirty_seconds_at_200_kilobytes_keeps_its_order(tmp_path: Path) -> None:
    lines = 6_000_000 // 100
    kept = printing(
        RunLog(tmp_path / "log", Mask(["not to be seen"])), f"for n in range({lines}): print(str(n).rjust(99, '.'))"
    )
    assert [int(line.strip(".")) for line in kept.splitlines()] == list(range(lines))


def test_a_line_of_ten_megabytes_is_kept_in_one_piece(tmp_path: Path) -> None:
    kept = printing(RunLog(tmp_path / "log"), "print('x' * 10_000_000 + 'end'); print('next')")
    assert kept == "x" * 10_000_000 + "end\nnext\n"


def test_binary_output_is_kept_byte_for_byte(tmp_path: Path) -> None:
    kept = printing(RunLog(tmp_path / "log"), "import sys; sys.stdout.buffer.write(bytes(range(256)) * 1000)")
    assert kept.encode(errors="surrogateescape") == bytes(range(256)) * 1000


def test_a_secret_is_masked_wherever_a_line_without_end_is_cut(tmp_path: Path) -> None:
    kept = printing(
        RunLog(tmp_path / "log", Mask(["hunter2-hunter2"])),
        "import sys\nfor n in range(65_400, 65_600): sys.stdout.write('y' * n + 'hunter2-hunter2')",
    )
    assert "hunter" not in kept
    assert kept.count("[hidden]") == 200


def test_a_secret_of_several_lines_is_masked_line_by_line(tmp_path: Path) -> None:
    key = "-----BEGIN KEY-----\nMIIEvQIBADANBgkq\nhkiG9w0BAQEFAASC\n-----END KEY-----\n"
    kept = printing(RunLog(tmp_path / "log", Mask([key])), f"print({key!r}); print('  MIIEvQIBADANBgkq')")
    assert "MIIE" not in kept
    assert "hkiG" not in kept


def test_what_escaped_and_holds_the_pipe_is_not_waited_for(tmp_path: Path) -> None:
    log = RunLog(tmp_path / "log", close_seconds=0.2)
    held = os.dup(log.output)
    os.write(held, b"before\n")
    log.child_has_it()
    log.finish()
    assert b"".join(part.read_bytes() for part in log.full_parts()) == b"before\n"
    os.close(held)
