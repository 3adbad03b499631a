from __future__ import annotations

import os
from pathlib import Path

import pytest

from chalicelib.kernel.errors import UsageError
from chalicelib.workers.main import named_projects, take_tokens


def project(folder: Path, location: str) -> Path:
    folder.mkdir()
    (folder / "tidemill.toml").write_text(f'location = "{location}"\njobs = []\n[targets.dev]\n')
    return folder


def test_tokens_come_from_a_file_and_leave_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("tml_one\n\ntml_two\n")
    environment = {"TIDEMILL_TOKEN_FILE": str(file), "TIDEMILL_TOKEN": "tmo_operator", "HOME": "/h"}
    tokens = take_tokens(None, environment)
    assert [token.get_secret_value() for token in tokens] == ["tml_one", "tml_two"]
    assert environment == {"HOME": "/h"}
    assert "tml_one" not in repr(tokens)


def test_the_option_wins_over_the_variable(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("tml_one")
    assert len(take_tokens(file, {"TIDEMILL_TOKEN_FILE": "/nowhere"})) == 1


def test_a_pipe_is_read_by_its_descriptor() -> None:
    reader, writer = os.pipe()
    os.write(writer, b"tml_one\n")
    os.close(writer)
    tokens = take_tokens(None, {"TIDEMILL_TOKEN_FILE": f"/dev/fd/{reader}"})
    assert tokens[0].get_secret_value() == "tml_one"
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(reader)


@pytest.mark.parametrize("content", [None, "", "\n"])
def test_no_token_says_what_to_do(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_text(content)
    with pytest.raises(UsageError, match="--token-file"):
        take_tokens(file, {})
    with pytest.raises(UsageError, match="TIDEMILL_TOKEN_FILE"):
        take_tokens(None, {})


def test_projects_go_by_location(tmp_path: Path) -> None:
    one, two = project(tmp_path / "one", "shop"), project(tmp_path / "two", "bank")
    assert set(named_projects([one, two], None)) == {"shop", "bank"}
    three = project(tmp_path / "three", "shop")
    with pytest.raises(UsageError, match="name one location, shop"):
        named_projects([one, three], None)
    with pytest.raises(UsageError, match="--project"):
        named_projects([], None)
