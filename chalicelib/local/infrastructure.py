"""The database and the AWS services of the stack: our own, or others that were named."""

from __future__ import annotations

from contextlib import ExitStack

import psycopg

from ..cloud.aws import Aws
from ..cloud.provision import provision
from ..database.store import APPLICATION, initialise_store
from ..kernel.errors import LocalStackFailed
from ..settings import Settings
from .folder import LocalFolder
from .guard import PostgresGuard
from .moto_server import MotoServer
from .objects import ObjectFolder
from .postgres import EmbeddedPostgres
from .troubles import Say


def start_database(url: str | None, folder: LocalFolder, parts: ExitStack, say: Say) -> str:
    """The address that the services connect with, of a store that is ready. Its end is registered in ``parts``."""
    if url is not None:
        _prepare_store(url)
        return url
    postgres = EmbeddedPostgres(folder.postgres)
    parts.callback(postgres.stop)
    say("starting Postgres")
    _prepare_store(postgres.start())
    guard = PostgresGuard(postgres, say)
    parts.callback(guard.stop)
    guard.start()
    return postgres.url(role=APPLICATION)


def _prepare_store(url: str) -> None:
    try:
        initialise_store(url)
    except psycopg.Error as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise LocalStackFailed(
            f"the tables cannot be made in the database ({reason}); give the address of the database's owner"
        ) from error


def start_aws(endpoint: str | None, folder: LocalFolder, parts: ExitStack, settings: Settings, say: Say) -> Settings:
    """``settings`` with the endpoint of SQS, DynamoDB and S3, where everything that we need is there."""
    if endpoint is not None:
        return _provisioned(settings, endpoint)
    say("starting the AWS stand-in")
    server = MotoServer()
    parts.callback(server.stop)
    ready = _provisioned(settings, server.start())
    objects = ObjectFolder(folder.objects)
    objects.load()
    parts.callback(objects.detach)
    objects.attach()
    return ready


def _provisioned(settings: Settings, endpoint: str) -> Settings:
    ready = settings.model_copy(update={"aws_endpoint": endpoint})
    provision(Aws(ready))
    return ready
