"""The records that people write, and how they are collected from a module.

Invariants: a record is inert and frozen, making one does no I/O; every message names the field. One object under
several names is one job; two objects with one key are an error that names both places.

Start reading at ``jobs.py`` (the record that holds the others), then ``collect.py``.
"""
