"""Programs that run in the peers' environments; see ``stopwatch.py``."""
