"""Where the outside comes in: HTTP requests (``api``) and AWS events (``events``).

Invariants: an entry point parses, asks a service and answers; it decides nothing. No decorator of Chalice's is relied on
for more than being found by its packager, because a Lambda of a blueprint imports its own module only. A secret never
reaches a log or a problem document (S58). Start reading at ``api/routing.py`` and ``events/tick.py``.
"""
