"""Make the environment of each example: the project's own tool, and the bare Tidemill beside it.

``make setup`` calls this. Run it from the repository's environment (``.venv``), which has uv. An example whose Python
is missing is named and left out; nothing else fails because of it.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tidemill.projects.interpreters import find_python

EXAMPLES = Path(__file__).resolve().parent
REPOSITORY = EXAMPLES.parent
# What the bare wheel holds beside the rest: the parts that run in a project's interpreter.
WHEEL_SOURCES = ("kernel", "authoring", "cron", "projects")


@dataclass(frozen=True)
class Example:
    """An example and the Python versions that its tool takes."""

    name: str
    minimum: tuple[int, int]
    maximum: tuple[int, int]

    @property
    def folder(self) -> Path:
        """Where it is."""
        return EXAMPLES / self.name


ALL = (Example("coffee_dbt", (3, 11), (3, 13)), Example("coffee_sqlbuild", (3, 12), (3, 14)))


def main() -> int:
    """Make what is missing or out of date."""
    wheel: Path | None = None
    for example in ALL:
        python = find_python(example.minimum, example.maximum)
        if python is None:
            wanted = f"Python {example.minimum[0]}.{example.minimum[1]} to {example.maximum[0]}.{example.maximum[1]}"
            say(f"{example.name} needs {wanted}, and none was found on PATH, in pyenv or by uv; it is left out")
            continue
        mark = stamp_of(example, python)
        stamp = example.folder / ".venv" / ".ready"
        if stamp.is_file() and stamp.read_text() == mark:
            continue
        wheel = wheel or build_wheel()
        say(f"setting up examples/{example.name}/.venv")
        make_environment(example, python, wheel)
        stamp.write_text(mark)
    return 0


def stamp_of(example: Example, python: Path) -> str:
    """Changes when the example's requirements, its Python or our own code changes."""
    digest = hashlib.sha256(str(python).encode())
    sources = [path for part in WHEEL_SOURCES for path in sorted((REPOSITORY / "chalicelib" / part).rglob("*.py"))]
    for path in [example.folder / "requirements.txt", REPOSITORY / "pyproject.toml", *sources]:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def build_wheel() -> Path:
    """The wheel of this checkout."""
    folder = REPOSITORY / "build" / "wheel"
    for old in folder.glob("*.whl"):
        old.unlink()
    uv(
        "build",
        "--wheel",
        "--no-build-isolation",
        "--python",
        sys.executable,
        "--out-dir",
        str(folder),
        str(REPOSITORY),
    )
    return next(folder.glob("*.whl"))


def make_environment(example: Example, python: Path, wheel: Path) -> None:
    """A fresh environment with exactly the pinned packages and the wheel."""
    folder = example.folder / ".venv"
    uv("venv", "--clear", "--python", str(python), str(folder))
    interpreter = str(folder / "bin" / "python")
    uv("pip", "sync", "--python", interpreter, "--require-hashes", str(example.folder / "requirements.txt"))
    uv("pip", "install", "--python", interpreter, "--no-deps", str(wheel))


def uv(*arguments: str) -> None:
    """Run uv; what it says is shown only when it fails."""
    command = [str(Path(sys.executable).parent / "uv"), "--quiet", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        say(done.stderr.strip())
        raise SystemExit(done.returncode)


def say(text: str) -> None:
    """Progress goes to stderr."""
    print(text, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
