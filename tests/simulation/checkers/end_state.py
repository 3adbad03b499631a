"""What must be true where a history ended, however its steps overlapped: parts of C2, C4, C5, C6."""

from __future__ import annotations

from datetime import datetime, timedelta

from tests.simulation.checkers.states import LISTED, StateChecker
from tests.simulation.occurrences import occurrences_around
from tests.simulation.violations import Violation
from tests.simulation.world import World


def check_end(world: World) -> None:
    """Everything has ended, nothing is held, and every tick is an occurrence with its run."""
    _check_ended(world)
    _check_ticks(world)
    StateChecker(world).at_end()


def _check_ended(world: World) -> None:
    left = [(row["run_id"], row["status"]) for row in world.view["runs"] if LISTED[row["status"]]]
    if left:
        raise Violation("C6", f"after hours without faults these have not ended: {left}")
    if open_backfills := [row["backfill_id"] for row in world.view["backfills"] if row["finished_at"] is None]:
        raise Violation("C17", f"after hours without faults these have not ended: {open_backfills}")
    for table, checker in (("slots", "C4"), ("write_claims", "C3"), ("run_blockers", "C6")):
        if world.view[table]:
            raise Violation(checker, f"nothing runs, and {table} holds {world.view[table]}")


def _check_ticks(world: World) -> None:
    specs = _specs(world)
    ticks = world.view["ticks"]
    keys = [(row["trigger_id"], row["scheduled_for"]) for row in ticks]
    if len(set(keys)) < len(keys):
        raise Violation("C2", "an occurrence was ticked twice")
    for trigger_id, due in keys:
        if not any(due in _occurrences(world, *spec) for spec in specs[trigger_id]):
            raise Violation("C2", f"{trigger_id} was ticked for {due}, which is no occurrence")
    asked = {row["run_id"] for row in ticks if row["run_id"] is not None}
    runs = {row["run_id"]: row for row in world.view["runs"]}
    scheduled = {run_id for run_id, row in runs.items() if row["origin"] == "schedule"}
    # after days retention may have removed the tick of a run, which may be younger than its tick
    complete = world.clock.elapsed_seconds() < timedelta(days=world.scenario.kept_days).total_seconds()
    wrong = (asked & runs.keys()) - scheduled | (scheduled - asked if complete else set())
    if wrong:
        raise Violation("C2", f"ticks and scheduled runs differ: {sorted(wrong)}")


def _specs(world: World) -> dict[str, set[tuple[str, str]]]:
    """Every cron and zone that a trigger ever had."""
    found: dict[str, set[tuple[str, str]]] = {}
    for (location, target), versions in world.scenario.versions.items():
        for version in versions:
            for job in version.index.jobs.values():
                for trigger in job.triggers:
                    spec = (str(trigger.spec["cron"]), str(trigger.spec["timezone"]))
                    found.setdefault(f"{location}/{target}/{trigger.name}", set()).add(spec)
    return found


def _occurrences(world: World, cron: str, zone: str) -> tuple[datetime, ...]:
    return occurrences_around(cron, zone, world.scenario.start.date())
