from __future__ import annotations

from pathlib import Path

import pytest

from chalicelib.kernel.errors import InvalidDeclaration
from chalicelib.projects.project_file import ProjectFile, load_project_file

WHOLE = """
name = "coffee"
location = "shop"
modules = ["jobs"]
python = ".venv/bin/python"
default_target = "dev"
tool_dir = "warehouse"
watch = ["jobs.py"]
exclude = ["*.csv"]
[targets.dev]
tool_target = "development"
profiles_dir = "."
single_writer = true
warehouse = "coffee-file"
settle_seconds = 5
database = "coffee.duckdb"
[targets.prod]
"""


def written(folder: Path, text: str) -> ProjectFile:
    (folder / "tidemill.toml").write_text(text)
    return load_project_file(folder)


def test_the_whole_file_is_read(tmp_path: Path) -> None:
    project = written(tmp_path, WHOLE)
    name, settings = project.choose_target(None)
    assert (project.name, project.location, name) == ("coffee", "shop", "dev")
    assert (settings.tool_target, settings.effective_settle_seconds()) == ("development", 5)
    assert project.tool_folder == tmp_path / "warehouse"
    assert "*.csv" in project.excluded()


def test_names_default_to_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "my_shop"
    folder.mkdir()
    project = written(folder, 'modules = ["jobs"]\n[targets.dev]\n')
    assert (project.name, project.location) == ("my_shop", "my_shop")


@pytest.mark.parametrize(("single_writer", "seconds"), [("true", 0), ("false", 900)])
def test_the_settle_time_follows_the_kind_of_database(tmp_path: Path, single_writer: str, seconds: int) -> None:
    project = written(tmp_path, f'name = "a"\njobs = []\n[targets.dev]\nsingle_writer = {single_writer}\n')
    assert project.choose_target(None)[1].effective_settle_seconds() == seconds


def test_an_explicit_empty_declaration(tmp_path: Path) -> None:
    assert written(tmp_path, 'name = "a"\njobs = []\n[targets.dev]\n').jobs == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('name = "a"\nmodules = ["jobs"]\n', "tidemill.toml: targets: add at least one target"),
        ('name = "A"\nmodules = ["jobs"]\n[targets.dev]\n', "tidemill.toml: name: use "),
        ('name = "a"\n[targets.dev]\n', "tidemill.toml: modules: name the modules"),
        ('name = "a"\nmodules = ["jobs"]\njobs = []\n[targets.dev]\n', "tidemill.toml: jobs: give modules, or jobs"),
        ('name = "a"\njobs = ["x"]\n[targets.dev]\n', "tidemill.toml: jobs: only jobs = .. may stand here"),
        ('name = "a"\nmodule = ["jobs"]\njobs = []\n[targets.dev]\n', "tidemill.toml: module: unknown key"),
        ('name = "a"\nfolder = "x"\njobs = []\n[targets.dev]\n', "tidemill.toml: folder: unknown key"),
        (
            'name = "a"\nmodules = "jobs"\n[targets.dev]\n',
            "tidemill.toml: modules: give a list of texts, such as ..jobs",
        ),
        ('name = "a"\njobs = []\n[targets.dev]\nsettle = 1\n', "tidemill.toml: targets.dev.settle: unknown key"),
        ('name = "a"\njobs = []\n[targets.dev]\nsettle_seconds = -1\n', "targets.dev.settle_seconds: Input should be"),
        ('name = "a"\njobs = []\n[targets."Dev"]\n', "tidemill.toml: targets.Dev: use "),
        ('name = "a"\njobs = []\ndefault_target = "x"\n[targets.dev]\n', "default_target: there is no .targets.x."),
        ('name = "a"\njobs = []\ntool_dir = "../x"\n[targets.dev]\n', "tool_dir: must be a folder inside"),
        ("name = \n", r"tidemill.toml cannot be read: .*line 1"),
    ],
)
def test_a_wrong_file_names_the_key(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidDeclaration, match=message):
        written(tmp_path, text)


def test_a_folder_without_the_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidDeclaration, match=r"there is no tidemill\.toml in"):
        load_project_file(tmp_path)


def test_a_target_must_be_chosen_among_several_and_must_exist(tmp_path: Path) -> None:
    project = written(tmp_path, 'name = "a"\njobs = []\n[targets.dev]\n[targets.prod]\n')
    with pytest.raises(InvalidDeclaration, match=r"several targets \(dev, prod\)"):
        project.choose_target(None)
    with pytest.raises(InvalidDeclaration, match=r"no \[targets\.test\]; it has dev, prod"):
        project.choose_target("test")
    assert project.choose_target("prod")[0] == "prod"
