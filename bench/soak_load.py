"""People who ask for runs, cancel some, rerun some, and repeat themselves, whatever the server does meanwhile."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from pathlib import Path
from typing import Any

from chalicelib.client.address import path_of
from chalicelib.client.api import ApiClient
from chalicelib.kernel.clock import SystemClock
from chalicelib.kernel.errors import OutcomeUnknown, TidemillError, Unavailable
from chalicelib.kernel.ids import IdSource
from tests.simulation.answers import Answers

from .soak_project import JOBS, LOCATION, TARGET

_CALL_SECONDS = 20.0
_REMEMBERED = 40
# What a server says that is only just there, or no more.
_AWAY = (OutcomeUnknown, Unavailable)
_EXPECTED = frozenset({"already_finished", "not_terminal", "timeout", "throttled", "internal"})


class People:
    """One of these is a person; several may share ``answers``, which compares what the same id is answered."""

    def __init__(self, project: Path, chance: random.Random, answers: Answers, *, pause_seconds: float) -> None:
        self._project = project
        self._chance = chance
        self._answers = answers
        self._pause = pause_seconds
        self._clock = SystemClock()
        self._ids = IdSource(self._clock, random.Random(chance.random()))  # noqa: S311 - to be repeated by its seed
        self._asked: list[tuple[str, str]] = []
        self._unsure: list[tuple[str, str]] = []
        self._failures: list[Exception] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="people", daemon=True)
        self.done: Counter[str] = Counter()

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, and raise what went wrong."""
        self._stop.set()
        self._thread.join()
        if self._failures:
            raise self._failures[0]

    def switch_off(self) -> None:
        """Disable every trigger."""
        with self._client() as client:
            for trigger in client.call("GET", path_of("locations", LOCATION, "targets", TARGET, "triggers")).body[
                "items"
            ]:
                path = path_of("locations", LOCATION, "targets", TARGET, "triggers", str(trigger["name"]))
                body = {"enabled": False, "request_id": self._ids.mint("req")}
                client.call("PATCH", path, body=body, repeatable=True)

    def _run(self) -> None:
        while not self._stop.wait(self._chance.uniform(0.5, 1.5) * self._pause):
            act = self._chance.choices((self._request, self._cancel, self._rerun, self._repeat), (60, 20, 10, 10))[0]
            try:
                with self._client() as client:
                    act(client)
            except _AWAY:
                self.done["unanswered"] += 1
            except (OSError, ValueError):  # the stack is being started: its description is not there
                self.done["not there"] += 1
            except TidemillError as error:
                self._note(error)
            except Exception as error:  # noqa: BLE001 - told at the end
                self._failures.append(error)
                return

    def _note(self, error: TidemillError) -> None:
        if error.code in _EXPECTED:
            self.done[error.code] += 1
        else:
            self._failures.append(error)

    def _request(self, client: ApiClient) -> None:
        job, run_id = f"job{self._chance.randrange(JOBS):02}", self._ids.mint("run")
        try:
            self._ask(client, job, run_id)
        except _AWAY:
            self._unsure.append((job, run_id))
            raise
        self._asked = [*self._asked[-_REMEMBERED:], (job, run_id)]
        self.done["requested"] += 1

    def _ask(self, client: ApiClient, job: str, run_id: str) -> None:
        path = path_of("locations", LOCATION, "targets", TARGET, "jobs", job, "runs")
        answer = client.call("POST", path, body={"run_id": run_id, "inputs": {}}, repeatable=True).body
        self._answers.record("request", run_id, _stable(answer["run"]))

    def _repeat(self, client: ApiClient) -> None:
        if self._asked or self._unsure:
            self._ask(client, *self._chance.choice(self._asked + self._unsure))
            self.done["repeated"] += 1

    def _cancel(self, client: ApiClient) -> None:
        if not self._asked:
            return
        _, run_id = self._chance.choice(self._asked[-3:])
        cancel_id = self._ids.mint("can")
        for _ in range(self._chance.choice((1, 1, 2))):
            body = {"cancel_id": cancel_id, "reason": "soak"}
            answer = client.call("POST", path_of("runs", run_id, "cancel"), body=body, repeatable=True).body
            if answer["status"] != "already_requested":
                self._answers.record("cancel", cancel_id, answer)
        self.done["cancelled"] += 1

    def _rerun(self, client: ApiClient) -> None:
        if not self._asked:
            return
        job, original = self._chance.choice(self._asked)
        run_id = self._ids.mint("run")
        answer = client.call("POST", path_of("runs", original, "rerun"), body={"run_id": run_id}, repeatable=True).body
        self._answers.record("rerun", run_id, _stable(answer["run"]))
        self._asked.append((job, original))
        self.done["rerun"] += 1

    def _client(self) -> ApiClient:
        data = self._project / ".tidemill"
        server = json.loads((data / "dev.json").read_text(encoding="utf-8"))["server"]
        token = (data / "operator-token").read_text(encoding="utf-8").strip()
        return ApiClient(server, token, clock=self._clock, total_seconds=_CALL_SECONDS)


def _stable(run: dict[str, Any]) -> dict[str, Any]:
    """What never changes of a run."""
    return {name: run[name] for name in ("run_id", "job", "origin", "rerun_of", "snapshot_id", "created_at")}
