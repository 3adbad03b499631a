from pathlib import Path

import pytest

from chalicelib.local.publisher import is_project_file

PROJECT_FILE = 'modules = ["jobs"]\nwatch = ["models", "jobs.py"]\nexclude = ["*.md"]\n[targets.dev]\n'


@pytest.mark.parametrize(
    ("path", "matters"),
    [
        ("jobs.py", True),
        ("models/staging/orders.sql", True),
        ("tidemill.toml", True),
        ("models/notes.md", False),
        ("seeds/beans.csv", False),
        (".tidemill/postgres/data/base/1", False),
        (".git/index", False),
        (".venv/bin/python", False),
        ("models/__pycache__/x.pyc", False),
        ("models/.orders.sql.swp", False),
        ("target/manifest.json", False),
        ("logs/dbt.log", False),
        ("models/coffee.duckdb.wal", False),
        ("models/coffee.duckdb.tmp", False),
        ("../elsewhere/jobs.py", False),
    ],
)
def test_what_publishes_again(tmp_path: Path, path: str, matters: bool) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "tidemill.toml").write_text(PROJECT_FILE, encoding="utf-8")
    changed = Path(str(project / path)) if not path.startswith("..") else (tmp_path / path.removeprefix("../"))
    assert is_project_file(project, changed) is matters


def test_broken_project_file_still_lets_every_edit_count(tmp_path: Path) -> None:
    (tmp_path / "tidemill.toml").write_text("modules = [", encoding="utf-8")
    assert is_project_file(tmp_path, tmp_path / "anything.py")
    assert not is_project_file(tmp_path, tmp_path / "target" / "x")
