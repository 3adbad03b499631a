"""Snapshots: publish one, read what is in it, and know which is current.

Invariants: a publication commits whole or leaves no trace (S1); its id gives the same answer for ever (S3); every
document is checked against its hash before it is used, and read from the object store before the transaction, never
in it; a snapshot never changes once stored. Start reading at ``service.py`` (reads) and ``publishing.py`` (the one
transaction that writes); ``plan.py`` holds the checks.
"""

from .model import DocumentView as DocumentView
from .model import JobSummary as JobSummary
from .model import JobView as JobView
from .model import NodeView as NodeView
from .model import Place as Place
from .model import PublishRequest as PublishRequest
from .model import PublishResult as PublishResult
from .model import SnapshotView as SnapshotView
from .model import TriggerChanges as TriggerChanges
from .model import Upload as Upload
from .ports import DeclaredTrigger as DeclaredTrigger
from .ports import MergedTriggers as MergedTriggers
from .ports import TriggerKeeper as TriggerKeeper
from .service import CatalogService as CatalogService
