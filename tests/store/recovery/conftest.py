"""A world whose time passes only when told, with workers that beat or do not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest

from chalicelib.leases.boots import key_of
from chalicelib.runs.model import AcceptRequest, StartRequest
from chalicelib.scheduler.recovery import RecoveryResult
from tests.doubles import HandClock
from tests.store.world import BOOT, World, watch_the_door

SIX = datetime(2026, 12, 1, 6, 0, tzinfo=UTC)
BEAT_SECONDS = 10


class Seconds(HandClock):
    """A clock that tells whoever listens about every moment that it passes by."""

    def __init__(self) -> None:
        super().__init__(SIX)
        self.listeners: list[Callable[[], None]] = []

    def advance(self, seconds: float) -> None:
        super().advance(seconds)
        for listener in list(self.listeners):
            listener()


class Workers:
    """Boots whose beat thread runs by the clock, until they are killed, cut off or paused."""

    def __init__(self, world: World, clock: Seconds) -> None:
        self._world = world
        self._clock = clock
        self._beat_at: dict[str, float] = {}
        clock.listeners.append(self._beat)

    def open(self, boot_id: str = BOOT) -> None:
        """A living boot; the item may be there."""
        self._world.open_boot(boot_id)
        self._beat_at.setdefault(boot_id, self._clock.elapsed_seconds())

    def silence(self, boot_id: str = BOOT) -> None:
        """It beats no more; the item stays."""
        self._beat_at.pop(boot_id, None)

    def close(self, boot_id: str = BOOT) -> None:
        """It is gone with its item."""
        self.silence(boot_id)
        self._world.leases.items.pop(key_of(boot_id, 0), None)

    def _beat(self) -> None:
        now = self._clock.elapsed_seconds()
        for boot_id, last in self._beat_at.items():
            item = self._world.leases.items.get(key_of(boot_id, 0))
            if now - last >= BEAT_SECONDS and item is not None and not self._world.leases.broken:
                item["counter"] += 1
                self._beat_at[boot_id] = now


class Recovered:
    """A world with one job on relation ``a``, and what tests of recovery do in it."""

    def __init__(self, world: World, clock: Seconds, workers: Workers) -> None:
        self.world, self.clock, self.workers = world, clock, workers

    def recover(self, shard: int = 0) -> RecoveryResult:
        return self.world.domains.recovery.recover(shard)

    def claimed(self, job: str = "orders") -> str:
        run_id = self.world.request(job)
        self.world.run_pass()
        return run_id

    def accepted(self, job: str = "orders", boot_id: str = BOOT, kind: str = "container") -> str:
        run_id = self.claimed(job)
        request = {
            "claim_id": self.world.claim_of(run_id),
            "boot_id": boot_id,
            "boot_partition": 0,
            "worker_kind": kind,
        }
        self.world.runs.accept(run_id, AcceptRequest.model_validate(request))
        return run_id

    def running(self, job: str = "orders", boot_id: str = BOOT, kind: str = "container") -> str:
        run_id = self.accepted(job, boot_id, kind)
        self.world.runs.start(run_id, self.world.claim_of(run_id), StartRequest(boot_id=boot_id))
        return run_id

    def claimed_now(self) -> set[str]:
        return {row["run_id"] for row in self.world.sql("SELECT run_id FROM runs WHERE status = 'claimed'")}

    def prove(self, run_id: str) -> None:
        """Somebody who could see the process has written that it ended."""
        self.world.sql("UPDATE claims SET process_ended_at = %s WHERE run_id = %s", self.clock.now(), run_id)

    def marked(self, run_id: str) -> bool:
        return self.world.runs.run(run_id).heartbeat_lost_at is not None

    def end(self, run_id: str) -> tuple[str, str | None]:
        view = self.world.runs.run(run_id)
        return view.state, view.end_reason

    def events(self, run_id: str) -> list[str]:
        return [event.kind for event in self.world.runs.events(run_id, 200, None).items]

    def alerts(self) -> list[tuple[str, str, bool]]:
        rows = self.world.sql(
            "SELECT subject, episode, closed_at IS NULL AS open FROM platform_alerts WHERE condition = 'run_lost' ORDER BY 1, 2"
        )
        return [(row["subject"], row["episode"], row["open"]) for row in rows]

    def held(self) -> list[str]:
        """The relations and slots that are held."""
        rows = self.world.sql("SELECT relation AS thing FROM write_claims UNION ALL SELECT pool FROM slots ORDER BY 1")
        return [row["thing"] for row in rows]


@pytest.fixture
def clock() -> Seconds:
    return Seconds()


@pytest.fixture
def site(application_url: str, owner_url: str, clock: Seconds) -> Iterator[Recovered]:
    watch_the_door(owner_url)
    world = World(application_url, clock=clock)
    world.target()
    world.publish({"orders": {"relations": ["a"]}})
    workers = Workers(world, clock)
    workers.open()
    yield Recovered(world, clock, workers)
    world.close()
