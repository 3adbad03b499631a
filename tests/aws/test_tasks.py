"""What ECS (moto) says of tasks: running, stopped, and those that it does not know."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from moto import mock_aws

from chalicelib.cloud.aws import Aws
from chalicelib.kernel.errors import Unavailable
from chalicelib.local.moto_lock import install_lock
from chalicelib.runs.proving import stopped_among
from chalicelib.settings import read_settings
from tests.doubles import MemoryTasks

CLUSTER = "tidemill-tasks"


@pytest.fixture
def aws() -> Iterator[Aws]:
    install_lock()
    with mock_aws():
        yield Aws(read_settings({"TIDEMILL_STAGE": "tasks"}))


def started(aws: Aws, cluster: str = CLUSTER) -> str:
    """The ARN of a running task."""
    ecs, ec2 = aws.client("ecs"), aws.client("ec2")
    subnet = ec2.describe_subnets()["Subnets"][0]
    group = ec2.describe_security_groups()["SecurityGroups"][0]["GroupId"]
    ecs.create_cluster(clusterName=cluster)
    ecs.register_task_definition(
        family="worker",
        networkMode="awsvpc",
        containerDefinitions=[{"name": "worker", "image": "worker", "memory": 512}],
    )
    network = {"awsvpcConfiguration": {"subnets": [subnet["SubnetId"]], "securityGroups": [group]}}
    answer = ecs.run_task(cluster=cluster, taskDefinition="worker", launchType="FARGATE", networkConfiguration=network)
    return str(answer["tasks"][0]["taskArn"])


def described(aws: Aws, *arns: str) -> dict[str, str]:
    return dict(aws.tasks.last_statuses(arns))


def test_only_a_task_that_has_stopped_is_ended(aws: Aws) -> None:
    """Moto steps a task through its states, one a look, down to STOPPED."""
    task = started(aws)
    seen: list[str] = []
    while not seen or seen[-1] != "STOPPED":
        statuses = described(aws, task)
        seen.append(statuses[task])
        assert (stopped_among(MemoryTasks(statuses), [task]) == [task]) is (seen[-1] == "STOPPED")
    assert len(set(seen)) > 1
    assert stopped_among(aws.tasks, [task]) == [task]


def test_a_task_that_is_not_known_is_left_out(aws: Aws) -> None:
    task = started(aws)
    gone = task[:-4] + "0000"
    assert described(aws, task, gone).keys() == {task}
    assert described(aws, gone.replace(CLUSTER, "no-such-cluster")) == {}
    assert stopped_among(aws.tasks, [gone]) == []


def test_tasks_of_several_clusters_are_asked_for_in_their_own(aws: Aws) -> None:
    here, there = started(aws), started(aws, "another-cluster")
    assert described(aws, here, there).keys() == {here, there}


def test_an_endpoint_that_does_not_answer_is_said_so() -> None:
    away = Aws(read_settings({"TIDEMILL_STAGE": "tasks", "TIDEMILL_AWS_ENDPOINT": "http://127.0.0.1:9"}))
    with pytest.raises(Unavailable, match="ECS does not answer"):
        away.tasks.last_statuses(["arn:aws:ecs:eu-central-1:1:task/c/1"])
