"""``python -m bench NAME [--json]``."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from typing import Protocol, cast

from .document import Document

NAMES = ("ticks", "scale", "idle", "latency")


class Benchmark(Protocol):
    """A module of this package that is named like its benchmark."""

    def measure(self) -> Document:
        """Run it."""


def main(arguments: list[str] | None = None) -> int:
    """Run one benchmark and print its document; an error of it ends the program with a traceback."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="Benchmarks of speed and cost.")
    parser.add_argument("name", choices=NAMES)
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout, nothing else")
    asked = parser.parse_args(arguments)
    document = cast("Benchmark", import_module(f"{__package__}.{asked.name}")).measure()
    sys.stdout.write((document.to_json() if asked.json else document.to_table()) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
