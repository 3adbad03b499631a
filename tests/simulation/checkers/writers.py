"""C3: nobody writes a relation that another writes, and nobody writes what it does not hold (S28 to S30)."""

from __future__ import annotations

from tests.simulation.checkers.base import Checker
from tests.simulation.database import Commit


class WriterChecker(Checker):
    """``Warehouses.begin`` refuses a second writer; this holds what is written against what is held."""

    name = "C3"

    def after_commit(self, commit: Commit) -> None:
        if "write_claims" not in commit.tables:
            return
        rows = self.world.view["write_claims"]
        held = {(row["warehouse"], row["relation"], row["run_id"]) for row in rows}
        if len({(row["warehouse"], row["relation"]) for row in rows}) < len(rows):
            self.fail(f"one relation is held twice: {rows}")
        for writer in self.world.warehouses.writing():
            lacking = sorted(r for r in writer.relations if (writer.warehouse, r, writer.run_id) not in held)
            if lacking:
                self.fail(
                    f"{writer.run_id} on {writer.boot_id} writes {lacking} of {writer.warehouse} and does not hold it"
                )
        self._check_waiting(held)

    def _check_waiting(self, held: set[tuple[str, str, str]]) -> None:
        waiting = {row["run_id"] for row in self.world.view["runs"] if row["status"] == "queued"}
        for warehouse, relation, run_id in sorted(held):
            if run_id in waiting:
                self.fail(f"{run_id} waits and holds {relation} of {warehouse}")
