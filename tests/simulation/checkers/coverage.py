"""C2: ticks are occurrences, none twice, the latest due one after every outage, each with its run (S14 to S19)."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from tests.simulation.checkers.base import Checker
from tests.simulation.database import Commit
from tests.simulation.occurrences import occurrences_around
from tests.simulation.view import Row
from tests.simulation.world import World

_SKIPPED_MAX = 1_000


@dataclass(slots=True)
class _Watched:
    """A trigger as it stands, and from when on its occurrences are owed a tick."""

    spec: dict[str, Any]
    spec_hash: str
    enabled: bool
    owed_after: datetime
    ticked: datetime | None = None


class CoverageChecker(Checker):
    """Follows edits, switches and ticks commit by commit."""

    name = "C2"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._triggers: dict[str, _Watched] = {}
        self._ticks: dict[tuple[str, datetime], Row] = {}
        self._present: set[tuple[str, datetime]] = set()
        self._latest: dict[str, datetime] = {}

    def after_commit(self, commit: Commit) -> None:
        if commit.tables & {"triggers", "trigger_state"}:
            self._follow_edits(commit.now)
        if "ticks" in commit.tables:
            self._follow_ticks(commit)

    # --- edits

    def _follow_edits(self, now: datetime) -> None:
        rows = {row["trigger_id"]: row for row in self.world.view["trigger_state"] if row["kind"] == "schedule"}
        for gone in self._triggers.keys() - rows.keys():
            del self._triggers[gone]
        for trigger_id, row in rows.items():
            self._follow(trigger_id, row, now)

    def _follow(self, trigger_id: str, row: Row, now: datetime) -> None:
        known = self._triggers.get(trigger_id)
        if known is None:
            self._triggers[trigger_id] = _Watched(row["spec"], row["spec_hash"], row["enabled"], now)
            return
        if row["spec_hash"] != known.spec_hash:
            known.spec, known.spec_hash = row["spec"], row["spec_hash"]
            known.owed_after = max(known.owed_after, known.ticked or now, now)
        if row["enabled"] and not known.enabled and known.spec["on_resume"] == "none":
            known.owed_after = max(known.owed_after, now)
        known.enabled = row["enabled"]

    # --- ticks

    def _follow_ticks(self, commit: Commit) -> None:
        rows = self.world.view["ticks"]
        found = {(row["trigger_id"], row["scheduled_for"]): row for row in rows}
        if len(found) < len(rows):
            self.fail("an occurrence was ticked twice")
        fresh = [row for key, row in found.items() if key not in self._present]
        for row in fresh:
            if (row["trigger_id"], row["scheduled_for"]) in self._ticks:
                self.fail(f"an occurrence was ticked again: {row}")
        if len({row["trigger_id"] for row in fresh}) < len(fresh):
            self.fail("one evaluation wrote two ticks of a trigger")
        for gone in self._present - found.keys():
            self._check_gone(gone, commit)
        for row in fresh:
            self._check_tick(row, commit.now)
        changed = [row for key, row in found.items() if key in self._ticks and row != self._ticks[key]]
        for row in changed:
            if self._ticks[row["trigger_id"], row["scheduled_for"]]["outcome"] != "covered":
                self.fail(f"a requested tick changed: {row}")
        self._check_runs(fresh + changed)
        self._ticks |= found
        self._present = set(found)
        self._check_asked()

    def _check_gone(self, key: tuple[str, datetime], commit: Commit) -> None:
        """Retention may remove an old tick; who was ticked for it once is never ticked for it again."""
        kept = timedelta(days=self.world.scenario.kept_days)
        removed = any(name == "remove_ticks" for name, _ in commit.statements)
        if not removed or self._ticks[key]["recorded_at"] > commit.now - kept:
            self.fail(f"the tick {key} is gone")

    def _check_tick(self, row: Row, now: datetime) -> None:
        trigger_id, due = row["trigger_id"], row["scheduled_for"]
        watched = self._triggers.get(trigger_id)
        if watched is None or not watched.enabled:
            self.fail(f"{trigger_id} was ticked for {due} and is {'disabled' if watched else 'gone'}")
            return
        occurrences = self._occurrences(watched)
        if due not in occurrences:
            self.fail(f"{trigger_id} ({watched.spec}) was ticked for {due}, which is no occurrence")
        if due <= watched.owed_after:
            self.fail(f"{trigger_id} was ticked for {due}, and its occurrences count after {watched.owed_after}")
        if any(due < other <= now for other in occurrences):
            self.fail(f"{trigger_id} was ticked for {due} at {now}, and a later occurrence was due")
        self._check_skipped(row, watched, occurrences)
        watched.ticked = max(watched.ticked or due, due)
        self._latest[trigger_id] = max(self._latest.get(trigger_id, due), due)

    def _check_skipped(self, row: Row, watched: _Watched, occurrences: tuple[datetime, ...]) -> None:
        due = row["scheduled_for"]
        positions = {max(watched.owed_after, watched.ticked or watched.owed_after)}
        if (earlier := self._latest.get(row["trigger_id"])) is not None:
            positions.add(max(watched.owed_after, earlier))  # a tick from before the trigger was made anew
        counts = {min(_SKIPPED_MAX, sum(position < other < due for other in occurrences)) for position in positions}
        if row["skipped"] not in counts:
            self.fail(f"{row['trigger_id']} passed over {sorted(counts)} before {due}, the tick says {row['skipped']}")

    def _check_runs(self, ticks: list[Row]) -> None:
        runs = {row["run_id"]: row for row in self.world.view["runs"]}
        for tick in ticks:
            run = runs.get(tick["run_id"] or tick["covered_by"])
            if run is None:
                self.fail(f"the tick of {tick['trigger_id']} for {tick['scheduled_for']} has no run")
            elif not tick["trigger_id"].startswith(f"{run['location']}/{run['target']}/{run['job']}/"):
                self.fail(
                    f"the tick of {tick['trigger_id']} has a run of {run['location']}/{run['target']}/{run['job']}"
                )
            elif run["status"] != "queued":
                self.fail(f"the tick of {tick['trigger_id']} leans on {run['run_id']}, which is {run['status']}")

    def _check_asked(self) -> None:
        """Every requested tick has a run of its own, and every scheduled run its tick, as long as both are kept."""
        ever = [tick["run_id"] for tick in self._ticks.values() if tick["run_id"] is not None]
        present = {run["run_id"] for run in self.world.view["runs"]}
        scheduled = {run["run_id"] for run in self.world.view["runs"] if run["origin"] == "schedule"}
        if len(set(ever)) < len(ever) or scheduled - set(ever):
            self.fail(f"scheduled runs without a tick of their own: {sorted(scheduled - set(ever))}")
        if wrong := (set(ever) & present) - scheduled:
            self.fail(f"ticks asked for runs that no schedule made: {sorted(wrong)}")

    # --- after every outage

    def after_pass(self, shard: int) -> None:
        now = self.world.store_now()
        shards = {row["trigger_id"]: row["shard"] for row in self.world.view["trigger_state"]}
        # A pass takes a little time; what fell due while it ran is the next one's.
        for text in self._overdue(now - timedelta(seconds=1), {t for t in shards if shards[t] == shard}):
            self.fail(f"{text} after a pass at {now}")

    def overdue(self, before: float) -> list[str]:
        """Schedules that were due before that simulated second and have no tick."""
        return self._overdue(self.world.scenario.start + timedelta(seconds=before), set(self._triggers))

    def _overdue(self, until: datetime, trigger_ids: set[str]) -> list[str]:
        found = []
        for trigger_id in sorted(trigger_ids & self._triggers.keys()):
            watched = self._triggers[trigger_id]
            occurrences = self._occurrences(watched)
            at = bisect_right(occurrences, until)
            due = occurrences[at - 1] if at else watched.owed_after
            if watched.enabled and due > watched.owed_after and not self._is_ticked(trigger_id, watched, due):
                found.append(f"{trigger_id} ({watched.spec}) was due at {due} and has no tick")
        return found

    def _is_ticked(self, trigger_id: str, watched: _Watched, due: datetime) -> bool:
        return (trigger_id, due) in self._ticks or (watched.ticked is not None and watched.ticked >= due)

    def _occurrences(self, watched: _Watched) -> tuple[datetime, ...]:
        return occurrences_around(watched.spec["cron"], watched.spec["timezone"], self.world.scenario.start.date())
