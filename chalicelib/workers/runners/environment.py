"""The environment of a child: an allow-list, the target's own settings, and what the run is (scheduler.md 8.2, 8.3).

Everything else of the worker's environment stays away from it: platform credentials, container credential addresses,
the worker's tokens and the path of its token file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from ...kernel.clock import instant_text
from .plan import RunPlan

_ALLOWED = frozenset(
    {"PATH", "HOME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "USER", "LOGNAME", "SSL_CERT_FILE", "SSL_CERT_DIR"}
)
_ALLOWED_PREFIXES = ("LC_",)


def allowed_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of the worker that a child may see."""
    return {
        name: value for name, value in environment.items() if name in _ALLOWED or name.startswith(_ALLOWED_PREFIXES)
    }


def child_environment(plan: RunPlan, own: Mapping[str, str]) -> dict[str, str]:
    """The whole environment of a run's child; ``own`` are the variables of its tool.

    What a person sets (the target's environment, inputs) never replaces what says which run this is.
    """
    scheduled_for = plan.inputs.scheduled_for
    base = allowed_environment(os.environ)
    base["PATH"] = os.pathsep.join([str(plan.python.parent), base.get("PATH", os.defpath)])
    return {
        **base,
        "PYTHONUNBUFFERED": "1",
        **plan.target_environment,
        **plan.extra_environment,
        **own,
        "TIDEMILL_RUN_ID": plan.inputs.run_id,
        "TIDEMILL_CLAIM_ID": plan.inputs.claim_id,
        "TIDEMILL_JOB": plan.inputs.job,
        "TIDEMILL_ORIGIN": plan.inputs.origin,
        "TIDEMILL_SCHEDULED_FOR": instant_text(scheduled_for) if scheduled_for is not None else "",
    }
