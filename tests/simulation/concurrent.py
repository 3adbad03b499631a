"""The second suite: the same histories on several real connections at once.

Several threads play their share of one history with drivers of their own. Transactions overlap, wait for each other's
locks and deadlock as they please, so nothing repeats byte by byte; what must hold holds all the same.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from chalicelib.cloud.ports import QueueMessage, Refusal
from chalicelib.database import Database, Transaction
from chalicelib.database.constraints import translated
from tests.simulation.board import Board, Crashed, Process
from tests.simulation.checkers.end_state import check_end
from tests.simulation.clock import WorldClock
from tests.simulation.database import StoreWeather, connect, lost_connection
from tests.simulation.drivers.base import Driver
from tests.simulation.drivers.everyone import all_drivers
from tests.simulation.history import Step
from tests.simulation.leases import SimulatedTable
from tests.simulation.mutations import NO_MUTATION
from tests.simulation.queues import SimulatedQueues
from tests.simulation.simulation import draw
from tests.simulation.store import SimulationStore
from tests.simulation.tasks import SimulatedTasks
from tests.simulation.trace import Trace
from tests.simulation.view import Row, StoreView
from tests.simulation.violations import Violation
from tests.simulation.world import World

Result = TypeVar("Result")
THREADS = 3
_CONNECTIONS = THREADS + 1
_CALM_ROUNDS = (2.0,) * 6 + (60.0,) * 6 + (300.0,) * 24


class ThreadedBoard(Board):
    """Every thread has its own current process; nobody is held up, since others run anyway."""

    def __init__(self, clock: WorldClock, trace: Trace) -> None:
        self._own = threading.local()
        super().__init__(clock, trace)

    @property
    def _current(self) -> Process:
        found: Process = getattr(self._own, "process", self._idle)
        return found

    @_current.setter
    def _current(self, process: Process) -> None:
        self._own.process = process

    def run(self, process: Process, call: Callable[[], None]) -> None:
        process.faults = tuple(fault for fault in process.faults if fault.what != "pause")
        before, self._current = self._current, process
        try:
            call()
        except Crashed:
            self.trace.add("died", process.name)
        finally:
            self._current = before

    def sleep(self, seconds: float) -> None:
        """Waiting makes the time of all pass: an observer may find a lease unmoved whose owner only had no turn."""
        self.clock.advance(seconds)


class LockedQueues(SimulatedQueues):
    """One call at a time."""

    def __init__(self, board: Board) -> None:
        super().__init__(board)
        self._lock = threading.RLock()

    def send(self, queue: str, body: str, *, delay_seconds: int = 0) -> None:
        with self._lock:
            super().send(queue, body, delay_seconds=delay_seconds)

    def receive(self, queue: str, *, wait_seconds: int, maximum: int = 1) -> Sequence[QueueMessage]:
        with self._lock:
            return super().receive(queue, wait_seconds=wait_seconds, maximum=maximum)

    def delete(self, queue: str, receipt: str) -> None:
        with self._lock:
            super().delete(queue, receipt)

    def next_visible_at(self, queue: str) -> float | None:
        with self._lock:
            return super().next_visible_at(queue)


class LockedTable(SimulatedTable):
    """One call at a time."""

    def __init__(self, board: Board, mutated: Mapping[str, str | None]) -> None:
        super().__init__(board, mutated)
        self._lock = threading.RLock()

    def put_new(self, pk: str, sk: str, attributes: Mapping[str, Any]) -> Refusal | None:
        with self._lock:
            return super().put_new(pk, sk, attributes)

    def update(self, pk: str, sk: str, **how: Any) -> Mapping[str, Any] | Refusal:
        with self._lock:
            return super().update(pk, sk, **how)

    def partition(self, pk: str) -> Sequence[Mapping[str, Any]]:
        with self._lock:
            return super().partition(pk)

    def delete(self, pk: str, sk: str, *, owner_token: str) -> bool:
        with self._lock:
            return super().delete(pk, sk, owner_token=owner_token)


class PooledDatabase(Database):
    """The product's own pool and connections, with virtual time and the faults of a commit."""

    def __init__(self, url: str, board: Board, weather: StoreWeather, read_now: Callable[[], Any]) -> None:
        super().__init__(url, connections=_CONNECTIONS, read_now=lambda _: read_now())
        self._board = board
        self._weather = weather

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        with translated():
            number = self._begin()
            with super().transaction() as tx:
                yield tx
            self._board.after_effect(number, "commit", lost_connection)

    def _once(self, operation: Callable[[Transaction], Result]) -> Result:
        number = self._begin()

        def struck(tx: Transaction) -> Result:
            result = operation(tx)
            self._board.before_effect(number, "commit", lost_connection)
            return result

        result = super()._once(struck)
        self._board.after_effect(number, "commit", lost_connection)
        return result

    def _begin(self) -> int:
        if self._board.clock.elapsed_seconds() < self._weather.down_until:
            raise lost_connection()
        return self._board.enter("commit")


class FreshView(StoreView):
    """Reads at every look, since others write meanwhile."""

    def __init__(self, url: str) -> None:
        self._own = connect(url)
        self._lock = threading.Lock()
        super().__init__(self._own)

    def __getitem__(self, table: str) -> list[Row]:
        with self._lock:
            self._read.clear()
            return super().__getitem__(table)

    def close(self) -> None:
        self._own.close()


class ConcurrentWorld(World):
    """A world in which several threads act at once."""

    overlaps = True

    def build_outside(self) -> None:
        self.board = ThreadedBoard(self.clock, self.trace)
        self.view = FreshView(self.store.address.application_url)
        self.queues = LockedQueues(self.board)
        self.leases = LockedTable(self.board, self.mutation.updates)
        self.hints = LockedTable(self.board, self.mutation.updates)
        self.tasks = SimulatedTasks(self.board, self.queues)
        self._databases: list[PooledDatabase] = []

    def database(self) -> Database:
        url = self.store.address.application_url
        self._databases.append(PooledDatabase(url, self.board, self.weather, self.store_now))
        return self._databases[-1]

    @property
    def troubled(self) -> bool:
        """Locks, deadlocks and moving hints may make any call give up for now."""
        return True

    def close(self) -> None:
        """Close every connection."""
        for database in self._databases:
            database.close()
        if isinstance(self.view, FreshView):
            self.view.close()


def simulate_at_once(seed: int, store: SimulationStore) -> Violation | None:
    """Play the history of a seed on several connections, let it settle, and check where it ended."""
    scenario, steps = draw(seed)
    store.reset()
    world = ConcurrentWorld(scenario, store, NO_MUTATION)
    try:
        _play(world, steps)
    except Violation as found:
        return found
    finally:
        world.close()
    return None


def _play(world: ConcurrentWorld, steps: Sequence[Step]) -> None:
    world.set_up()
    crews = [all_drivers(world) for _ in range(THREADS)]
    for driver in crews[0]:
        driver.begin()
    with ThreadPoolExecutor(THREADS) as threads:
        shares = [threads.submit(_share, world, crew, steps[at::THREADS]) for at, crew in enumerate(crews)]
    for share in shares:
        share.result()
    _settle(world, crews)
    check_end(world)


def _share(world: World, crew: Sequence[Driver], steps: Sequence[Step]) -> None:
    actions = {name: act for driver in crew for name, act in driver.actions().items()}
    for step in steps:
        world.pass_time(step.wait_seconds, lambda: _on_time(crew))
        actions[step.kind](step, random.Random(step.chance))


def _on_time(crew: Sequence[Driver]) -> None:
    for driver in crew:
        driver.on_time()


def _settle(world: World, crews: Sequence[Sequence[Driver]]) -> None:
    """Without faults, one after the other, until nothing is open."""
    world.calm()
    for driver in crews[0]:
        driver.close()
    for seconds in _CALM_ROUNDS:
        world.pass_time(seconds, lambda: _on_time(crews[0]))
        for crew in crews:
            for driver in crew:
                driver.settle()
        ended = all(row["finished_at"] is not None for row in (*world.view["runs"], *world.view["backfills"]))
        if ended and not world.view["write_claims"]:
            return
