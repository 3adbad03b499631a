"""The worker's calls of the HTTP API, and what their refusals mean for a run.

A credential goes to our own server only, and never along a redirect (S43); the client sees to that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

from pydantic import SecretStr

from ..client.address import path_of
from ..client.api import ApiClient
from ..client.uploads import upload_all
from ..kernel.clock import Clock
from ..kernel.errors import Forbidden, NotAuthenticated, NotFound, TidemillError
from ..kernel.limits import LOG_UPLOAD_ATTEMPTS, LOG_UPLOAD_SECONDS
from ..runs.model import Accepted, AcceptRequest, Report, RunInputs, StartRequest

Verdict = Literal["transient", "claim_lost", "cancelled", "credential", "foreign", "refused"]

_VERDICTS: Mapping[str, Verdict] = {
    "unavailable": "transient",
    "timeout": "transient",
    "throttled": "transient",
    "internal": "transient",
    "answer_unusable": "transient",  # a redirect or a page of something in between; our server said nothing
    "claim_taken": "claim_lost",
    "claim_ended": "claim_lost",
    "already_finished": "claim_lost",
    "cancelled": "cancelled",
    "not_authenticated": "credential",
    "token_expired": "credential",
    "token_revoked": "credential",
    "not_found": "foreign",
    "forbidden": "foreign",
}


def verdict_of(error: TidemillError) -> Verdict:
    """What a refusal means: repeat it, the claim is gone, the run was cancelled, the token is over, or simply no."""
    return _VERDICTS.get(error.code, "refused")


class WorkerApi(Protocol):
    """What a worker asks of the server. Each call raises the kernel error of the problem's code."""

    def accept(self, run_id: str, request: AcceptRequest) -> Accepted:
        """Bind the claim to this boot; the answer holds the token for all other calls of this run."""

    def inputs(self, run_id: str, token: str) -> RunInputs:
        """What to verify and build."""

    def start(self, run_id: str, token: str, request: StartRequest) -> None:
        """Ask to be running."""

    def report(self, run_id: str, token: str, report: Report) -> None:
        """Send one keyed report."""

    def log_uploads(self, run_id: str, token: str, names: Sequence[str]) -> Mapping[str, str]:
        """Presigned addresses for parts of the log."""

    def upload(self, url: str, data: bytes) -> None:
        """PUT one part."""

    def boot_ended(self, boot_id: str) -> None:
        """Prove that a boot and all that it started has ended."""


class ServerApi:
    """``WorkerApi`` over HTTPS.

    A location token opens its own location only, so a worker that serves several has several; a run is offered to one
    after the other until one may see it.
    """

    def __init__(self, client: ApiClient, location_tokens: Sequence[SecretStr], clock: Clock) -> None:
        self._client = client
        self._tokens = tuple(location_tokens)
        self._clock = clock

    def accept(self, run_id: str, request: AcceptRequest) -> Accepted:
        """``POST /worker/runs/{run}/accept``."""
        body = request.model_dump(mode="json")
        return Accepted.model_validate(
            self._with_location_token(lambda token: self._post(_path(run_id, "accept"), body, token))
        )

    def inputs(self, run_id: str, token: str) -> RunInputs:
        """``GET /worker/runs/{run}/inputs``."""
        return RunInputs.model_validate(self._client.call("GET", _path(run_id, "inputs"), token=token).body)

    def start(self, run_id: str, token: str, request: StartRequest) -> None:
        """``POST /worker/runs/{run}/start``."""
        self._post(_path(run_id, "start"), request.model_dump(mode="json"), SecretStr(token))

    def report(self, run_id: str, token: str, report: Report) -> None:
        """``POST /worker/runs/{run}/reports``."""
        self._post(_path(run_id, "reports"), report.model_dump(mode="json"), SecretStr(token))

    def log_uploads(self, run_id: str, token: str, names: Sequence[str]) -> Mapping[str, str]:
        """``POST /worker/runs/{run}/log-uploads``."""
        answer = self._post(_path(run_id, "log-uploads"), {"names": list(names)}, SecretStr(token))
        return {str(name): str(url) for name, url in answer["urls"].items()}

    def upload(self, url: str, data: bytes) -> None:
        """PUT to the presigned address; no credential goes with it."""
        upload_all(
            {"log part": url}, {"log part": data}, clock=self._clock,
            seconds=LOG_UPLOAD_SECONDS, attempts=LOG_UPLOAD_ATTEMPTS,
        )  # fmt: skip

    def boot_ended(self, boot_id: str) -> None:
        """``POST /worker/boots/{boot}/ended``, for each location that the boot may have served."""
        path = path_of("worker", "boots", boot_id, "ended")
        for token in self._tokens:
            self._post(path, {}, token)

    def _with_location_token(self, call: Callable[[SecretStr], Any]) -> Any:
        refusal: TidemillError = NotAuthenticated("this worker has no location token; name its file with --token-file")
        for token in self._tokens:
            try:
                return call(token)
            except (NotFound, Forbidden) as error:
                refusal = error
        raise refusal

    def _post(self, path: str, body: Mapping[str, Any], token: SecretStr) -> Any:
        # Every body carries a client-made key or is conditional on the claim, so that a repeat is safe.
        return self._client.call("POST", path, body=body, token=token, repeatable=True).body


def _path(run_id: str, action: str) -> str:
    return path_of("worker", "runs", run_id, action)
