"""A result that is committed but cannot be written is exit 7 and nothing is lost (S4)."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import PROGRAM, Cli, Ended
from tests.scripted_server import Asked, Reply, ScriptedServer, good

RUN = "run_0123456789abcdef"
CANCEL = ["runs", "cancel", RUN, "--id", "can_0123456789abcdef"]
READ = ["runs", "show", RUN]
FULL = Path("/dev/full")


def answers(asked: Asked) -> Reply:
    if asked.path.endswith("/cancel"):
        return good({"status": "cancelled", "state": "cancelled", "covered_ticks": [], "first_request": None})
    return good({"run_id": RUN, "state": "running"})


def ended(process: subprocess.Popen[str]) -> Ended:
    out, err = process.communicate(timeout=30)
    return Ended(process.returncode, out or "", err)


def with_broken_pipe(cli: Cli, *words: str) -> Ended:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        return ended(cli.start(*words, stdout=writing))
    finally:
        os.close(writing)


@pytest.fixture
def ready_to_answer(ready: Cli, server: ScriptedServer) -> Cli:
    server.answer(answers)
    return ready


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_broken_pipe_after_a_change_is_exit_7_with_the_id(ready_to_answer: Cli, form: list[str]) -> None:
    found = with_broken_pipe(ready_to_answer, *CANCEL, *form)
    assert found.code == 7
    assert "done, but the result could not be written" in found.err
    assert "can_0123456789abcdef" in found.err
    assert "Exception ignored" not in found.err


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_broken_pipe_after_a_read_is_exit_1(ready_to_answer: Cli, form: list[str]) -> None:
    found = with_broken_pipe(ready_to_answer, *READ, *form)
    assert found.code == 1
    assert "nothing was changed" in found.err
    assert "Exception ignored" not in found.err


def test_a_full_disk_behind_stdout_after_a_change_is_exit_7(ready_to_answer: Cli) -> None:
    with FULL.open("w") as full:
        found = ended(ready_to_answer.start(*CANCEL, "--json", stdout=full))
    assert found.code == 7
    assert "No space left" in found.err


def test_a_full_disk_behind_the_result_file_is_exit_7(ready_to_answer: Cli) -> None:
    found = ready_to_answer.run(*CANCEL, "--json-output", str(FULL))
    assert (found.code, found.out) == (7, "")
    assert "No space left" in found.err
    assert "can_0123456789abcdef" in found.err
    document = ready_to_answer.json(*CANCEL, "--json-output", str(FULL)).document
    assert document["error"]["code"] == "result_not_delivered"


def test_a_closed_stdout_after_a_change_is_exit_7(ready_to_answer: Cli) -> None:
    command = ["sh", "-c", 'exec "$@" >&-', "sh", *PROGRAM, *CANCEL]
    found = subprocess.run(command, cwd=ready_to_answer.folder, capture_output=True, text=True, timeout=30, check=False)
    assert found.returncode == 7
    assert "stdout is closed" in found.stderr


def test_a_closed_stderr_stops_no_command(ready_to_answer: Cli) -> None:
    command = ["sh", "-c", 'exec "$@" 2>&-', "sh", *PROGRAM, *CANCEL, "--json"]
    found = subprocess.run(command, cwd=ready_to_answer.folder, capture_output=True, text=True, timeout=30, check=False)
    assert found.returncode == 0
    assert json.loads(found.stdout)["status"] == "cancelled"


def test_a_result_file_in_no_folder_is_refused_before_anything_is_sent(
    ready_to_answer: Cli, server: ScriptedServer
) -> None:
    found = ready_to_answer.run(*CANCEL, "--json-output", "absent/result.json")
    assert found.code == 2
    assert "--json-output" in found.err
    assert server.asked == []


def test_a_result_file_is_readable_by_its_owner_only(ready_to_answer: Cli) -> None:
    found = ready_to_answer.run(*CANCEL, "--json-output", "result.json")
    path = ready_to_answer.folder / "result.json"
    assert (found.code, found.out) == (0, "")
    assert json.loads(path.read_text())["status"] == "cancelled"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def interrupted(cli: Cli, server: ScriptedServer, *words: str) -> Ended:
    """Start a command that waits for a run that never ends, and press Ctrl-C once it has looked."""
    process: subprocess.Popen[str] = cli.start(*words, stdout=subprocess.PIPE)
    assert process.stderr is not None
    seen: list[str] = []
    while not any("running" in line for line in seen):
        line = process.stderr.readline()
        assert line, f"ended early: {seen}"
        seen.append(line)
    process.send_signal(signal.SIGINT)
    found = ended(process)
    return Ended(found.code, found.out, "".join(seen) + found.err)


@pytest.mark.parametrize("words", [["runs", "wait", RUN], ["run", "orders", "--wait", "--id", RUN]])
def test_ctrl_c_while_waiting_leaves_the_run_going_and_says_so(
    ready: Cli, server: ScriptedServer, words: list[str]
) -> None:
    run: dict[str, Any] = {"run_id": RUN, "state": "running"}
    server.answer(lambda asked: good({"run": run, "reused": False}, 201) if asked.method == "POST" else good(run))
    found = interrupted(ready, server, *words)
    assert found.code == 130
    assert f"the run {RUN} goes on" in found.err
    assert f"tidemill runs wait {RUN}" in found.err
    assert "Traceback" not in found.err
    assert not any("cancel" in path for path in server.paths())


def test_a_bundle_that_cannot_be_written_is_one_clear_error(ready: Cli) -> None:
    (ready.folder / "bundle").write_text("a file where the folder should be")
    found = ready.json("compile", "--out", "bundle")
    assert found.code == 1
    assert found.document["error"]["code"] == "output_failed"
    assert "bundle" in found.err
    assert "choose another folder" in found.err
