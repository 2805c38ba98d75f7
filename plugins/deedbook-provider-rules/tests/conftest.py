"""A model asked as the kernel asks it, every message checked against its schema, and a driver of the four roles."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest

from deedbook import Failed, Principal
from deedbook.format.files import Folder
from deedbook.format.schema import Schemas, data_folder, foreign
from deedbook_provider_rules import Rules


class NoCtx:
    """A call's context that these providers never need."""

    principal = Principal("agent:worker", "test")
    session = "s"
    idempotency_key = "k"

    def remaining(self) -> float:
        return float("inf")

    def progress(self, delta: Any) -> None:
        raise AssertionError("a provider reported progress")

    def call(self, ability: str, args: Any) -> Any:
        raise AssertionError(f"a provider called {ability}")

    async def acall(self, ability: str, args: Any) -> Any:
        raise AssertionError(f"a provider called {ability}")


class FolderHost:
    """A host on a real folder."""

    def __init__(self, root: Path) -> None:
        self.open = Folder.at(root).open

    def secret(self, name: str) -> Any:
        raise AssertionError(f"a provider asked for the secret {name}")

    def scan(self, path: str) -> Any:
        raise AssertionError(f"a provider listed {path}")

    def replace(self, path: str, data: bytes, *, expected: str) -> str:
        raise AssertionError(f"a provider wrote {path}")


Tools = Mapping[str, Callable[[dict[str, Any]], Any]]


@attrs.frozen
class Model:
    """A provider behind its schemas: its own, and those of the kernel."""

    provider: Any
    schemas: Schemas

    def complete(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send *request*, filled in as the kernel does."""
        request = {"model": "rules-1", "skill": None, "schema_version": "v2", **request}
        self._fits(request, self.provider.spec.takes, "completion_request_v2")
        response = self.provider(request, NoCtx())
        self._fits(response, self.provider.spec.gives, "completion_response_v2")
        return response

    def ask(self, role: str, schema: str, brief: Any, skill: Any, messages: Any = ()) -> dict[str, Any]:
        told = [{"role": "system", "content": "…"}, {"role": "user", "content": json.dumps(brief)}, *messages]
        return self.complete({"messages": told, "response_schema": schema, "role": role, "skill": skill})

    def message(self, role: str, schema: str, brief: Any, skill: Any, messages: Any = ()) -> dict[str, Any]:
        """Return a role's final message, checked."""
        response = self.ask(role, schema, brief, skill, messages)
        assert (response["finish_reason"], response["tool_calls"]) == ("stop", [])
        message = json.loads(response["text"])
        version = message["schema_version"] if isinstance(message, dict) else "v1"
        assert self.schemas.validator(f"{schema.removesuffix('v1')}{version}").violations(message) == ()
        return message

    def work(self, brief: Any, skill: Any, tools: Tools) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Play the worker's loop against *tools*; return the report and the calls that were made."""
        messages: list[dict[str, Any]] = []
        calls: list[dict[str, Any]] = []
        while True:
            response = self.ask("worker", "worker_report_v1", brief, skill, messages)
            if response["finish_reason"] == "stop":
                return self.message("worker", "worker_report_v1", brief, skill, messages), calls
            messages.append({"role": "assistant", "content": "", "tool_calls": response["tool_calls"]})
            for call in response["tool_calls"]:
                calls.append(call)
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": _use(tools, call)})

    def run(self, request: str, skill: Any, tools: Tools) -> dict[str, Any]:
        """Take *request* through lead, planner, worker and reviewer; return all four messages and the calls."""
        brief: dict[str, Any] = {"request": request}
        brief["directive"] = self.message("lead", "lead_directive_v1", brief, skill)
        brief["plan"] = self.message("planner", "plan_v1", brief, skill)
        report, calls = self.work(brief, skill, tools)
        review = self.message("reviewer", "review_result_v1", {**brief, "report": report}, skill)
        return {**brief, "report": report, "review": review, "calls": calls}

    def _fits(self, value: Any, own: Any, schema: str) -> None:
        assert foreign(own, place="spec").violations(value) == ()
        assert self.schemas.validator(schema).violations(value) == ()


def _use(tools: Tools, call: dict[str, Any]) -> str:
    try:
        return json.dumps(tools[call["name"]](call["args"]))
    except Failed as failure:
        return json.dumps({"error": {"code": failure.code, "message": str(failure)}})


@pytest.fixture(scope="session")
def schemas() -> Schemas:
    return Schemas.load(data_folder("schemas"))


@pytest.fixture
def model(schemas: Schemas, tmp_path: Path) -> Model:
    return Model(Rules({}, FolderHost(tmp_path)), schemas)


@pytest.fixture
def model_of(schemas: Schemas) -> Callable[[Any], Model]:
    return lambda provider: Model(provider, schemas)


@pytest.fixture
def host(tmp_path: Path) -> FolderHost:
    return FolderHost(tmp_path)


@pytest.fixture
def skill() -> Callable[..., dict[str, Any]]:
    """Return what makes a skill, as a request holds it, of rules."""

    def made(*rules: Any, name: str = "greet") -> dict[str, Any]:
        return {"name": name, "description": "d", "metadata": {"deedbook": {"rules": list(rules)}}}

    return made


@pytest.fixture
def hello() -> dict[str, Any]:
    """Return a rule of one step."""
    return {
        "pattern": r"(?i)say hello to (?P<name>\w+)",
        "steps": [{"ability": "echo", "args": {"text": "Hello, ${name}!"}, "description": "Greet ${name}"}],
        "answer": "${steps.1/text}",
    }


@pytest.fixture
def chain() -> dict[str, Any]:
    """Return a rule of three steps; the last two use results."""
    return {
        "pattern": "count (?P<what>[a-z]+)",
        "steps": [
            {"ability": "find", "args": {"pattern": "${what}"}},
            {"ability": "count", "args": {"paths": "${steps.1/paths}"}},
            {"ability": "echo", "args": {"text": "${steps.1/paths/0}: ${steps.2/total}", "again": ["${steps.2}"]}},
        ],
        "answer": "${steps.3/text}",
    }
