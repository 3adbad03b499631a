import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from chalicelib.kernel.errors import FolderInUse, LocalStackFailed
from chalicelib.local.folder import LocalFolder, write_private


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_second_stack_in_the_same_folder_is_refused_and_told_who_is_there(tmp_path: Path) -> None:
    first, second = LocalFolder(tmp_path / ".tidemill"), LocalFolder(tmp_path / ".tidemill")
    first.acquire()
    first.describe({"pid": 4711, "server": "http://127.0.0.1:8123"})
    with pytest.raises(FolderInUse) as caught:
        second.acquire()
    assert "4711" in caught.value.detail
    assert "http://127.0.0.1:8123" in caught.value.detail
    first.release()
    second.acquire()
    second.release()


def test_folder_in_use_while_the_first_still_starts(tmp_path: Path) -> None:
    first = LocalFolder(tmp_path)
    first.acquire()
    with pytest.raises(FolderInUse, match="starting"):
        LocalFolder(tmp_path).acquire()
    first.release()


def test_folder_and_files_are_private(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path / ".tidemill")
    folder.acquire()
    folder.describe({"pid": 1})
    write_private(folder.operator_token, "tmo_secret")
    assert _mode(folder.path) == 0o700
    assert _mode(folder.description) == _mode(folder.operator_token) == 0o600
    folder.release()


def test_description_of_a_killed_stack_is_gone_after_acquire(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)
    folder.description.write_text(json.dumps({"pid": 1, "server": "http://127.0.0.1:1"}), encoding="utf-8")
    folder.acquire()
    assert folder.read_description() == {}
    folder.release()


def test_lock_ends_with_its_process_however_it_ends(tmp_path: Path) -> None:
    code = "import os,sys,pathlib; from chalicelib.local.folder import LocalFolder; "
    code += "f=LocalFolder(pathlib.Path(sys.argv[1])); f.acquire(); os.kill(os.getpid(), 9)"
    killed = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert killed.returncode == -9
    folder = LocalFolder(tmp_path)
    folder.acquire()
    folder.release()


def test_unusable_place_names_the_folder_and_the_option(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(LocalStackFailed, match="--data"):
        LocalFolder(tmp_path / "file" / ".tidemill").acquire()


def test_failed_write_leaves_the_old_text_and_no_rest(tmp_path: Path) -> None:
    path = tmp_path / "operator-token"
    write_private(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_private(path, "\udcff")
    assert path.read_text(encoding="utf-8") == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["operator-token"]
