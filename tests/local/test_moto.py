import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from chalicelib.cloud.aws import Aws
from chalicelib.cloud.ports import Refusal
from chalicelib.cloud.provision import provision
from chalicelib.kernel.errors import LocalStackFailed, Unavailable
from chalicelib.local.moto_lock import install_lock
from chalicelib.local.moto_server import MotoServer
from chalicelib.local.objects import ObjectFolder

THREADS = 8
ROUNDS = 25


def _race(call: object, *, threads: int = THREADS) -> list[object]:
    barrier = threading.Barrier(threads)

    def one(number: int) -> object:
        barrier.wait()
        return call(number)  # type: ignore[operator]  # a test's own function

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(one, range(threads)))


def test_exactly_one_of_eight_creates_a_lease(aws: Aws) -> None:
    tables = [aws.own_leases() for _ in range(THREADS)]
    for turn in range(ROUNDS):
        answers = _race(
            lambda number, turn=turn: tables[number].put_new("boots#0", f"boot#{turn}", {"owner_token": str(number)})
        )
        winners = [number for number, answer in enumerate(answers) if answer is None]
        assert len(winners) == 1
        item = aws.leases.get("boots#0", f"boot#{turn}")
        assert item is not None
        assert item["owner_token"] == str(winners[0])


def test_exactly_one_of_eight_takes_a_lease_over(aws: Aws) -> None:
    tables = [aws.own_leases() for _ in range(THREADS)]
    aws.leases.put_new("leader", "0", {"counter": 0})
    for turn in range(ROUNDS):
        answers = _race(
            lambda number, turn=turn: tables[number].update(
                "leader", "0",
                expression="SET #c = :next", condition="#c = :seen", names={"#c": "counter"},
                values={":next": turn + 1, ":seen": turn},
            )
        )  # fmt: skip
        assert sum(not isinstance(answer, Refusal) for answer in answers) == 1


def test_no_message_is_lost_between_senders_and_a_deleter(aws: Aws) -> None:
    count = 120
    received: set[str] = set()
    sent = threading.Event()

    def send(number: int) -> None:
        for turn in range(count // 4):
            aws.queues.send("tick", f"{number}-{turn}")

    def take() -> None:
        quiet = 0
        while quiet < 2:
            messages = aws.queues.receive("tick", wait_seconds=1, maximum=10)
            for message in messages:
                received.add(message.body)
                aws.queues.delete("tick", message.receipt)
            quiet = 0 if messages or not sent.is_set() else quiet + 1

    taker = threading.Thread(target=take)
    taker.start()
    _race(send, threads=4)
    sent.set()
    taker.join(60)
    assert len(received) == count


def test_long_poll_does_not_hold_up_others(aws: Aws) -> None:
    begun = threading.Event()

    def poll() -> int:
        begun.set()
        return len(aws.queues.receive("tick", wait_seconds=20))

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(poll)
        assert begun.wait(5)
        aws.leases.put_new("a", "b", {})
        assert not waiting.done()
        aws.queues.send("tick", "wake")
        assert waiting.result(10) == 1


def test_lock_is_installed_once() -> None:
    from moto.dynamodb.responses import DynamoHandler

    install_lock()
    call = DynamoHandler.call_action
    install_lock()
    assert DynamoHandler.call_action is call


def test_stopped_server_is_gone_and_forgets(aws: Aws, moto: MotoServer) -> None:
    aws.objects.put("key", b"value")
    moto.stop()
    with pytest.raises(Unavailable):
        aws.objects.get("key")
    moto.start()
    assert (
        Aws(aws.settings.model_copy(update={"aws_endpoint": moto.endpoint()})).client("s3").list_buckets()["Buckets"]
        == []
    )


def test_port_in_use_is_named(moto: MotoServer) -> None:
    port = int(moto.endpoint().rpartition(":")[2])
    with pytest.raises(LocalStackFailed, match=str(port)):
        MotoServer(port).start()


class TestObjects:
    def test_objects_survive_a_restart(self, aws: Aws, moto: MotoServer, tmp_path: Path) -> None:
        large = bytes(range(256)) * 4_096
        kept = ObjectFolder(tmp_path / "objects")
        kept.attach()
        aws.objects.put("snapshots/one", large)
        url = aws.objects.upload_url("runs/run_1/output.log")
        assert httpx.put(url, content=b"hello").status_code == 200
        aws.objects.put("gone", b"x")
        aws.client("s3").delete_object(Bucket="tidemill-local-objects", Key="gone")
        kept.detach()
        moto.stop()

        moto.start()
        again = Aws(aws.settings.model_copy(update={"aws_endpoint": moto.endpoint()}))
        provision(again)
        assert ObjectFolder(tmp_path / "objects").load() == 2
        assert again.objects.get("snapshots/one") == large
        assert again.objects.get("runs/run_1/output.log") == b"hello"
        assert again.objects.get("gone") is None

    def test_failed_write_refuses_the_put_and_keeps_the_old_object(self, aws: Aws, tmp_path: Path) -> None:
        kept = ObjectFolder(tmp_path / "objects")
        kept.attach()
        try:
            aws.objects.put("key", b"old")
            with pytest.raises(Exception, match=r"500|InternalError|reached max retries"):
                aws.objects.put("k" * 300, b"a name too long for a file")
            assert aws.objects.get("key") == b"old"
            assert aws.objects.get("k" * 300) is None
        finally:
            kept.detach()
        assert [path.name for path in (tmp_path / "objects" / "tidemill-local-objects").iterdir()] == ["key"]

    def test_half_written_file_is_no_object(self, aws: Aws, tmp_path: Path) -> None:
        kept = ObjectFolder(tmp_path)
        kept.store("tidemill-local-objects", "whole", b"1")
        (tmp_path / "tidemill-local-objects" / ".writing-abc").write_bytes(b"half")
        assert kept.load() == 1
        assert not (tmp_path / "tidemill-local-objects" / ".writing-abc").exists()

    @pytest.mark.parametrize("key", ["..", "../../etc/passwd", "a/../b", ".hidden", "größe/ä b%2F", "/absolute"])
    def test_every_key_stays_in_its_bucket_and_comes_back(self, aws: Aws, tmp_path: Path, key: str) -> None:
        kept = ObjectFolder(tmp_path / "objects")
        kept.store("tidemill-local-objects", key, b"value")
        assert kept.path_of("tidemill-local-objects", key).parent == tmp_path / "objects" / "tidemill-local-objects"
        assert kept.load() == 1
        assert aws.objects.get(key) == b"value"
        kept.remove("tidemill-local-objects", key)
        assert kept.load() == 0
