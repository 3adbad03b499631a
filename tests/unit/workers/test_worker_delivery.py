"""Streaming node reports: batches, keys, merged rows, broken records (S37, F12)."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from chalicelib.kernel.errors import ClaimEnded, OutcomeUnknown
from chalicelib.runs.model import AcceptRequest, NodeReport
from chalicelib.workers.delivery import Delivery
from chalicelib.workers.logs import RunLog
from chalicelib.workers.runners.plan import Launch
from chalicelib.workers.runners.sqlbuild import SqlBuildRunner
from chalicelib.workers.session import ClaimSession
from tests.unit.workers.doubles import Server

RUN = "run_0123456789abcdef"


class Stream:
    """A delivery over a file that the test writes."""

    def __init__(self, folder: Path, known: Iterable[str]) -> None:
        self.path = folder / "live.jsonl"
        self.server = Server()
        self.refused = threading.Event()
        self.log = RunLog(folder / "log")
        self.log.child_has_it()
        request = AcceptRequest(
            claim_id="clm_1", boot_id="boot_0123456789abcdef", boot_partition=0, worker_kind="container"
        )
        self.delivery = Delivery(
            ClaimSession(self.server, random.Random(1), RUN, request, "tmw_1"),
            SqlBuildRunner(),
            Launch((), {}, folder, self.path),
            self.log,
            known_nodes=set(known),
            on_refused=self.refused.set,
            ends=threading.Event(),
            every_seconds=0.02,
        )

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
def stream(tmp_path: Path) -> Stream:
    return Stream(tmp_path, [f"model:{number}" for number in range(1_200)])


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


def test_a_claim_that_ended_is_told_and_nothing_more_is_sent(stream: Stream) -> None:
    stream.server.faults["nodes"] = [ClaimEnded("over")]
    stream.delivery.start()
    stream.write(line("model:1"))
    assert stream.refused.wait(10)
    stream.write(line("model:2"))
    stream.delivery.finish()
    assert stream.batches() == [["model:1"]]
