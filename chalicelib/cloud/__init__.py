"""AWS: boto3 clients and thin typed wrappers. The only package that imports boto3.

Only ``bootstrap`` and ``local`` name these concrete classes; others take them by the Protocols in
``ports.py``, so that a simulation can pass its own. Start reading there.
"""

from .ports import LeaseTable, ObjectStore, QueueMessage, QueueService, Refusal

__all__ = ["LeaseTable", "ObjectStore", "QueueMessage", "QueueService", "Refusal"]
