"""One tree with two names: each works in a process of its own (docs/adr/0001)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WALK = """
import importlib, pkgutil, sys
package = importlib.import_module(sys.argv[1])
names = [m.name for m in pkgutil.walk_packages(package.__path__, sys.argv[1] + ".") if not m.name.endswith("__main__")]
light = [name for name in names if name.split(".")[1] in {"kernel", "authoring", "cron", "runs", "schedules"}]
for name in light:
    importlib.import_module(name)
other = {"tidemill": "chalicelib", "chalicelib": "tidemill"}[sys.argv[1]]
print(len(light), [name for name in sys.modules if name.split(".")[0] == other], package.__file__)
"""


@pytest.mark.parametrize("name", ["tidemill", "chalicelib"])
def test_the_tree_is_imported_under_one_name_at_a_time(name: str) -> None:
    done = subprocess.run([sys.executable, "-c", WALK, name], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    count, others, file = done.stdout.split(" ", 2)
    assert int(count) > 30
    assert others == "[]"
    assert Path(file.strip()) == ROOT / "chalicelib" / "__init__.py"
