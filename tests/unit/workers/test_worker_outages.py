"""Services that are away, clocks that jump, workers that are busy (S40; F5, F6, F9; BR-050, 052, 062, 065)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import SecretStr

from chalicelib.client.api import ApiClient
from chalicelib.cloud.ports import Refusal
from chalicelib.kernel.canonical import canonical_json
from chalicelib.kernel.clock import SystemClock
from chalicelib.kernel.errors import Unavailable
from chalicelib.runs.model import Accepted, RunInputs
from chalicelib.workers.server import ServerApi
from tests.scripted_server import DROPPED, Asked, Reply, ScriptedServer, good, problem, scripted_server
from tests.unit.workers.site import GATED, LONG, PACE, RUN, Site, ended, names, running, until


class JumpingClock(SystemClock):
    """A wall clock that is set back and forth by an hour; the stopwatch goes on as it does."""

    def __init__(self) -> None:
        self.jumped = timedelta()

    def now(self) -> datetime:
        return super().now() + self.jumped


@pytest.mark.parametrize("hours", [1, -1])
def test_a_wall_clock_that_jumps_changes_nothing(site: Site, hours: int) -> None:
    clock = JumpingClock()
    site.declare(timeout=3_000)
    worker = running(site, GATED, clock=clock)
    clock.jumped = timedelta(hours=hours)
    counter = site.item(worker)["counter"]
    until(lambda: site.item(worker)["counter"] >= counter + 5)
    assert "terminal" not in names(site)
    (site.project / "go").touch()
    assert ended(site).state == "succeeded"


@pytest.mark.parametrize(
    "work", ["time.sleep(5 * 1)", "end = time.monotonic() + 2\nwhile time.monotonic() < end: pass"]
)
def test_a_child_that_sleeps_or_burns_longer_than_the_lease_is_left_alone(site: Site, work: str) -> None:
    """BR-065: five leases of sleep, and a pure loop; one start, one end, and beats all along."""
    worker = running(site, LONG.replace("time.sleep(120)", work))
    counter = site.item(worker)["counter"]
    assert ended(site).state == "succeeded"
    assert site.item(worker)["counter"] > counter + 5
    assert names(site).count("start") == 1


def test_a_busy_worker_process_beats(site: Site) -> None:
    """BR-065: this very process, the worker's, is busy in its main thread for longer than a lease."""
    worker = running(site, GATED)
    counter, end = site.item(worker)["counter"], time.monotonic() + 2
    while time.monotonic() < end:
        sum(range(1_000))
    assert site.item(worker)["counter"] > counter + 2
    (site.project / "go").touch()
    assert ended(site).state == "succeeded"


# --- DynamoDB


def test_a_worker_that_is_cut_off_works_on_and_hears_the_cancel_when_it_is_back(site: Site) -> None:
    worker = running(site)
    site.cloud.table.failing.set()
    site.item(worker)["cancel"][RUN] = "can_0123456789abcdef"
    thread = next(thread for thread in threading.enumerate() if thread.name == f"beat-{worker.boot_id}")
    thread.join(1)
    assert thread.is_alive()
    assert "terminal" not in names(site)
    site.cloud.table.failing.clear()
    assert ended(site).state == "cancelled"


def test_a_beat_whose_condition_fails_is_settled_by_a_read(site: Site) -> None:
    """Its own item: the reply was lost, or a replica was behind; it goes on."""
    worker = running(site, GATED)
    refused = threading.Event()
    table = site.cloud.table
    update = table.update

    def refusing(pk: str, sk: str, **asked: Any) -> Any:
        if "counter" in str(asked["expression"]) and not refused.is_set():
            refused.set()
            return Refusal(None)
        return update(pk, sk, **asked)

    table.update = refusing  # type: ignore[method-assign]  # the fault of one answer
    assert refused.wait(10)
    counter = site.item(worker)["counter"]
    until(lambda: site.item(worker)["counter"] >= counter + 2)
    (site.project / "go").touch()
    assert ended(site).state == "succeeded"


def test_a_worker_whose_lease_has_another_owner_stops_everything(site: Site) -> None:
    worker = running(site)
    site.item(worker)["owner_token"] = "own_of_another"
    assert (ended(site).state, ended(site).end_reason) == ("failed", "interrupted")
    until(lambda: site.codes == [1])
    assert site.item(worker)["owner_token"] == "own_of_another"


# --- the API


class Away:
    """A real server that answers what a run needs, loses requests while it is away, and forgets the worker's token."""

    def __init__(self, http: ScriptedServer, site: Site) -> None:
        self.http = http
        self.site = site
        self.away = threading.Event()
        self.tokens: list[str] = []
        self.expired = False
        http.answer(self.answer)

    def answer(self, asked: Asked) -> Reply:
        if self.away.is_set():
            return DROPPED
        action = asked.path.rpartition("/")[2]
        if asked.method == "PUT":
            self.site.server.upload(asked.path, asked.content)
        elif action == "accept":
            self.tokens.append(f"tmw_{len(self.tokens)}")
            self.expired = False
            return good(self.accepted().model_dump(mode="json"))
        elif self.expired or asked.headers["authorization"] != f"Bearer {self.tokens[-1]}":
            return problem(401, "token_expired")
        bodies: dict[str, Callable[[Asked], Any]] = {
            "log-uploads": self.links,
            "inputs": lambda _: self.run().model_dump(mode="json"),
        }
        return good(bodies[action](asked) if action in bodies else {})

    def links(self, asked: Asked) -> dict[str, object]:
        return {"urls": {name: f"{self.http.url}/bucket/{name}?X-Amz-Signature=s" for name in asked.json["names"]}}

    def inputs(self, _: Asked) -> dict[str, Any]:
        return self.run().model_dump(mode="json")

    def run(self) -> RunInputs:
        return self.site.server.runs[RUN]

    def accepted(self) -> Accepted:
        run = self.run()
        where = {"run_id": RUN, "claim_id": run.claim_id, "location": "tools", "target": "dev", "job": "tool"}
        return Accepted(**where, worker_token=self.tokens[-1], expires_at=datetime.now(UTC))

    def told(self, kind: str) -> list[Asked]:
        return [one for one in self.http.asked if one.path.endswith("reports") and one.json["kind"] == kind]


class Impatient(SystemClock):
    """A clock on which ten minutes of repeats take no time, so that an outage is as many calls as it would be."""

    def __init__(self) -> None:
        self.slept = 0.0

    def elapsed_seconds(self) -> float:
        return super().elapsed_seconds() + self.slept

    def sleep(self, seconds: float) -> None:
        self.slept += seconds


@pytest.fixture
def away(site: Site) -> Iterator[Away]:
    with scripted_server() as http:
        yield Away(http, site)
        site.end()  # its calls must not meet a closed server


def test_an_api_that_is_away_for_ten_minutes_gets_the_end_later(site: Site, away: Away) -> None:
    """Work and beats go on; the log and the end arrive in order, under a new token, each key with one content."""
    clock = Impatient()
    with ApiClient(away.http.url, None, clock=clock, total_seconds=30) as client:
        api = ServerApi(client, [SecretStr("tml_location")], clock)
        pace = replace(PACE, retry_max_seconds=0.01)
        worker = running(site, GATED + "print('built', flush=True)\n", api=api, pace=pace)
        away.away.set()
        away.expired = True
        (site.project / "go").touch()
        counter, calls = site.item(worker)["counter"], len(away.http.asked)
        until(lambda: clock.slept > 600 and len(away.http.asked) > calls + 20, 40)
        until(lambda: site.item(worker)["counter"] > counter + 3)
        assert site.codes == []
        away.away.clear()
        until(lambda: [one.json["outcome"]["state"] for one in away.told("terminal")][-1:] == ["succeeded"])
        assert site.end() == 0
    assert len({canonical_json(one.json) for one in away.told("terminal")}) == 1
    assert away.tokens == ["tmw_0", "tmw_1"]
    (log,) = site.server.uploads.values()
    assert log.decode().splitlines()[-1] == "built"


def test_an_api_that_redirects_gets_no_token_and_is_asked_again(site: Site, away: Away) -> None:
    """S43: something in between sends us elsewhere; the credential does not go there, and nothing is given up."""
    elsewhere = ScriptedServer()
    location = {"location": f"{elsewhere.url}/v1/stolen"}
    answers, site_of_redirect = away.answer, threading.Event()

    def redirecting(asked: Asked) -> Reply:
        if asked.path.endswith("accept") and not site_of_redirect.is_set():
            site_of_redirect.set()
            return Reply(307, b"", location)
        return answers(asked)

    away.http.answer(redirecting)
    with ApiClient(away.http.url, None, clock=SystemClock()) as client:
        site.begin(api=ServerApi(client, [SecretStr("tml_location")], SystemClock()))
        site.send(site.publish())
        until(lambda: bool(away.told("terminal")))
        site.end()
    assert elsewhere.asked == []
    elsewhere._http.server_close()


def test_a_worker_cut_off_from_everything_never_stops_by_itself(site: Site) -> None:
    """BR-062 the other way round: nobody else may write meanwhile, so it may go on (S30, S40)."""
    worker = running(site, GATED)
    site.cloud.table.failing.set()
    site.server.faults = {name: [Unavailable("away")] * 3 for name in ("log_uploads", "terminal")}
    (site.project / "go").touch()
    site.server.wait_for("terminal", 2)
    assert site.codes == []
    assert ended(site).state == "succeeded"
    site.cloud.table.failing.clear()
    counter = site.item(worker)["counter"]
    until(lambda: site.item(worker)["counter"] > counter)
