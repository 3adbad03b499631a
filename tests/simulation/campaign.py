"""``python -m tests.simulation seeds --seeds N [--first K]``, and ``python -m tests.simulation mutations``.

Two processes share the seeds, each with a database of its own on one server. A failing seed is shrunk and printed; the
exit code is 1 when a seed failed or a mutation was not found.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.util import Finalize
from typing import TypeVar

from tests.postgres import PostgresServer, running_server
from tests.simulation.hunt import hunt
from tests.simulation.mutations import all_mutations
from tests.simulation.report import describe, revision
from tests.simulation.simulation import simulate
from tests.simulation.store import SimulationStore

Task = TypeVar("Task")
Answer = TypeVar("Answer")
PROCESSES = 2
_SEEDS_PER_MUTATION = 150
_DESCRIBED = 3
_store: SimulationStore | None = None


def _open_store(server: PostgresServer) -> None:
    """In each process: its own database, and no log of what the product reports on purpose."""
    global _store  # noqa: PLW0603 - one per worker process
    logging.disable(logging.CRITICAL)
    server._prefix += f"_{os.getpid()}"  # two processes count their databases alike
    _store = SimulationStore(server)
    Finalize(None, _store.close, exitpriority=1)


def _own_store() -> SimulationStore:
    if _store is None:
        raise RuntimeError("the process has no store")
    return _store


def _run_seed(seed: int) -> tuple[int, str, str]:
    """Seed, digest, and what was found."""
    outcome = simulate(seed, _own_store())
    return seed, outcome.digest, str(outcome.violation) if outcome.violation else ""


def _describe_seed(seed: int) -> str:
    return describe(simulate(seed, _own_store()), _own_store())


def _hunt(number: int) -> tuple[str, str, int | None, str]:
    mutation = all_mutations()[number]
    found = hunt(mutation, _own_store(), range(1, _SEEDS_PER_MUTATION + 1))
    return mutation.name, mutation.checker, found.seed, found.text


@contextmanager
def _processes() -> Iterator[Callable[[Callable[[Task], Answer], Sequence[Task]], Iterator[Answer]]]:
    """A function that spreads calls over the processes and gives the answers as they come."""
    with running_server() as server:
        pool = multiprocessing.get_context("fork").Pool(PROCESSES, _open_store, (server,))
        yield pool.imap_unordered
        pool.close()
        pool.join()


def run_seeds(first: int, count: int) -> int:
    """Run seeds and report; returns the exit code."""
    failed: list[int] = []
    began = time.perf_counter()
    with _processes() as spread:
        for seed, _, violation in spread(_run_seed, range(first, first + count)):
            if violation:
                failed.append(seed)
                print(f"seed {seed}: {violation}", flush=True)
        seconds = time.perf_counter() - began
        for text in spread(_describe_seed, sorted(failed)[:_DESCRIBED]):
            print(f"\n{text}", flush=True)
    rate = count / seconds
    print(f"{count} seeds from {first} at {revision()}: {len(failed)} failed, {seconds:.0f} s, {rate:.2f} seeds/s")
    return 1 if failed else 0


def run_mutations() -> int:
    """Look for a seed that finds each mutation; prints the table, returns the exit code."""
    missed = 0
    with _processes() as spread:
        print(f"{'mutation':<52} {'checker':<8} seed", flush=True)
        for name, checker, seed, _ in spread(_hunt, range(len(all_mutations()))):
            missed += seed is None
            print(f"{name:<52} {checker:<8} {'NOT FOUND' if seed is None else seed}", flush=True)
    print("all were found" if not missed else f"{missed} were not found within {_SEEDS_PER_MUTATION} seeds")
    return 1 if missed else 0


def main(arguments: Sequence[str]) -> int:
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(prog="tests.simulation")
    commands = parser.add_subparsers(dest="command", required=True)
    seeds = commands.add_parser("seeds", help="run seeds")
    seeds.add_argument("--seeds", type=int, default=100)
    seeds.add_argument("--first", type=int, default=1)
    commands.add_parser("mutations", help="show that every checker can fail")
    read = parser.parse_args(arguments)
    return run_seeds(read.first, read.seeds) if read.command == "seeds" else run_mutations()
