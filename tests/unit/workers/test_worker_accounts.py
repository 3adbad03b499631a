"""Builds under a user of their own, where the worker is root (scheduler.md 8.2)."""

from __future__ import annotations

import os
import pwd
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from chalicelib.kernel.clock import SystemClock
from chalicelib.kernel.errors import UsageError
from chalicelib.workers.accounts import account_named, give, open_way
from chalicelib.workers.compiling import OwnedPrograms
from chalicelib.workers.process import Account, OwnedProcess

ROOT = os.geteuid() == 0
OTHER = pwd.getpwnam("nobody")


@pytest.fixture
def account() -> Account:
    """Another user where this one may become it, else its own: the way is the same, only less is shown."""
    entry = OTHER if ROOT else pwd.getpwuid(os.getuid())
    return Account(entry.pw_uid, entry.pw_gid, entry.pw_name, entry.pw_dir)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that another account may be let into; pytest's own are closed to others from the top."""
    with tempfile.TemporaryDirectory(prefix="tm-", dir="/tmp") as name:
        yield Path(name)


def test_a_user_is_known_by_name_or_number() -> None:
    if not ROOT:
        with pytest.raises(UsageError, match="runs as root"):
            account_named("nobody")
        return
    nobody = account_named("nobody")
    assert (nobody.uid, nobody.gid, nobody.name) == (OTHER.pw_uid, OTHER.pw_gid, "nobody")
    assert Path(nobody.home).is_dir()
    assert account_named("4711:4712") == Account(4711, 4712, "4711", "/tmp")  # noqa: S108 - what it is to be
    for wrong, told in {"root": "under root", "0:0": "under root", "not-a-user": "UID:GID", "1:x": "UID:GID"}.items():
        with pytest.raises(UsageError, match=told):
            account_named(wrong)


def test_a_program_runs_as_that_user_alone_and_the_worker_still_owns_it(account: Account, folder: Path) -> None:
    (folder / "token").write_text("tml_secret")
    (folder / "token").chmod(0o600)
    (folder / "out").touch()
    state, place = folder / "state", folder / "state" / "runs" / "clm_1"
    open_way(state, state / "runs")
    folder.chmod(0o711)
    place.mkdir(mode=0o700)
    give(place, account)
    program = "id -u; id -g; id -G; echo $HOME; touch here && echo made; cat ../../../token; trap '' INT TERM; sleep 60"
    with (folder / "out").open("wb") as out:
        process = OwnedProcess(
            ["sh", "-c", program], environment={"PATH": os.environ["PATH"], "HOME": "/root"}, cwd=place,
            output=out.fileno(), account=account if ROOT else None,
        )  # fmt: skip
        process.release()
        assert process.wait(1) is None
        process.kill()
        assert process.end_for_sure().signal == 9
    told = (folder / "out").read_text().splitlines()
    if ROOT:
        ids = [str(account.uid), str(account.gid), str(account.gid), account.home, "made"]
        assert told[:5] == ids
        assert told[5].endswith("Permission denied")
        assert len(told) == 6
    assert (place / "here").stat().st_uid == account.uid


def test_what_a_compile_leaves_belongs_to_the_user_of_the_next_one(account: Account, folder: Path) -> None:
    folder.chmod(0o711)
    work = folder / "compile"
    (work / "cache").mkdir(parents=True)
    (work / "cache" / "by-the-worker").write_text("x")
    (work / "link").symlink_to("/etc/passwd")
    programs = OwnedPrograms(threading.Event(), SystemClock(), work, {}, account if ROOT else None)
    with (folder / "out").open("wb") as out:
        code = programs(
            ["sh", "-c", "echo y > cache/by-the-worker && touch cache/new"],
            cwd=work, environment={"PATH": os.environ["PATH"]}, stdout=out.fileno(), stderr=out.fileno(),
        )  # fmt: skip
    assert code == 0, (folder / "out").read_text()
    assert (work / "cache" / "new").stat().st_uid == account.uid
    assert Path("/etc/passwd").stat().st_uid == 0


def test_the_way_shows_nothing_on_its_side(folder: Path) -> None:
    state = folder / "state"
    open_way(state, state / "runs")
    assert (state.stat().st_mode & 0o777, (state / "runs").stat().st_mode & 0o777) == (0o711, 0o711)
