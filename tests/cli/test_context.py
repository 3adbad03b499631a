"""Which server, token, location and target a command uses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from chalicelib.cli.context import find_connection, find_place, read_token
from chalicelib.kernel.errors import InvalidDeclaration, UsageError

LOCAL = "http://127.0.0.1:8123"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    data = tmp_path / ".tidemill"
    data.mkdir()
    (data / "dev.json").write_text(json.dumps({"server": LOCAL}))
    (data / "operator-token").write_text("tmo_local\n")
    deep = tmp_path / "models" / "staging"
    deep.mkdir(parents=True)
    return deep


def token_of(found: object) -> str | None:
    secret = getattr(found, "token", None)
    return None if secret is None else str(secret.get_secret_value())


def test_the_nearest_local_stack_upwards_brings_its_own_token(folder: Path) -> None:
    found = find_connection(None, None, environment={}, folder=folder)
    assert (found.server, token_of(found)) == (LOCAL, "tmo_local")


def test_a_token_of_the_environment_never_goes_to_a_server_that_was_only_found(folder: Path) -> None:
    found = find_connection(None, None, environment={"TIDEMILL_TOKEN": "tml_production"}, folder=folder)
    assert token_of(found) == "tmo_local"


def test_the_local_token_never_goes_to_another_server(folder: Path) -> None:
    found = find_connection("https://api.example.com", None, environment={}, folder=folder)
    assert (found.server, found.token) == ("https://api.example.com", None)


def test_the_order_is_option_environment_local_stack(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("tml_file\n")
    environment = {"TIDEMILL_SERVER": "https://env.example.com", "TIDEMILL_TOKEN": "tml_env"}
    by_option = find_connection("https://option.example.com", file, environment=environment, folder=folder)
    assert (by_option.server, token_of(by_option), by_option.origin) == (
        "https://option.example.com", "tml_file", "--server",
    )  # fmt: skip
    by_environment = find_connection(None, None, environment=environment, folder=folder)
    assert (by_environment.server, token_of(by_environment)) == ("https://env.example.com", "tml_env")


def test_the_local_server_by_name_gets_the_local_token(folder: Path) -> None:
    assert token_of(find_connection(LOCAL + "/", None, environment={}, folder=folder)) == "tmo_local"


def test_no_representation_shows_a_token(folder: Path) -> None:
    assert "tmo_local" not in repr(find_connection(None, None, environment={}, folder=folder))


@pytest.mark.parametrize("content", ["", "[]", "{", '{"pid": 1}'])
def test_a_broken_description_is_named(folder: Path, tmp_path: Path, content: str) -> None:
    (tmp_path / ".tidemill" / "dev.json").write_text(content)
    with pytest.raises(UsageError, match=r"dev\.json"):
        find_connection(None, None, environment={}, folder=folder)


@pytest.mark.parametrize("content", ["", "  \n", "two tokens", "line one\nline two", "x" * 5_000])
def test_a_token_file_holds_one_token(tmp_path: Path, content: str) -> None:
    path = tmp_path / "token"
    path.write_text(content)
    with pytest.raises(UsageError, match="one token") as refused:
        read_token(path)
    assert not content.strip() or content not in str(refused.value)


def test_a_token_file_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="cannot be read"):
        read_token(path)


def test_location_and_target_come_from_the_nearest_project_file(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "tidemill.toml").write_text(
        'name = "cafe"\njobs = []\ndefault_target = "b"\n[targets.a]\n[targets.b]\n'
    )
    assert find_place(None, None, folder=folder) == ("cafe", "b")
    assert find_place("other", None, folder=folder) == ("other", "b")
    assert find_place(None, "prod", folder=folder) == ("cafe", "prod")


def test_a_broken_project_file_is_not_read_when_both_are_given(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "tidemill.toml").write_text("not toml")
    assert find_place("a", "b", folder=folder) == ("a", "b")
    with pytest.raises(InvalidDeclaration, match=r"tidemill\.toml"):
        find_place("a", None, folder=folder)


def test_no_project_no_place(tmp_path: Path) -> None:
    assert find_place(None, None, folder=tmp_path) == (None, None)
