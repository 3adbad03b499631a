"""One run, from its accepted claim to its terminal report, on one owner thread (scheduler.md 8.1)."""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..kernel.clock import Clock
from ..kernel.errors import Drift, InvalidInputs, InvalidRequest, TidemillError, Unavailable
from ..kernel.ids import RandomBits
from ..kernel.limits import (
    LAMBDA_MARGIN_SECONDS,
    LAST_JOIN_SECONDS,
    LAST_REPORT_ATTEMPTS,
    LOG_PART_BYTES,
    REPORT_EVERY_SECONDS,
)
from ..leases.boots import BootLease, LeaseLost
from ..runs.model import Outcome, RunInputs
from ..runs.states import EndReason
from .accounts import give
from .delivery import Delivery
from .logs import RunLog
from .masking import Mask
from .outcome import End, Intent, decide, not_started
from .process import Account, Ending, Escalation, Graces, OwnedProcess
from .records import BootFile
from .runners.command import CommandRunner
from .runners.dbt import DbtRunner
from .runners.plan import Evidence, Launch, Runner, RunPlan
from .runners.sqlbuild import SqlBuildRunner
from .server import Verdict, verdict_of
from .session import Backoff, ClaimSession, GaveUp
from .verification import Verifier

_LOGGER = logging.getLogger("tidemill.worker")
_LOOK_SECONDS = 0.2
_OVER = frozenset({"claim_lost", "cancelled"})
RUNNERS: Mapping[str, Runner] = {"sqb": SqlBuildRunner(), "dbt": DbtRunner(), "command": CommandRunner()}


@dataclass(frozen=True, slots=True)
class Workshop:
    """What all runs of one worker share.

    ``must_end`` is set when the process has no more time to wait for answers; ``seconds_left`` tells how long the
    platform lets this process live, where it says so (Lambda); ``account`` is who builds run as.
    """

    verifier: Verifier
    lease: BootLease
    boot_file: BootFile
    runs_folder: Path
    clock: Clock
    random: RandomBits
    must_end: threading.Event
    graces: Graces = field(default_factory=Graces)
    report_seconds: float = REPORT_EVERY_SECONDS
    log_part_bytes: int = LOG_PART_BYTES
    last_join_seconds: float = LAST_JOIN_SECONDS
    seconds_left: Callable[[], float] | None = None
    account: Account | None = None

    def limit_of(self, timeout_seconds: float) -> float:
        """How long a child may run that starts now: on Lambda it must end before the platform ends us."""
        if self.seconds_left is None:
            return timeout_seconds
        return min(timeout_seconds, self.seconds_left() - LAMBDA_MARGIN_SECONDS)

    def graces_now(self) -> Graces:
        """The graces of a child that is to end now."""
        return self.graces if self.seconds_left is None else self.graces.within(self.seconds_left())


class Execution:
    """One run on this worker. ``request`` may be called from any thread; ``carry`` is the owner thread's."""

    def __init__(self, shop: Workshop, session: ClaimSession) -> None:
        self.run_id = session.run_id
        self.claim_id = session.claim_id
        self.reported = False
        self._shop = shop
        self._session = session
        self._lock = threading.Lock()
        self._intent: Intent | None = None
        self._stopped = threading.Event()
        self._started = self._released = False
        self._mask = Mask()
        self._folder = shop.runs_folder / session.claim_id
        self._log_folder = shop.runs_folder / f"{session.claim_id}.log"

    def request(self, intent: Intent) -> None:
        """Record why the run is to stop, before anything is done about it. A cancel wins over every other reason."""
        with self._lock:
            if self._intent is None or intent == "cancel":
                self._intent = intent
        self._stopped.set()

    def request_before_start(self) -> None:
        """It is too late to start: interrupt the run unless it was started."""
        if not self._started:
            self.request("interrupt")

    def carry(self) -> None:
        """Carry the run to its end and report it. Never raises: whatever happens becomes an outcome."""
        try:
            outcome = self._outcome()
        except Exception as error:  # the run must end with a report, whatever went wrong here
            _LOGGER.exception("run %s: the worker failed", self.run_id)
            outcome = self._broken(error)
        if outcome is not None:
            self._report(self._mask.of_report(outcome))
        for folder in (self._folder, self._log_folder):
            shutil.rmtree(folder, ignore_errors=True)

    def _outcome(self) -> Outcome | None:
        """The outcome to report; ``None`` when the claim is not ours any more."""
        try:
            plan, launch = self._prepare()
        except (InvalidInputs, Drift) as error:
            reason: EndReason = "drift" if isinstance(error, Drift) else "inputs_invalid"
            return Outcome(
                state="launch_failed", end_reason=reason, error_code=error.code, message=error.detail[:4_096]
            )
        except GaveUp:
            return not_started(self._intent)
        except TidemillError as error:
            return self._refused(error)
        return self._execute(plan, launch)

    def _prepare(self) -> tuple[RunPlan, Launch]:
        """Inputs, verification, everything that the child needs, start (S39)."""
        inputs = self._session.inputs(self._stopped)
        self._shop.runs_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder.mkdir(mode=0o700)
        plan = self._verified(inputs)
        self._mask = Mask(plan.secrets)
        launch = RUNNERS[plan.build.kind].launch(plan)
        if self._shop.account is not None:
            give(self._folder, self._shop.account)
        self._session.report(self._session.verified_report(), self._stopped)
        if self._shop.limit_of(inputs.definition.timeout_seconds) <= 0:
            self.request("interrupt")
        if self._stopped.is_set():
            raise GaveUp("stopped before the start")
        self._session.start(self._stopped)
        self._started = True
        return plan, launch

    def _verified(self, inputs: RunInputs) -> RunPlan:
        """Verify; a store of secrets that is away is asked again until it answers or the run is to stop."""
        backoff = Backoff(self._shop.random)
        while True:
            try:
                return self._shop.verifier.verify(inputs, self._folder, self._stopped)
            except Unavailable as error:
                _LOGGER.warning("run %s: %s", self.run_id, error.detail)
                if self._stopped.wait(backoff.next_seconds()):
                    raise GaveUp(error.detail) from error

    def _refused(self, error: TidemillError) -> Outcome | None:
        verdict = verdict_of(error)
        if verdict == "cancelled":
            return not_started("cancel")
        if verdict in {"claim_lost", "foreign", "credential"}:
            _LOGGER.info("run %s: dropped: %s", self.run_id, error.detail)
            self.reported = verdict == "claim_lost"  # it has an end; any other is left to be proved
            return None
        return Outcome(
            state="launch_failed", end_reason="lost_before_start", error_code=error.code, message=error.detail
        )

    # --- the child

    def _execute(self, plan: RunPlan, launch: Launch) -> Outcome:
        runner = RUNNERS[plan.build.kind]
        log = RunLog(self._log_folder, self._mask, part_bytes=self._shop.log_part_bytes)
        delivery = self._delivery(plan, runner, launch, log)
        delivery.start()
        evidence = Evidence()
        try:
            ending, sent = self._run_child(plan, launch, log)
            intent = self._intent if sent else None
            log.finish()
            evidence = _evidence(runner, plan, log.tail())
        finally:
            seen = delivery.finish(evidence.nodes)
        # Only a cancel still counts once the child has ended by itself: the server decides that race (8.4, 10.1).
        if self._intent == "cancel":
            intent = "cancel"
        counted = evidence if evidence.document else evidence.with_touched(seen)
        return decide(replace(_end(plan, ending, counted), intent=intent, sent=sent))

    def _delivery(self, plan: RunPlan, runner: Runner, launch: Launch, log: RunLog) -> Delivery:
        return Delivery(
            self._session,
            runner,
            launch,
            log,
            # what an earlier run built stays ``carried``, whatever the tool says of it
            known_nodes=plan.inputs.selection or {*plan.inputs.drift_keys, *plan.inputs.definition.nodes},
            on_over=self._claim_is_over,
            ends=self._shop.must_end,
            mask=self._mask,
            every_seconds=self._shop.report_seconds,
            last_join_seconds=self._shop.last_join_seconds,
        )

    def _claim_is_over(self, verdict: Verdict) -> None:
        self.request("cancel" if verdict == "cancelled" else "revoke")

    def _run_child(self, plan: RunPlan, launch: Launch, log: RunLog) -> tuple[Ending, frozenset[int]]:
        try:
            process = OwnedProcess(
                launch.argv,
                environment=launch.environment,
                cwd=launch.cwd,
                output=log.output,
                account=self._shop.account,
            )
        except OSError as error:
            return Ending(error=f"{launch.argv[0]} cannot be started in {launch.cwd}: {error.strerror}"), frozenset()
        finally:
            log.child_has_it()
        try:
            if self._record(process):
                self._released = True
                process.release()
            return self._watch(process, plan.inputs.definition.timeout_seconds)
        finally:
            process.end_for_sure()
            self._forget()

    def _record(self, process: OwnedProcess) -> bool:
        """Note the process group locally and in the lease item; ``False`` when the run is to stop instead."""
        self._shop.boot_file.record_group(self.run_id, process.group, process.started)
        backoff = Backoff(self._shop.random)
        while not self._stopped.is_set():
            try:
                self._shop.lease.record_group(self.run_id, process.group, process.started)
            except LeaseLost:
                self.request("revoke")
            except Exception as error:  # noqa: BLE001 - a failed call stops nothing
                _LOGGER.warning("run %s: its process group is not recorded yet: %s", self.run_id, error)
                self._stopped.wait(backoff.next_seconds())
            else:
                return True
        return False

    def _watch(self, process: OwnedProcess, timeout_seconds: float) -> tuple[Ending, frozenset[int]]:
        """Wait for the end and bring it about when it is time; the ending, and the signals that we sent."""
        clock = self._shop.clock
        deadline = clock.elapsed_seconds() + self._shop.limit_of(timeout_seconds)
        escalation: Escalation | None = None
        while (ending := process.wait(_LOOK_SECONDS)) is None:
            if clock.elapsed_seconds() >= deadline and not self._stopped.is_set():
                self.request("timeout")
            if self._stopped.is_set():
                escalation = escalation or Escalation(process, self._shop.graces_now(), clock)
                escalation.begin()
                escalation.advance()
        return ending, escalation.sent() if escalation is not None else frozenset()

    def _forget(self) -> None:
        with suppress(OSError):
            self._shop.boot_file.forget_group(self.run_id)
        try:
            self._shop.lease.forget_group(self.run_id)
        except Exception as error:  # noqa: BLE001 - a group too many in the item is harmless
            _LOGGER.warning("run %s: its process group stays in the lease item: %s", self.run_id, error)

    # --- the end

    def _broken(self, error: Exception) -> Outcome:
        message = f"the worker failed: {type(error).__name__}: {error}"[:4_096]
        if self._started:
            return Outcome(
                state="failed",
                end_reason="interrupted",
                error_code="worker_failed",
                message=message,
                settled=not self._released,
            )
        return Outcome(
            state="launch_failed", end_reason="lost_before_start", error_code="worker_failed", message=message
        )

    def _report(self, outcome: Outcome) -> None:
        attempts = LAST_REPORT_ATTEMPTS if self._intent == "revoke" else None
        try:
            self._session.report(self._session.terminal_report(outcome), self._shop.must_end, attempts)
            self.reported = True
        except InvalidRequest as error:
            self._report_started(outcome, error)
        except (TidemillError, GaveUp) as error:
            _LOGGER.warning("run %s: its end (%s) was not taken: %s", self.run_id, outcome.state, error)
            # The server has an end already; any other refusal leaves the end of this boot to be proved.
            self.reported = isinstance(error, TidemillError) and verdict_of(error) in _OVER

    def _report_started(self, outcome: Outcome, refusal: InvalidRequest) -> None:
        """The answer to ``start`` was lost and it had been taken: what never ran here ended as interrupted."""
        if outcome.state != "launch_failed" or self._started:
            _LOGGER.error("run %s: its end was refused: %s", self.run_id, refusal.detail)
            return
        self._started = True
        self._report(Outcome(state="failed", end_reason="interrupted", message=outcome.message))


def _evidence(runner: Runner, plan: RunPlan, log_tail: str) -> Evidence:
    """What the tool left; a document that it broke is as good as none."""
    try:
        return runner.read_evidence(plan, log_tail)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        _LOGGER.warning("run %s: its result cannot be read: %s", plan.inputs.run_id, error)
        return Evidence()


def _end(plan: RunPlan, ending: Ending, evidence: Evidence) -> End:
    definition = plan.inputs.definition
    return End(
        tool=plan.build.kind,
        ending=ending,
        evidence=evidence,
        has_nodes=bool(definition.nodes),
        on_empty=definition.on_empty,
        ok_exit_codes=tuple(plan.build.ok_exit_codes) if plan.build.kind == "command" else (0,),
        settle_seconds=plan.inputs.settle_seconds,
    )
