"""Runs: from a request to a settled end.

Invariants (scheduler.md 3.5): at most one live claim per run; write claims of one warehouse and relation are
exclusive and taken all or none; terminal states never change; the same report key with the same content gives the
same answer; what a pool has in use is the sum of its slots. Start reading at ``states.py``, then ``plan.py`` (who gets
what), ``claiming.py`` and ``service.py``.
"""
