"""``python -m tidemill.cli``: the command without its script, for whoever knows only an interpreter."""

import sys

from . import main

sys.exit(main())
