"""Keep the objects of the AWS stand-in: every put and delete goes through to a folder, and is loaded at start.

An object is on the disk before the client is answered, so what the database refers to survives a kill.
Layout: ``<folder>/<bucket>/<key, percent-encoded>``.
"""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.s3.models import S3Backend, s3_backends

from .moto_lock import install_lock

# A stored key never starts with a dot (it is encoded), so a half-written file is never taken for an object.
_TEMPORARY_PREFIX = ".writing-"


class ObjectFolder:
    """The objects of all buckets, as files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._originals: dict[str, Callable[..., Any]] = {}

    def attach(self) -> None:
        """Write through from now on: what is put or deleted in moto's S3 is put or deleted here first."""
        install_lock()
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._replace("put_object", self._putting)
        self._replace("delete_object", self._deleting)

    def detach(self) -> None:
        """Stop writing through."""
        for name, original in self._originals.items():
            setattr(S3Backend, name, original)
        self._originals.clear()

    def load(self) -> int:
        """Put every kept object into the existing buckets of moto; returns how many. Call it before ``attach``."""
        backend = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
        count = 0
        for bucket, path in self._files():
            if bucket in backend.buckets:
                backend.put_object(bucket, unquote(path.name), path.read_bytes())
                count += 1
        return count

    def store(self, bucket: str, key: str, value: bytes) -> None:
        """Write one object: complete under its name, or not there at all."""
        path = self.path_of(bucket, key)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=_TEMPORARY_PREFIX, dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(value)
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        _sync_folder(path.parent)

    def remove(self, bucket: str, key: str) -> None:
        """Remove one object; one that is not there is fine."""
        path = self.path_of(bucket, key)
        with suppress(FileNotFoundError):
            path.unlink()
            _sync_folder(path.parent)

    def path_of(self, bucket: str, key: str) -> Path:
        """The file of an object; no key reaches outside its bucket's folder."""
        return self._folder / _file_name(bucket) / _file_name(key)

    def _files(self) -> Iterator[tuple[str, Path]]:
        for folder in sorted(self._folder.glob("*/")):
            for path in sorted(folder.iterdir()):
                if path.name.startswith(_TEMPORARY_PREFIX):
                    path.unlink()
                else:
                    yield unquote(folder.name), path

    def _replace(self, name: str, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        original = getattr(S3Backend, name)
        self._originals[name] = original
        setattr(S3Backend, name, functools.wraps(original)(wrap(original)))

    def _putting(self, put: Callable[..., Any]) -> Callable[..., Any]:
        def put_object(backend: Any, bucket_name: str, key_name: str, value: bytes, *rest: Any, **named: Any) -> Any:
            backend.get_bucket(bucket_name)  # an unknown bucket is refused before anything is written
            self.store(bucket_name, key_name, value)
            return put(backend, bucket_name, key_name, value, *rest, **named)

        return put_object

    def _deleting(self, delete: Callable[..., Any]) -> Callable[..., Any]:
        def delete_object(backend: Any, bucket_name: str, key_name: str, *rest: Any, **named: Any) -> Any:
            self.remove(bucket_name, key_name)
            return delete(backend, bucket_name, key_name, *rest, **named)

        return delete_object


def _file_name(text: str) -> str:
    name = quote(text, safe="")
    return "%2E" + name[1:] if name.startswith(".") else name


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
