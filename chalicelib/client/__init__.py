"""The HTTPS client that the command line, the worker and ``tidemill dev`` share (scheduler.md 11, last rule).

Invariants: the address is checked before any credential is sent; a request with a credential never follows a redirect
(S43); every answer and every wait is bounded; only what is safe to repeat is repeated; no acknowledgement of a change is
``OutcomeUnknown``, never "failed" (S4); no secret appears in a ``repr`` or an error (S58).

Start reading at ``api.py``; ``publishing.py`` sends a bundle with it. Nothing is imported here, so that writing a path
(``address.py``) loads no HTTP library.
"""
