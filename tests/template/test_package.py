"""What ``chalice package`` makes: the zip works with nothing else but what Lambda provides, and the template fits.

Dependencies come from the package index that pip is configured with, which is why these tests are not run by default.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PACKAGED = ("app.py", "chalicelib", ".chalice", "requirements.txt")
# What the Lambda runtime brings.
RUNTIME = ("boto3", "botocore", "s3transfer", "jmespath", "dateutil", "six", "urllib3")
LAMBDA_ZIP_LIMIT = 50 * 1024 * 1024

FUNCTIONS: Mapping[str, tuple[str, int, int]] = {  # handler, time-out in seconds, reserved concurrency
    "APIHandler": ("app.app", 28, 20),
    "Tick": ("chalicelib.entrypoints.events.tick.handler", 120, 2),
    "DueTick": ("chalicelib.entrypoints.events.due_tick.handler", 120, 5),
    "Recovery": ("chalicelib.entrypoints.events.recovery.handler", 120, 3),
    "DeadLetterLambda": ("chalicelib.entrypoints.events.dead_letter.lambda_handler", 30, 1),
    "DeadLetterContainer": ("chalicelib.entrypoints.events.dead_letter.container_handler", 30, 1),
    "TaskEvents": ("chalicelib.entrypoints.events.task_events.handler", 30, 2),
}
QUEUES = {
    "DueTick": "tidemill-prod-tick",
    "Recovery": "tidemill-prod-recovery",
    "DeadLetterLambda": "tidemill-prod-run-lambda-dead",
    "DeadLetterContainer": "tidemill-prod-run-container-dead",
    "TaskEvents": "tidemill-prod-task-events",
}

pytestmark = [pytest.mark.end_to_end, pytest.mark.xdist_group("package")]


@dataclass(frozen=True)
class Package:
    """An unpacked deployment: the folder that Lambda sees, the names in the zip, the template, the runtime's folder."""

    folder: Path
    names: frozenset[str]
    size: int
    template: dict[str, Any]
    runtime: Path

    def functions(self) -> dict[str, dict[str, Any]]:
        return {
            name: resource["Properties"]
            for name, resource in self.template["Resources"].items()
            if resource["Type"] == "AWS::Serverless::Function"
        }

    def run(self, code: str, stdin: str = "", **environment: str) -> str:
        """Run code as Lambda would: no site packages, only the zip and what the runtime brings."""
        paths = [str(self.folder), str(self.runtime)]
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-B", "-c", f"import sys; sys.path[:0] = {paths!r}\n{code}"],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            cwd=self.folder,
            env=environment,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Package]:
    home = tmp_path_factory.mktemp("package")
    tree, out, folder, runtime = home / "tree", home / "out", home / "unzipped", home / "runtime"
    _copy_tree(tree)
    _chalice_package(tree, out)
    with zipfile.ZipFile(out / "deployment.zip") as archive:
        names = frozenset(archive.namelist())
        archive.extractall(folder)
    _provide_runtime(runtime)
    template = json.loads((out / "sam.json").read_text(encoding="utf-8"))
    yield Package(folder, names, (out / "deployment.zip").stat().st_size, template, runtime)
    shutil.rmtree(home)


def _copy_tree(tree: Path) -> None:
    tree.mkdir()
    for name in PACKAGED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tree / name, ignore=shutil.ignore_patterns("__pycache__", "deployments"))
        else:
            shutil.copy2(source, tree / name)


def _chalice_package(tree: Path, out: Path) -> None:
    chalice = Path(sys.executable).with_name("chalice")
    environment = os.environ | {"AWS_DEFAULT_REGION": "eu-central-1", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [chalice, "package", "--stage", "prod", "--pkg-format", "cloudformation", out],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=tree,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    # a dependency that is left out is only mentioned, and the exit code stays 0
    assert "Could not install dependencies" not in done.stdout + done.stderr


def _provide_runtime(runtime: Path) -> None:
    runtime.mkdir()
    for name in RUNTIME:
        found = importlib.util.find_spec(name)
        assert found is not None
        assert found.origin is not None
        origin = Path(found.origin)
        source = origin.parent if origin.name == "__init__.py" else origin
        (runtime / source.name).symlink_to(source)


# --- the zip


@pytest.mark.parametrize(
    "pattern",
    [
        "app.py",
        "chalicelib/__init__.py",
        "chalicelib/entrypoints/api/routing.py",
        "chalice/app.py",
        "psycopg_binary/*.so",
        "pydantic_core/*.so",
        "cryptography/**/*.so",
        "jose/__init__.py",
        "tzdata/zoneinfo/Europe/Berlin",
    ],
)
def test_the_zip_holds_what_is_needed(package: Package, pattern: str) -> None:
    assert list(package.folder.glob(pattern))


def test_the_zip_holds_every_file_of_ours(package: Package) -> None:
    ours = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "chalicelib").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert any(name.endswith(".sql") for name in ours)
    assert {name for name in package.names if name.startswith("chalicelib/")} == ours


def test_the_zip_holds_nothing_else_of_ours(package: Package) -> None:
    tops = {name.partition("/")[0] for name in package.names}
    assert not tops & {"tests", "docs", "examples", "events", "bench", "infra", ".chalice", "requirements.txt"}
    assert not [name for name in package.names if name.endswith(".pyc")]


def test_the_zip_brings_no_second_runtime(package: Package) -> None:
    tops = {name.partition("/")[0] for name in package.names}
    assert not tops & {"boto3", "botocore", "s3transfer", "pip", "setuptools", "moto", "typer", "httpx"}
    assert package.size < LAMBDA_ZIP_LIMIT


def test_every_handler_is_imported_by_its_deployed_path(package: Package) -> None:
    for function in package.functions().values():
        module, _, name = function["Handler"].rpartition(".")
        environment = function["Environment"]["Variables"]
        code = f"import importlib; print(callable(getattr(importlib.import_module({module!r}), {name!r})))"
        assert package.run(code, **environment) == "True\n"


def test_the_services_are_wired_from_the_zip(package: Package) -> None:
    code = (
        "from chalicelib.entrypoints.wiring import services\nimport psycopg, jose.jwt\n"
        "print(services().aws.client('sqs').meta.region_name, psycopg.pq.__impl__)"
    )
    environment = package.functions()["APIHandler"]["Environment"]["Variables"]
    assert package.run(code, **environment) == "eu-central-1 binary\n"


def test_the_api_answers_from_the_zip(package: Package) -> None:
    code = "import app, json; json.dump(app.app(json.load(sys.stdin), None), sys.stdout)"
    event = (ROOT / "events" / "api_request.json").read_text(encoding="utf-8")
    environment = package.functions()["APIHandler"]["Environment"]["Variables"]
    assert json.loads(package.run(code, event, **environment))["statusCode"] == 200


# --- the template


def test_the_template_has_these_functions(package: Package) -> None:
    found = {
        name: (function["Handler"], function["Timeout"], function["ReservedConcurrentExecutions"])
        for name, function in package.functions().items()
    }
    assert found == FUNCTIONS
    for function in package.functions().values():
        assert function["MemorySize"] == 512
        assert function["Runtime"] == f"python{sys.version_info.major}.{sys.version_info.minor}"
        assert function["Environment"]["Variables"]["TIDEMILL_STAGE"] == "prod"


def test_every_resource_has_a_type_that_we_know(package: Package) -> None:
    types = {resource["Type"] for resource in package.template["Resources"].values()}
    assert types == {
        "AWS::Serverless::Function",
        "AWS::Serverless::Api",
        "AWS::IAM::Role",
        "AWS::Lambda::Permission",
    }


def test_one_rule_starts_the_tick_every_minute(package: Package) -> None:
    rules = [
        (name, event["Properties"])
        for name, function in package.functions().items()
        for event in function.get("Events", {}).values()
        if event["Type"] == "Schedule"
    ]
    assert rules == [("Tick", {"Schedule": "rate(1 minute)"})]


def test_every_queue_is_read_one_message_at_a_time(package: Package) -> None:
    sources = {
        name: event["Properties"]
        for name, function in package.functions().items()
        for event in function.get("Events", {}).values()
        if event["Type"] == "SQS"
    }
    assert {name: source["BatchSize"] for name, source in sources.items()} == dict.fromkeys(QUEUES, 1)
    for name, queue in QUEUES.items():
        assert sources[name]["Queue"]["Fn::Sub"].endswith(f":{queue}")


def test_the_api_is_regional_and_offers_every_method(package: Package) -> None:
    (api,) = (r["Properties"] for r in package.template["Resources"].values() if r["Type"] == "AWS::Serverless::Api")
    assert api["EndpointConfiguration"] == "REGIONAL"
    methods = {"get", "post", "put", "patch", "delete", "head", "options"}
    assert all(set(offered) == methods for offered in api["DefinitionBody"]["paths"].values())


def test_no_log_group_is_declared_by_chalice(package: Package) -> None:
    # its own reference to the API handler's log group is broken; infra/ sets the retention
    assert "AWS::Logs::LogGroup" not in json.dumps(package.template)


def test_every_function_has_a_role_of_its_own_with_its_policy(package: Package) -> None:
    roles = {name: function["Role"]["Fn::GetAtt"][0] for name, function in package.functions().items()}
    assert len(set(roles.values())) == len(FUNCTIONS)
    for function, role in roles.items():
        (policy,) = package.template["Resources"][role]["Properties"]["Policies"]
        actions = {action for statement in policy["PolicyDocument"]["Statement"] for action in statement["Action"]}
        assert not any("*" in action for action in actions), function
