"""Any program: argv without a shell; it tells nothing but its exit code."""

from __future__ import annotations

from collections.abc import Mapping

from ...authoring.builds import Command
from ...runs.model import NodeReport
from .documents import shortened
from .environment import child_environment
from .plan import Evidence, Failure, Launch, RunPlan


class CommandRunner:
    """The side of a plain program."""

    def launch(self, plan: RunPlan) -> Launch:
        """The job's argv, in its folder."""
        build = plan.build
        if not isinstance(build, Command):
            raise TypeError("the plan of another tool")
        own = {**build.env, **plan.extra_environment, "TIDEMILL_GIT_REVISION": plan.inputs.git_revision or ""}
        folder = plan.project_folder / build.cwd if build.cwd else plan.project_folder
        return Launch((*build.argv, *plan.extra_options), child_environment(plan, own), folder, None)

    def parse_record(self, record: Mapping[str, object]) -> NodeReport | None:
        """A program writes no records that we could read, so there is nothing to find in one."""
        del record
        return None

    def read_evidence(self, plan: RunPlan, log_tail: str) -> Evidence:
        """The last line of the log stands for a message."""
        lines = [line.strip() for line in log_tail.splitlines() if line.strip()]
        failure = Failure(None, shortened(lines[-1])) if lines else None
        return Evidence(failure=failure, summary={"tool": "command", "program": plan.inputs.definition.job})
