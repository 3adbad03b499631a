"""Streaming node reports: batches, keys, merged rows, broken records (S37, F12)."""

from __future__ import annotations

import json
import os
import random
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from chalicelib.kernel.errors import (
    ClaimEnded,
    Forbidden,
    InvalidRequest,
    OutcomeUnknown,
    RunCancelled,
    TidemillError,
    TooLarge,
    Unavailable,
)
from chalicelib.runs.model import AcceptRequest, NodeReport, Report
from chalicelib.workers.delivery import Delivery
from chalicelib.workers.logs import RunLog
from chalicelib.workers.masking import Mask
from chalicelib.workers.runners.plan import Launch
from chalicelib.workers.runners.sqlbuild import SqlBuildRunner
from chalicelib.workers.session import ClaimSession
from tests.unit.workers.doubles import Server
from tests.unit.workers.site import until

RUN = "run_0123456789abcdef"


class Stream:
    """A delivery over a file that the test writes."""

    def __init__(self, folder: Path, known: Iterable[str]) -> None:
        self.folder = folder
        self.path = folder / "live.jsonl"
        self.server = Server()
        self.over, self.ends = threading.Event(), threading.Event()
        self.verdicts: list[str] = []
        self.log = RunLog(folder / "log", part_bytes=10)
        self._printed = 0
        request = AcceptRequest(
            claim_id="clm_1", boot_id="boot_0123456789abcdef", boot_partition=0, worker_kind="container"
        )
        self.delivery = Delivery(
            ClaimSession(self.server, random.Random(1), RUN, request, "tmw_1", retry_max_seconds=0.02),
            SqlBuildRunner(),
            Launch((), {}, folder, self.path),
            self.log,
            known_nodes=set(known),
            on_over=self._is_over,
            ends=self.ends,
            mask=Mask(["hunter2!"]),
            every_seconds=0.02,
            last_join_seconds=0.1,
        )

    def _is_over(self, verdict: str) -> None:
        self.verdicts.append(verdict)
        self.over.set()

    def print_part(self, number: int) -> None:
        """A line of the child that fills a part of the log."""
        os.write(self.log.output, f"line number {number}\n".encode())
        self._printed += 1
        until(lambda: len(self.parts()) + len(self.server.uploads) >= self._printed)

    def parts(self) -> list[Path]:
        return list((self.folder / "log").iterdir())

    def finish_log(self) -> None:
        self.log.child_has_it()
        self.log.finish()

    def write(self, *lines: str) -> None:
        with self.path.open("a") as stream:
            stream.writelines(f"{line}\n" for line in lines)

    def batches(self) -> list[list[str]]:
        return [[node.node for node in call.body.nodes] for call in self.server.named("nodes")]


def line(node: str, **fields: Any) -> str:
    record = {
        "event_type": "resource_attempt_completed",
        "resource_id": node,
        "occurred_at": "2026-12-01T14:35:08.322634+00:00",
        "duration_ms": 10,
        **fields,
    }
    return json.dumps(record)


@pytest.fixture
def stream(tmp_path: Path) -> Iterator[Stream]:
    made = Stream(tmp_path, [f"model:{number}" for number in range(1_200)])
    yield made
    if made.log._thread.is_alive():
        made.finish_log()


def test_nodes_are_sent_while_the_tool_works_and_strangers_are_not(stream: Stream) -> None:
    stream.delivery.start()
    stream.write(line("model:1"), line("sql_test:x"))
    stream.server.wait_for("nodes")
    stream.write(line("model:2"))
    stream.server.wait_for("nodes", 2)
    assert stream.delivery.finish() == 2
    assert stream.batches() == [["model:1"], ["model:2"]]


def test_batches_are_bounded_and_keyed(stream: Stream) -> None:
    stream.write(*(line(f"model:{number}") for number in range(1_200)))
    stream.delivery.start()
    assert stream.delivery.finish() == 1_200
    assert [len(batch) for batch in stream.batches()] == [500, 500, 200]
    keys = {call.body.report_key for call in stream.server.named("nodes")}
    assert len(keys) == 3


def test_a_lost_answer_repeats_the_same_report(stream: Stream) -> None:
    stream.server.faults["nodes"] = [OutcomeUnknown("lost")]
    stream.delivery.start()
    stream.write(line("model:1"))
    stream.server.wait_for("nodes")
    stream.write(line("model:2"))
    stream.server.wait_for("nodes", 3)
    stream.delivery.finish()
    first, again, second = (call.body for call in stream.server.named("nodes"))
    assert first == again
    assert second.report_key != first.report_key


def test_what_the_document_adds_keeps_what_the_record_knew(stream: Stream) -> None:
    stream.delivery.start()
    stream.write(line("model:1", event_type="resource_attempt_failed", error_code="R002"))
    stream.server.wait_for("nodes")
    stream.delivery.finish([NodeReport(node="model:1", status="failed", message="boom")])
    last = stream.server.named("nodes")[-1].body.nodes[0]
    assert (last.status, last.error_code, last.message) == ("failed", "R002", "boom")
    assert last.finished_at is not None


def test_broken_records_are_passed_over(stream: Stream) -> None:
    stream.write("{", "[]", line("model:1", occurred_at="yesterday"), line("x" * 5_000), line("model:2"))
    stream.delivery.start()
    assert stream.delivery.finish() == 1
    assert stream.batches() == [["model:2"]]


@pytest.mark.parametrize(("refusal", "verdict"), [(ClaimEnded("x"), "claim_lost"), (RunCancelled("x"), "cancelled")])
def test_a_claim_that_is_over_is_told_and_nothing_more_is_sent(
    stream: Stream, refusal: TidemillError, verdict: str
) -> None:
    stream.server.faults["nodes"] = [refusal]
    stream.delivery.start()
    stream.write(line("model:1"))
    assert stream.over.wait(10)
    stream.write(line("model:2"))
    stream.delivery.finish()
    assert stream.batches() == [["model:1"]]
    assert stream.verdicts == [verdict]


@pytest.mark.parametrize("refusal", [InvalidRequest("x"), Forbidden("x"), TooLarge("x")])
def test_a_report_that_is_refused_for_itself_stops_nothing(stream: Stream, refusal: TidemillError) -> None:
    """S40: only a revocation stops work; the next report goes its way."""
    stream.server.faults["nodes"] = [refusal]
    stream.delivery.start()
    stream.write(line("model:1"))
    stream.server.wait_for("nodes")
    stream.write(line("model:2"))
    stream.server.wait_for("nodes", 2)
    stream.delivery.finish()
    assert stream.verdicts == []


def test_an_outage_keeps_reports_and_log_parts_in_their_order(stream: Stream) -> None:
    away: list[TidemillError | None] = [Unavailable("away")] * 3
    stream.server.faults = {"nodes": list(away), "log_uploads": list(away)}
    stream.delivery.start()
    for number in range(4):
        stream.write(line(f"model:{number}"))
        stream.print_part(number)
        stream.server.wait_for("nodes", number + 1)
    stream.finish_log()
    stream.delivery.finish()
    told = [node for batch in dict.fromkeys(map(tuple, stream.batches())) for node in batch]
    assert told == [f"model:{number}" for number in range(4)]
    assert list(stream.server.uploads) == [f"https://objects/{RUN}/{number:04d}.log" for number in range(1, 5)]
    assert stream.parts() == []


def test_a_store_that_stays_away_holds_up_nothing(stream: Stream) -> None:
    stream.server.faults["upload"] = [Unavailable("S3 is away")] * 100
    stream.delivery.start()
    stream.print_part(1)
    stream.write(line("model:1"))
    stream.finish_log()
    assert stream.delivery.finish() == 1
    assert stream.server.uploads == {}


def test_when_the_worker_must_end_a_call_that_hangs_is_left_behind(stream: Stream) -> None:
    hanging = threading.Event()
    report = stream.server.report

    def hang(run_id: str, token: str, sent: Report) -> None:
        report(run_id, token, sent)
        hanging.wait(60)

    stream.server.report = hang  # type: ignore[assignment,method-assign]  # the fault of one answer
    stream.delivery.start()
    stream.write(line("model:1"))
    stream.server.wait_for("nodes")
    stream.ends.set()
    assert stream.delivery.finish() == 1
    hanging.set()


def test_secrets_leave_no_report(stream: Stream) -> None:
    stream.delivery.start()
    failed = NodeReport(node="model:1", status="failed", error_code="hunter2!", message="no login with hunter2!")
    stream.delivery.finish([failed])
    sent = stream.server.named("nodes")[-1].body.nodes[0]
    assert (sent.error_code, sent.message) == ("[hidden]", "no login with [hidden]")
