"""From a fresh checkout to two projects built on schedule, with everything that makes it safe shown once.

``make demo`` calls this. It starts ``tidemill dev`` on copies of both examples, waits for their schedules to fire, reads
the rows back from the DuckDB files, shows a run that waits for a write claim, cancels the holder, and stops it all.
A readable table goes to stderr and one JSON document to stdout; exit code 0 only if all of it happened.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

EXAMPLES = Path(__file__).resolve().parent
FOLDER = EXAMPLES.parent / ".demo"
TIDEMILL = [str(Path(sys.executable).parent / "tidemill")]
SCHEDULE = "coffee/schedule"
TERMINAL = {"succeeded", "failed", "cancelled", "launch_failed"}
START_SECONDS, RUN_SECONDS, STOP_SECONDS = 180, 240, 60

CONSOLE = Console(stderr=True, soft_wrap=True)
TABLE_WIDTH = 110


@dataclass
class Project:
    """One example, copied, and the scheduled run that was seen of it."""

    name: str
    runner: str
    database: str
    run: dict[str, Any] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """The copy that the demonstration builds."""
        return FOLDER / self.name


PROJECTS = (Project("coffee_sqlbuild", "sqb", "warehouse/coffee.duckdb"), Project("coffee_dbt", "dbt", "coffee.duckdb"))


def main() -> int:
    """Run the demonstration; 0 when all of it happened."""
    projects = [project for project in PROJECTS if ready(project)]
    prepare(projects)
    stack = start(projects)
    document: dict[str, Any] = {"ok": False, "runs": []}
    try:
        wait_for((FOLDER / ".tidemill" / "dev.json").is_file, START_SECONDS, "the stack to start", stack)
        for project in projects:
            project.run = scheduled_run(project, stack)
        for project in projects:
            document["runs"].append(described(project))
        show(document["runs"])
        holder, document["refused"] = show_refusal(stack)
        document["cancelled"] = show_cancel(holder, document["refused"]["run_id"], stack)
        document["ok"] = all_happened(document, projects)
    finally:
        document["stopped"] = stop(stack)
    print(json.dumps(document, indent=2))
    return 0 if document["ok"] and document["stopped"] else 1


def ready(project: Project) -> bool:
    """Whether the example has its environment; what is missing is said."""
    there = (EXAMPLES / project.name / ".venv" / ".ready").is_file()
    if not there:
        say(
            f"[yellow]{project.name} is left out: its environment is missing; `make setup` says which Python it needs[/]"
        )
    return there


def prepare(projects: list[Project]) -> None:
    """Fresh copies, so that the examples themselves stay clean."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    left_out = shutil.ignore_patterns(".venv", ".tidemill", "target", "logs", "*.duckdb*", "__pycache__", ".user.yml")
    for project in projects:
        shutil.copytree(EXAMPLES / project.name, project.folder, ignore=left_out)
        (project.folder / ".venv").symlink_to(EXAMPLES / project.name / ".venv")


def start(projects: list[Project]) -> subprocess.Popen[bytes]:
    """The local stack as a user starts it; what it says goes to our stderr."""
    say("starting the local stack")
    command = [*TIDEMILL, "dev", *(project.name for project in projects)]
    return subprocess.Popen(command, cwd=FOLDER, stdout=sys.stderr.fileno(), stdin=subprocess.DEVNULL)


def stop(stack: subprocess.Popen[bytes]) -> bool:
    """Stop it as Ctrl-C does; ``True`` when it ended well."""
    say("stopping the local stack")
    stack.send_signal(signal.SIGINT)
    try:
        return stack.wait(STOP_SECONDS) == 0
    except subprocess.TimeoutExpired:
        stack.kill()
        return False


def scheduled_run(project: Project, stack: subprocess.Popen[bytes]) -> dict[str, Any]:
    """The first run that the schedule made, when it has ended."""
    say(f"waiting for the schedule of {project.name} (due at the next full minute) and its build")

    def ended() -> dict[str, Any] | None:
        runs = tidemill("runs", "list", "--location", project.name, "--origin", "schedule")["items"]
        over = [run for run in runs if run["state"] in TERMINAL]
        return over[-1] if over else None

    run = wait_for(ended, RUN_SECONDS, f"a scheduled run of {project.name}", stack)
    tidemill("triggers", "disable", SCHEDULE, "--location", project.name, "--target", "dev")
    wait_for(lambda: not active_runs(project.name), RUN_SECONDS, f"{project.name} to be idle", stack)
    return dict(run)


def active_runs(location: str) -> list[dict[str, Any]]:
    """Runs of a location that have not ended."""
    return [run for run in tidemill("runs", "list", "--location", location)["items"] if run["state"] not in TERMINAL]


def described(project: Project) -> dict[str, Any]:
    """The line of the document for a scheduled run."""
    run = project.run
    ticks = tidemill("triggers", "ticks", SCHEDULE, "--location", project.name, "--target", "dev")["items"]
    tick = next(tick for tick in ticks if tick["run_id"] == run["run_id"])
    nodes = tidemill("runs", "nodes", run["run_id"])["items"]
    return {
        "project": project.name,
        "runner": project.runner,
        "origin": run["origin"],
        "state": run["state"],
        "nodes": len(nodes),
        "rows": rows(project),
        "due_to_queued_ms": milliseconds(tick["scheduled_for"], tick["recorded_at"]),
        "due_to_started_ms": milliseconds(tick["scheduled_for"], run["started_at"]),
    }


def rows(project: Project) -> dict[str, int]:
    """Row counts of the built relations, read back with the project's own DuckDB."""
    script = (
        "import duckdb, json, sys\n"
        "connection = duckdb.connect(sys.argv[1], read_only=True)\n"
        "tables = connection.execute('SELECT table_schema, table_name FROM information_schema.tables ORDER BY 1, 2').fetchall()\n"
        'count = lambda *name: connection.execute(\'SELECT count(*) FROM "%s"."%s"\' % name).fetchone()[0]\n'
        "print(json.dumps({'.'.join(table): count(*table) for table in tables if not table[1].startswith('_')}))\n"
    )
    python = project.folder / ".venv" / "bin" / "python"
    done = subprocess.run(
        [python, "-I", "-c", script, project.database], cwd=project.folder, capture_output=True, text=True, check=True
    )
    return dict(json.loads(done.stdout))


def milliseconds(earlier: str, later: str) -> int:
    """Between two instants."""
    return round((datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds() * 1000)


def show(runs: list[dict[str, Any]]) -> None:
    """The table of the scheduled runs."""
    table = Table(
        "project", "runner", "state", "nodes", "rows", "due to queued", "due to started", title="Built on schedule"
    )
    for run in runs:
        counted = "\n".join(f"{name} {count}" for name, count in run["rows"].items())
        table.add_row(
            run["project"], run["runner"], run["state"], str(run["nodes"]), counted,
            f"{run['due_to_queued_ms']} ms", f"{run['due_to_started_ms']} ms",
        )  # fmt: skip
    CONSOLE.print(table, width=TABLE_WIDTH)


def show_refusal(stack: subprocess.Popen[bytes]) -> tuple[str, dict[str, Any]]:
    """A run that holds the database, and a second one that is refused its write claim and says why."""
    say("a run takes the write claim of the dbt project's database and holds it")
    holder = request("export", "--input", "pause_seconds=200")
    wait_for(lambda: state_of(holder) == "running", RUN_SECONDS, "the holder to run", stack)
    waiting = request("coffee")
    wait_for(lambda: tidemill("runs", "why", waiting)["blockers"], RUN_SECONDS, "the second run to be refused", stack)
    why = tidemill("runs", "why", waiting)
    say(f"[bold]tidemill runs why {waiting}[/]")
    subprocess.run([*TIDEMILL, "runs", "why", waiting], cwd=FOLDER, stdout=sys.stderr.fileno(), check=True)
    return holder, why


def show_cancel(holder: str, waiting: str, stack: subprocess.Popen[bytes]) -> dict[str, Any]:
    """Cancel the holder; the waiting run then gets the claim and succeeds."""
    say("cancelling the holder")
    tidemill("runs", "cancel", holder)
    wait_for(lambda: state_of(holder) in TERMINAL, RUN_SECONDS, "the holder to stop", stack)
    wait_for(lambda: state_of(waiting) in TERMINAL, RUN_SECONDS, "the waiting run to build", stack)
    answer = {"run_id": holder, "state": state_of(holder), "then": {"run_id": waiting, "state": state_of(waiting)}}
    say(f"{holder} is {answer['state']}; the run that waited for it is {state_of(waiting)}")
    return answer


def request(job: str, *more: str) -> str:
    """Ask for a run of the dbt project; its id."""
    return str(tidemill("run", job, "--location", "coffee_dbt", "--target", "dev", *more)["run"]["run_id"])


def state_of(run_id: str) -> str:
    """The present state of a run."""
    return str(tidemill("runs", "show", run_id)["state"])


def all_happened(document: dict[str, Any], projects: list[Project]) -> bool:
    """Whether every part of the demonstration went as it must."""
    built = [run["state"] == "succeeded" and run["rows"] and run["nodes"] for run in document["runs"]]
    refused = [blocker["code"] for blocker in document["refused"]["blockers"]]
    cancelled = document["cancelled"]
    return (
        len(built) == len(projects)
        and all(built)
        and "write_claim" in refused
        and (cancelled["state"], cancelled["then"]["state"]) == ("cancelled", "succeeded")
    )


def tidemill(*arguments: str) -> Any:
    """One command of the CLI, its JSON document."""
    done = subprocess.run([*TIDEMILL, *arguments, "--json"], cwd=FOLDER, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"tidemill {' '.join(arguments)} ended with {done.returncode}:\n{done.stderr}{done.stdout}")
    return json.loads(done.stdout)


def wait_for(condition: Callable[[], Any], seconds: float, what: str, stack: subprocess.Popen[bytes]) -> Any:
    """Wait until ``condition`` gives something true; ends with a message when the time or the stack is over."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        found = condition()
        if found:
            return found
        if stack.poll() is not None:
            raise SystemExit(f"the local stack ended with {stack.returncode} while waiting for {what}")
        time.sleep(0.5)
    raise SystemExit(f"waited {seconds:.0f} s for {what} in vain")


def say(text: str) -> None:
    """Progress goes to stderr."""
    CONSOLE.print(text)


if __name__ == "__main__":
    os.environ.pop("TIDEMILL_SERVER", None)
    sys.exit(main())
