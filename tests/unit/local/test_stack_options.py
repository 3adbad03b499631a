import sys
from pathlib import Path

import pytest

from chalicelib.kernel.errors import InvalidDeclaration, UsageError
from chalicelib.local.dev import default_projects
from chalicelib.local.stack import locations_of
from chalicelib.local.worker_process import WorkerPlan, worker_command, worker_environment
from chalicelib.settings import read_settings


def _project(folder: Path, location: str) -> Path:
    folder.mkdir()
    text = f'location = "{location}"\njobs = []\n[targets.dev]\n'
    (folder / "tidemill.toml").write_text(text, encoding="utf-8")
    return folder


def test_present_folder_is_the_project_when_it_has_a_project_file(tmp_path: Path) -> None:
    assert default_projects(tmp_path) == ()
    project = _project(tmp_path / "one", "one")
    assert default_projects(project) == (project,)


def test_locations_of_projects(tmp_path: Path) -> None:
    one, two = _project(tmp_path / "a", "one"), _project(tmp_path / "b", "two")
    assert locations_of([one, two]) == {one: "one", two: "two"}


def test_two_projects_of_one_location_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="location = 'same'"):
        locations_of([_project(tmp_path / "a", "same"), _project(tmp_path / "b", "same")])


def test_folder_without_a_project_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidDeclaration, match=r"tidemill\.toml"):
        locations_of([tmp_path])


def test_command_line_of_the_worker() -> None:
    plan = WorkerPlan([Path("/a"), Path("/b")], ["tml_secret"], slots=3)
    command = worker_command(plan, Path("/state"))
    assert command[:5] == [sys.executable, "-m", "tidemill", "worker", "run"]
    slots = ["--slots", "3", "--lambda-slots", "3"]
    assert command[5:] == ["--project", "/a", "--project", "/b", *slots, "--state", "/state"]


def test_worker_gets_the_stacks_settings_but_neither_database_nor_foreign_settings() -> None:
    settings = read_settings(
        {
            "TIDEMILL_DATABASE_URL": "postgresql://u:secret@db/x",
            "TIDEMILL_AWS_ENDPOINT": "http://127.0.0.1:1",
            "TIDEMILL_LEASE_SECONDS": "6",
            "TIDEMILL_BEAT_SECONDS": "2",
        }
    )
    given = {"PATH": "/bin", "TIDEMILL_TOKEN": "tmo_other", "TIDEMILL_STAGE": "prod", "HOME": "/home/me"}
    environment = worker_environment(settings, given)
    assert environment["TIDEMILL_AWS_ENDPOINT"] == "http://127.0.0.1:1"
    assert environment["TIDEMILL_STAGE"] == "local"
    assert environment["PATH"] == "/bin"
    assert "TIDEMILL_TOKEN" not in environment
    assert not any("secret" in value for value in environment.values())
    assert read_settings(environment) == settings.model_copy(update={"database_url": ""})
