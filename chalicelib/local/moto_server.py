"""SQS, DynamoDB and S3 on loopback: a moto server on a thread of this process."""

from __future__ import annotations

import logging
import threading
from typing import Any

from moto.dynamodb.models import dynamodb_backends
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from moto.s3.models import s3_backends
from moto.sqs.models import sqs_backends
from werkzeug.serving import BaseWSGIServer, make_server

from ..kernel.errors import LocalStackFailed
from .moto_lock import install_lock

LOOPBACK = "127.0.0.1"
_LOGGER = logging.getLogger("tidemill.local.moto")
_JOIN_SECONDS = 5


class _QuietHandler(MotoRequestHandler):
    """One request; what it would print goes to the log at debug level."""

    def log(self, type: str, message: str, *args: Any) -> None:  # noqa: A002  # the base's name
        _LOGGER.debug("%s: %s", type, message % args)


class _Dispatcher(DomainDispatcherApplication):
    """Looks for the service of a host once; moto would walk through its own folders at each request."""

    def __init__(self) -> None:
        super().__init__(create_backend_app)
        self._of_host: dict[str | None, Any] = {}

    def get_backend_for_host(self, host: str | None) -> Any:
        """The name of a service of moto. The caller holds a lock."""
        if host not in self._of_host:
            self._of_host[host] = super().get_backend_for_host(host)
        return self._of_host[host]


class MotoServer:
    """The AWS stand-in. Its state lives in this process and ends with ``stop``; objects are kept by ``objects``."""

    def __init__(self, port: int = 0) -> None:
        self._port = port
        self._server: BaseWSGIServer | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> str:
        """Serve on loopback; returns the endpoint's address."""
        install_lock()
        application = _Dispatcher()
        try:
            self._server = make_server(LOOPBACK, self._port, application, threaded=True, request_handler=_QuietHandler)
        except (OSError, SystemExit) as error:
            raise LocalStackFailed(f"the AWS stand-in cannot listen on {LOOPBACK}:{self._port}: {error}") from error
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, name="moto", daemon=True
        )
        self._thread.start()
        return self.endpoint()

    def endpoint(self) -> str:
        """``http://127.0.0.1:<port>``."""
        if self._server is None:
            raise LocalStackFailed("the AWS stand-in is not started")
        return f"http://{LOOPBACK}:{self._server.server_port}"

    def stop(self) -> None:
        """Stop serving and forget all state."""
        if self._server is None or self._thread is None:
            return
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(_JOIN_SECONDS)
        self._server = self._thread = None
        for backends in (sqs_backends, dynamodb_backends, s3_backends):
            backends.reset()
