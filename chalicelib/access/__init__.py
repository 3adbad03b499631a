"""Who may call: tokens of operators, locations and workers, and the decision what each may do.

Invariants: only the SHA-256 of a secret is stored and no record shows a secret in its representation; every token
expires; authority is read at the time of use, so a revocation acts at once (S52); a text that is not a well-formed
secret never reaches the database. Start reading at ``plan.py`` (what is allowed), then ``service.py``.
"""

from .model import IssuedToken as IssuedToken
from .model import Principal as Principal
from .model import TokenScope as TokenScope
from .model import TokenView as TokenView
from .plan import Permission as Permission
from .plan import allows as allows
from .plan import narrowed as narrowed
from .plan import require as require
from .service import AccessService as AccessService
