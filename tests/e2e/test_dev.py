"""The whole stack on one machine: killed, restarted, edited, refused, stopped without a trace."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import httpx
import psutil
import pytest

from chalicelib.client.api import ApiClient
from chalicelib.client.publishing import publish_bundle
from chalicelib.kernel.canonical import sha256_bytes
from chalicelib.kernel.clock import SystemClock
from chalicelib.projects.bundle import Bundle, DocumentRecord
from chalicelib.projects.compile import compile_project
from tests.e2e.dev import JOBS, TERMINAL, TIDEMILL, Dev, command_project, running, wait_for

pytestmark = pytest.mark.end_to_end


def publish_with_a_megabyte(dev: Dev, folder: Path) -> tuple[str, bytes]:
    """Publish the project with a document of 1 MB in its bundle, which travels through object storage."""
    compilation = compile_project(
        folder, target="dev", python=None, now=SystemClock().now(), work_dir=folder.parent / "work"
    )
    content = b"one line of a megabyte\n" * 45_600
    record = DocumentRecord(key="large", sha256=sha256_bytes(content), size=len(content))
    index = compilation.bundle.index.model_copy(update={"documents": (*compilation.bundle.index.documents, record)})
    bundle = Bundle(index=index, documents={**compilation.bundle.documents, record.sha256: content})
    described = json.loads((folder / ".tidemill" / "dev.json").read_text())
    token = (folder / ".tidemill" / "operator-token").read_text().strip()
    with ApiClient(described["server"], token, clock=SystemClock()) as api:
        publish_bundle(
            api, bundle, location="plain", target="dev", publication_id="pub_0000000000000001", say=lambda _: None
        )
    return bundle.snapshot_id, content


def test_killed_in_mid_flight_and_started_again_everything_settles(tmp_path: Path) -> None:
    """One run is claimed and not accepted, another runs; dev dies by SIGKILL; both settle and the document is still there."""
    folder = command_project(tmp_path / "plain")
    with running(folder) as dev:
        dev.published()
        snapshot, content = publish_with_a_megabyte(dev, folder)
        started = dev.request("slow")
        dev.wait_state(started, "running")
        dev.worker().suspend()
        waiting = dev.request("quick")
        dev.wait_state(waiting, "claimed")
        dev.kill()
        left = wait_for(
            lambda: [p for p in dev.processes() if "postgres" not in p.name()] == [], 30, "worker and build to die"
        )
        assert left
    with running(folder) as again:
        assert again.wait_state(waiting, *TERMINAL) == "succeeded"
        lost = again.cli("runs", "show", started)
        assert (lost["state"], lost["end_reason"]) == ("failed", "lost")
        assert lost["claim"]["process_ended_at"] is not None
        kinds = [event["kind"] for event in again.cli("runs", "events", waiting)["items"]]
        assert kinds.count("accepted") == kinds.count("started") == 1
        assert kinds.count("dispatched") == 2
        next_run = again.request("slow", "--input", "seconds=0")
        assert again.wait_state(next_run, *TERMINAL) == "succeeded"
        assert document(again, folder, snapshot) == content


def document(dev: Dev, folder: Path, snapshot: str) -> bytes:
    described = json.loads((folder / ".tidemill" / "dev.json").read_text())
    token = (folder / ".tidemill" / "operator-token").read_text().strip()
    with ApiClient(described["server"], token, clock=SystemClock()) as api:
        answer = api.call("GET", f"/snapshots/{snapshot}/documents/large").body
    return httpx.get(answer["url"]).content


def test_a_killed_worker_is_replaced_and_its_run_settles_without_a_person(tmp_path: Path) -> None:
    folder = command_project(tmp_path / "plain")
    with running(folder) as dev:
        dev.published()
        run_id = dev.request("slow")
        dev.wait_state(run_id, "running")
        children = dev.worker().children(recursive=True)
        worker = dev.worker()
        worker.kill()
        dev.wait_state(run_id, "failed", seconds=60)
        assert dev.cli("runs", "show", run_id)["end_reason"] == "lost"
        assert not [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
        again = dev.request("quick")
        assert dev.wait_state(again, *TERMINAL) == "succeeded"
        assert dev.worker().pid != worker.pid


def test_a_running_build_is_cancelled_and_its_process_is_gone(tmp_path: Path) -> None:
    folder = command_project(tmp_path / "plain")
    with running(folder) as dev:
        dev.published()
        run_id = dev.request("slow")
        dev.wait_state(run_id, "running")
        answer = dev.cli("runs", "cancel", run_id)
        assert answer["status"] == "cancel_requested"
        dev.wait_state(run_id, "cancelled", seconds=60)
        assert "time.sleep" not in " ".join(word for p in dev.processes() for word in p.cmdline())


def test_an_edit_is_published_and_a_broken_one_leaves_the_old(tmp_path: Path) -> None:
    folder = command_project(tmp_path / "plain")
    with running(folder) as dev:
        dev.published()
        jobs = folder / "jobs.py"
        jobs.write_text(JOBS + "raise RuntimeError('half-written')\n")
        wait_for(lambda: "half-written" in dev.said, 60, "the error to be shown")
        assert "jobs.py" in dev.said
        assert {job["job"] for job in dev.cli("jobs", "list")["items"]} == {"quick", "slow"}
        jobs.write_text(JOBS.replace('key="quick"', 'key="quicker"'))
        wait_for(
            lambda: {job["job"] for job in dev.cli("jobs", "list")["items"]} == {"quicker", "slow"},
            60,
            "the edit to be published",
        )


def test_a_second_dev_in_the_folder_is_refused_and_a_port_in_use_is_named(tmp_path: Path) -> None:
    folder = command_project(tmp_path / "plain")
    with running(folder, "--no-worker") as dev:
        second = subprocess.run([*TIDEMILL, "dev"], cwd=folder, capture_output=True, text=True, timeout=60, check=False)
        assert second.returncode == 5
        assert str(dev.process.pid) in second.stderr
        port = dev.said.partition("127.0.0.1:")[2].partition(" ")[0]
        taken = subprocess.run(
            [*TIDEMILL, "dev", "--data", str(tmp_path / "other"), "--port", port],
            cwd=folder, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert taken.returncode == 1
        assert port in taken.stderr
        assert "--port" in taken.stderr
        assert dev.process.poll() is None


def test_a_killed_postgres_comes_back_and_no_run_is_lost(tmp_path: Path) -> None:
    """BR-074: the database is down in mid-flight; everything goes on without a restart."""
    folder = command_project(tmp_path / "plain")
    with running(folder) as dev:
        dev.published()
        run_id = dev.request("slow", "--input", "seconds=8")
        dev.wait_state(run_id, "running")
        postmaster = int((folder / ".tidemill" / "postgres" / "data" / "postmaster.pid").read_text().split()[0])
        psutil.Process(postmaster).send_signal(signal.SIGKILL)
        wait_for(lambda: "Postgres" in dev.said.partition("Ctrl-C stops everything")[2], 60, "the outage to be told")
        wait_for(lambda: _answers(dev, run_id), 60, "the database to be back")
        assert dev.wait_state(run_id, *TERMINAL) == "succeeded"
        assert dev.wait_state(dev.request("quick"), *TERMINAL) == "succeeded"


def _answers(dev: Dev, run_id: str) -> bool:
    done = subprocess.run([*TIDEMILL, "runs", "show", run_id], cwd=dev.folder, capture_output=True, check=False)
    return done.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_and_leaves_no_process_behind(tmp_path: Path, number: signal.Signals) -> None:
    folder = command_project(tmp_path / "plain")
    with running(folder) as dev:
        dev.published()
        run_id = dev.request("slow", "--input", "seconds=1")
        dev.wait_state(run_id, "succeeded")
        before = {process.name() for process in dev.processes()}
        assert {"postgres", "tidemill"} <= before
        assert dev.stop(number) == 0
        assert dev.processes() == []
    assert not (folder / ".tidemill" / "dev.json").exists()


def test_an_interrupt_while_it_starts_ends_it_too(tmp_path: Path) -> None:
    folder = command_project(tmp_path / "plain")
    dev = Dev(folder)
    dev.launch()
    wait_for(lambda: "starting Postgres" in dev.said, 60, "Postgres to be started")
    assert dev.stop() == 0
    assert dev.processes() == []
