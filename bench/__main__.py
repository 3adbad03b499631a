"""``python -m bench NAME [--json]``, and for the soak ``[--minutes N] [--seed N]``."""

from __future__ import annotations

import argparse
import signal
import sys
from importlib import import_module
from typing import Any

from .document import Document

NAMES = ("ticks", "scale", "idle", "latency", "claims", "burst", "recovery", "soak")
_OF_SOAK = ("minutes", "seed")


def main(arguments: list[str] | None = None) -> int:
    """Run one benchmark and print its document; an error of it ends the program with a traceback."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="Benchmarks of speed and cost.")
    parser.add_argument("name", choices=NAMES)
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout, nothing else")
    parser.add_argument("--minutes", type=float, help="soak: for how long parts are killed")
    parser.add_argument("--seed", type=int, help="soak: what is asked and killed, in which order")
    asked = parser.parse_args(arguments)
    options: dict[str, Any] = {name: value for name in _OF_SOAK if (value := getattr(asked, name)) is not None}
    if options and asked.name != "soak":
        parser.error(f"{asked.name} takes no --{next(iter(options))}")
    # What was started is stopped, also when whoever runs this has waited long enough.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    document: Document = import_module(f"{__package__}.{asked.name}").measure(**options)
    sys.stdout.write((document.to_json() if asked.json else document.to_table()) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
