"""Structured logs of the entry points: one JSON object a line, on standard error, never with a secret."""

from __future__ import annotations

import logging
import sys
import traceback
from typing import TextIO

from aws_lambda_powertools import Logger
from pydantic import ValidationError


class _CurrentStderr(logging.StreamHandler[TextIO]):
    """Writes to what ``sys.stderr`` is at that moment; standard output belongs to the result of a command."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:
        return sys.stderr

    @stream.setter
    def stream(self, stream: TextIO) -> None:
        raise AttributeError(f"the stream is always standard error, not {stream!r}")


logger = Logger(service="tidemill", logger_handler=_CurrentStderr())


def described(error: BaseException) -> dict[str, object]:
    """An unexpected error for the log: its type, its text without the values that it refused, and where it arose."""
    text = str(error.errors(include_input=False)) if isinstance(error, ValidationError) else str(error)
    frames = traceback.extract_tb(error.__traceback__)
    return {
        "error": type(error).__name__,
        "error_text": text,
        "error_at": [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames],
    }
