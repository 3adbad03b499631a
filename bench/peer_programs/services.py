"""What the programs of the burst share: the talk with the benchmark, and processes that end with the program.

The benchmark writes one JSON object with the settings, is told ``prepared``, writes when the burst is due, is told
``ready`` once everything waits for that moment, and at last gets the seconds from due to finished of each run.
It runs in the peers' environments, so it imports nothing but the standard library.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

_LOOK_SECONDS = 0.5
_STOP_SECONDS = 20
BINARIES = Path(sys.executable).parent


def hear() -> Any:
    """The next thing that the benchmark says."""
    return json.loads(sys.stdin.readline())


def tell(what: object) -> None:
    """Say something to the benchmark."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def burst(
    prepare: Callable[[Mapping[str, Any]], Callable[[datetime], Iterator[Callable[[], Sequence[float]]]]],
) -> None:
    """A whole program: ``prepare`` gives what starts everything for a due moment and knows who has finished."""
    settings = hear()
    Path(settings["folder"]).mkdir(parents=True, exist_ok=True)
    os.chdir(settings["folder"])
    start = prepare(settings)
    tell("prepared")
    due = datetime.fromisoformat(hear())
    with contextmanager(start)(due) as finished:
        tell("ready")
        until = due.timestamp() + settings["patience_seconds"]
        seconds = finished()
        while len(seconds) < settings["count"] and time.time() < until:
            time.sleep(_LOOK_SECONDS)
            seconds = finished()
        tell(list(seconds))


@contextmanager
def service(name: str, command: Sequence[str | Path], environment: Mapping[str, str]) -> Iterator[None]:
    """A process in a group of its own, whose output goes to ``<name>.log``; ended with all that it started."""
    with Path(f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            [str(word) for word in command],
            env=_with_path(environment),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield
    finally:
        _end(process)


def _with_path(environment: Mapping[str, str]) -> dict[str, str]:
    return {**os.environ, "PATH": f"{BINARIES}{os.pathsep}{os.environ.get('PATH', os.defpath)}", **environment}


def _end(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(_STOP_SECONDS)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


def run(command: Sequence[str | Path], environment: Mapping[str, str]) -> None:
    """Run to the end; the last line of what it said is in the error."""
    done = subprocess.run(
        [str(word) for word in command],
        env=_with_path(environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or [""]
        raise SystemExit(f"{Path(str(command[0])).name} ended with {done.returncode}: {lines[-1]}")


def answers(url: str, seconds: float) -> None:
    """Wait until an address answers."""
    until = time.monotonic() + seconds
    while True:
        try:
            with urllib.request.urlopen(url, timeout=2):  # noqa: S310 - an address on this machine
                return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(_LOOK_SECONDS)


def wait_for(condition: Callable[[], bool], seconds: float, what: str) -> None:
    """Wait until something is true."""
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            raise SystemExit(f"waited {seconds:.0f} s in vain for {what}")
        time.sleep(_LOOK_SECONDS)
