"""Secrets of a target's environment, read with the worker's own role just before its child (scheduler.md 8.2).

A reference is ``NAME`` or an ARN of Secrets Manager, ``NAME#KEY`` for one key of a secret that is a JSON object, or
``ssm:/name`` for a parameter of Systems Manager. No value and no answer of a service is ever part of an error.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cached_property
from typing import Any

import botocore.exceptions

from ..kernel.errors import InvalidInputs, Unavailable

_PARAMETER = "ssm:"
# What repeating does not change: the reference or the role is wrong.
_FINAL = frozenset({
    "ResourceNotFoundException", "ParameterNotFound", "ParameterVersionNotFound", "AccessDeniedException", "ValidationException",
    "InvalidParameterException", "InvalidRequestException", "DecryptionFailure", "InvalidKeyId",
})  # fmt: skip


class AwsSecrets:
    """``ports.SecretStore``; each client is made when a reference first needs it."""

    def __init__(self, make_client: Callable[[str], Any]) -> None:
        self._make_client = make_client

    def read(self, reference: str) -> str:
        """The value of a reference."""
        if reference.startswith(_PARAMETER):
            return self._parameter(reference.removeprefix(_PARAMETER))
        name, hash_sign, key = reference.partition("#")
        text = self._secret(name)
        return _value_in(text, name, key) if hash_sign else text

    @cached_property
    def _manager(self) -> Any:
        return self._make_client("secretsmanager")

    @cached_property
    def _parameters(self) -> Any:
        return self._make_client("ssm")

    def _secret(self, name: str) -> str:
        answer = _asked(name, lambda: self._manager.get_secret_value(SecretId=name))
        if "SecretString" not in answer:
            raise InvalidInputs(f"the secret {name} holds bytes, not text; store it as text")
        return str(answer["SecretString"])

    def _parameter(self, name: str) -> str:
        answer = _asked(name, lambda: self._parameters.get_parameter(Name=name, WithDecryption=True))
        return str(answer["Parameter"]["Value"])


def _asked(name: str, call: Callable[[], Any]) -> Any:
    try:
        return call()
    except botocore.exceptions.ParamValidationError:
        raise InvalidInputs(f"{name!r} is no name of a secret") from None
    except botocore.exceptions.ClientError as error:
        code = error.response.get("Error", {}).get("Code", "unknown")
        if code in _FINAL:
            raise InvalidInputs(
                f"the secret {name} cannot be read ({code}); check its name and the worker's role"
            ) from None
        raise Unavailable(f"the secret {name} cannot be read yet ({code})") from None
    except botocore.exceptions.BotoCoreError as error:
        raise Unavailable(f"the secret {name} cannot be read yet ({type(error).__name__})") from None


def _value_in(text: str, name: str, key: str) -> str:
    try:
        value = json.loads(text)[key]
    except (ValueError, KeyError, TypeError):
        raise InvalidInputs(f"the secret {name} is no JSON object with the key {key!r}") from None
    return value if isinstance(value, str) else json.dumps(value)
