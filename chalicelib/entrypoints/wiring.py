"""The services of this process, wired when the first request or event needs them.

Importing a handler must stay cheap and must not read a setting: the packager imports every module too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..bootstrap import Services
    from ..leases.hints import Hints

Wire = Callable[[], "Services"]


@cache
def services() -> Services:
    """The services of the stage that the environment describes; kept for the life of the process."""
    from ..bootstrap import build_services
    from ..settings import read_settings

    return build_services(read_settings())


@cache
def hints() -> Hints:
    """The hints of the stage, without anything else."""
    from ..bootstrap import build_hints
    from ..settings import read_settings

    return build_hints(read_settings())
