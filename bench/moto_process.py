"""The AWS stand-in as a process of its own, so that it can be killed alone: ``python -m bench.moto_process PORT``."""

from __future__ import annotations

import signal
import sys

from chalicelib.local.moto_server import MotoServer


def main() -> None:
    """Serve until SIGTERM or SIGINT; the first line on stdout is the address."""
    server = MotoServer(int(sys.argv[1]))
    sys.stdout.write(server.start() + "\n")
    sys.stdout.flush()
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    server.stop()


if __name__ == "__main__":
    main()
