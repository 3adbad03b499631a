"""Benchmarks of speed and cost: ``python -m bench NAME --json`` prints one JSON object on stdout, progress on stderr.

Invariants: the real services run, on a real Postgres with the settings of ``tidemill dev``; peers are measured in the
same run on the same machine; a peer that cannot be installed is ``null`` with its reason and fails nothing. Start at
``__main__.py``; ``docs/reference/benchmarks.md`` says what each figure means.
"""
