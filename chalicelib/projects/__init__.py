"""Compile a project in its own interpreter: sqb, dbt or command -> nodes, relations, drift keys, bundle.

Invariants: selectors are resolved and schedules checked before anything is published (S1); nothing in a bundle
depends on time, host or path (S3); the user's code runs in a subprocess that holds no credential.

Start reading at ``compile.py``; ``bundle.py`` is the shape that everything after it shares.
"""
