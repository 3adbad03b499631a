"""The HTTP API: one handler function per operation, one module per resource.

Invariants: authentication happens once per request, in ``routing.py``; every answer carries a request id and the
security headers; every error, whoever raised it, leaves as ``application/problem+json``; the OpenAPI document is made
from the same table that routes. Start reading at ``routing.py``, then ``runs.py``; ``application.py`` puts the
resources together.
"""

from .application import build_app as build_app
