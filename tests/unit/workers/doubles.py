"""In-memory ports for worker tests: a lease table, a queue and the server, with faults that a test can order."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from chalicelib.cloud.ports import QueueMessage
from chalicelib.kernel.canonical import canonical_json, digest_of
from chalicelib.kernel.errors import TidemillError
from chalicelib.projects.bundle import JobDefinition
from chalicelib.runs.model import Accepted, AcceptRequest, Report, RunInputs, StartRequest
from tests.doubles import MemoryTable


class Leases(MemoryTable):
    """Leases in memory that fail, as an unreachable service does, while ``failing`` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.failing = threading.Event()

    def _check(self) -> None:
        if self.failing.is_set():
            raise ConnectionError("DynamoDB is away")


class Queue:
    """One queue; what is received is invisible until it is shown again."""

    def __init__(self) -> None:
        self.condition = threading.Condition()
        self.waiting: list[QueueMessage] = []
        self.deleted: list[str] = []
        self.hidden: list[tuple[str, int]] = []
        self.deleting_fails = False
        self._sent = 0

    def send(self, queue: str, body: str, *, delay_seconds: int = 0) -> None:
        with self.condition:
            self._sent += 1
            self.waiting.append(QueueMessage(body, f"receipt-{self._sent}", 1))
            self.condition.notify_all()

    def send_many(self, queue: str, bodies: Sequence[str]) -> None:
        for body in bodies:
            self.send(queue, body)

    def receive(self, queue: str, *, wait_seconds: int, maximum: int = 1) -> Sequence[QueueMessage]:
        with self.condition:
            if not self.waiting:
                self.condition.wait(0.05)
            taken, self.waiting = self.waiting[:maximum], self.waiting[maximum:]
        return taken

    def delete(self, queue: str, receipt: str) -> None:
        with self.condition:
            if self.deleting_fails:
                raise ConnectionError("ReceiptHandleIsInvalid")
            self.deleted.append(receipt)
            self.condition.notify_all()

    def hide(self, queue: str, receipt: str, seconds: int) -> None:
        with self.condition:
            self.hidden.append((receipt, seconds))
            self.condition.notify_all()


class Cloud:
    def __init__(self) -> None:
        self.queue = Queue()
        self.table = Leases()

    @property
    def queues(self) -> Queue:
        return self.queue

    @property
    def leases(self) -> Leases:
        return self.table

    def own_leases(self) -> Leases:
        return self.table


@dataclass
class Call:
    name: str
    run_id: str
    token: str
    body: Any


@dataclass
class Server:
    """Records every call; ``faults[name]`` is a list of errors to raise first, one a call (``None``: no error)."""

    runs: dict[str, RunInputs] = field(default_factory=dict)
    faults: dict[str, list[TidemillError | None]] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    condition: threading.Condition = field(default_factory=threading.Condition)
    uploads: dict[str, bytes] = field(default_factory=dict)
    ended_boots: list[str] = field(default_factory=list)

    def accept(self, run_id: str, request: AcceptRequest) -> Accepted:
        number = self._called("accept", run_id, "", request)
        inputs = self.runs[run_id]
        return Accepted(
            run_id=run_id,
            claim_id=request.claim_id,
            location=inputs.location,
            target=inputs.target,
            job=inputs.job,
            worker_token=f"tmw_{number}",
            expires_at=datetime.now(UTC) + timedelta(hours=1),
        )

    def inputs(self, run_id: str, token: str) -> RunInputs:
        self._called("inputs", run_id, token, None)
        return self.runs[run_id]

    def start(self, run_id: str, token: str, request: StartRequest) -> None:
        self._called("start", run_id, token, request)

    def report(self, run_id: str, token: str, report: Report) -> None:
        self._called(report.kind, run_id, token, report)

    def log_uploads(self, run_id: str, token: str, names: Sequence[str]) -> Mapping[str, str]:
        self._called("log_uploads", run_id, token, list(names))
        return {name: f"https://objects/{run_id}/{name}" for name in names}

    def upload(self, url: str, data: bytes) -> None:
        self._called("upload", url, "", None)
        self.uploads[url] = data

    def boot_ended(self, boot_id: str) -> None:
        self._called("boot_ended", boot_id, "", None)
        self.ended_boots.append(boot_id)

    def named(self, *names: str) -> list[Call]:
        return [call for call in self.calls if call.name in names]

    def wait_for(self, name: str, count: int = 1, seconds: float = 20) -> list[Call]:
        with self.condition:
            assert self.condition.wait_for(lambda: len(self.named(name)) >= count, seconds), (name, self.calls)
        return self.named(name)

    def terminal(self) -> Report:
        body = self.wait_for("terminal")[-1].body
        assert isinstance(body, Report)
        return body

    def _called(self, name: str, run_id: str, token: str, body: Any) -> int:
        with self.condition:
            self.calls.append(Call(name, run_id, token, body))
            self.condition.notify_all()
            faults = self.faults.get(name)
            fault = faults.pop(0) if faults else None
            number = len(self.calls)
        if fault is not None:
            raise fault
        return number


COMMAND_PROJECT = """\
name = "tools"
modules = ["jobs"]
python = "{python}"

[targets.dev]
single_writer = true
"""


def command_definition(argv: Sequence[str], **fields: Any) -> JobDefinition:
    build = {"kind": "command", "argv": list(argv), **fields.pop("build", {})}
    values = {"nodes": [], "relations": [], "worker": "container", "timeout_seconds": 60, "concurrency": 1}
    return JobDefinition.model_validate({"job": "tool", "build": build, **values, **fields})


def inputs_of(definition: JobDefinition, run_id: str = "run_0123456789abcdef", **fields: Any) -> RunInputs:
    values: dict[str, Any] = {
        "run_id": run_id,
        "claim_id": f"clm_{run_id}",
        "location": "tools",
        "target": "dev",
        "job": definition.job,
        "origin": "manual",
        "scheduled_for": None,
        "snapshot_id": "0" * 64,
        "tool": definition.build.kind,
        "tool_version": "",
        "baseline_hash": "0" * 64,
        "git_revision": None,
        "git_dirty": False,
        "inputs": {},
        "definition": definition,
        "drift_keys": {},
        "environment": {},
        "settle_seconds": 900,
        **fields,
    }
    return RunInputs.model_validate({"inputs_hash": digest_of(values["inputs"]), **values})


def message_of(inputs: RunInputs) -> str:
    return canonical_json({"v": 1, "run_id": inputs.run_id, "claim_id": inputs.claim_id, "shard": 0})


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def processes_with(marker: str) -> list[int]:
    """Living processes whose command line holds ``marker``, or that work in a folder of that name."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                told = [(entry / "cmdline").read_bytes().decode(errors="replace"), str((entry / "cwd").readlink())]
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if any(marker in text for text in told) and state not in "ZX":
                found.append(int(entry.name))
    return found
