"""References of secrets, resolved by Secrets Manager and Systems Manager (moto); no value is ever in an error (S58)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from moto import mock_aws

from chalicelib.cloud.aws import Aws
from chalicelib.kernel.errors import InvalidInputs, Unavailable
from chalicelib.local.moto_lock import install_lock
from chalicelib.settings import read_settings


@pytest.fixture(scope="module")
def aws() -> Iterator[Aws]:
    install_lock()
    with mock_aws():
        made = Aws(read_settings({"TIDEMILL_STAGE": "secrets"}))
        manager = made.client("secretsmanager")
        manager.create_secret(Name="plain", SecretString="hunter2")
        manager.create_secret(Name="cafe/db", SecretString='{"user": "ana", "port": 5432}')
        manager.create_secret(Name="bytes", SecretBinary=b"hunter2")
        made.client("ssm").put_parameter(Name="/cafe/key", Value="hunter3", Type="SecureString")
        yield made


def test_every_form_of_a_reference_is_read(aws: Aws) -> None:
    arn = aws.client("secretsmanager").describe_secret(SecretId="plain")["ARN"]
    expected = {
        "plain": "hunter2",
        arn: "hunter2",
        "cafe/db#user": "ana",
        "cafe/db#port": "5432",
        "ssm:/cafe/key": "hunter3",
    }
    assert {reference: aws.secrets.read(reference) for reference in expected} == expected


@pytest.mark.parametrize("reference", ["none", "cafe/db#none", "plain#user", "bytes", "ssm:/none", "", "ssm:"])
def test_a_secret_that_cannot_be_read_is_named_and_not_told(aws: Aws, reference: str) -> None:
    with pytest.raises(InvalidInputs) as refused:
        aws.secrets.read(reference)
    assert "secret" in refused.value.detail
    assert not any(value in refused.value.detail for value in ("hunter", "ana", "5432"))


def test_a_store_that_is_away_is_said_to_be_away() -> None:
    away = Aws(read_settings({"TIDEMILL_AWS_ENDPOINT": "http://127.0.0.1:9"}))
    for reference in ("plain", "ssm:/cafe/key"):
        with pytest.raises(Unavailable, match="cannot be read yet"):
            away.secrets.read(reference)
