"""The command ``deedbook run --profile openai`` through the review flow, over HTTP, and the same prompt without."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import jsonschema_rs
import pytest
from ruamel.yaml import YAML

from deedbook.format.schema import Schemas, data_folder
from deedbook_audit.verify import verify_file
from deedbook_author.starter import STARTER

PROMPT = "please say hello to Ada"
KEY = "sk-live-0123456789"


class Place:
    """The starter's workspace with the profile ``openai``, and the command in it."""

    def __init__(self, path: Path, command: str) -> None:
        self.path, self.command = path, command
        shutil.copytree(STARTER, path / ".system")

    def profile(self, **told) -> None:
        """Add the profile ``openai``: its one model has the settings *told*."""
        place = self.path / ".system/deedbook.yaml"
        yaml = YAML(typ="safe", pure=True)
        settings = yaml.load(place.read_text())
        model = {"provider": "openai", "model": "gpt-x", "timeout_ms": told.pop("timeout_ms", 30_000), "with": told}
        settings["secrets"] = {"openai": {"env": "MY_KEY"}}
        settings["profiles"]["openai"] = {"flow": "review", "models": {"standard": model}}
        place.write_text(json.dumps(settings))

    def run(self, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
        kept = {name: value for name, value in os.environ.items() if name not in ("MY_KEY", "OPENAI_API_KEY")}
        return subprocess.run(
            [self.command, *args],
            cwd=self.path,
            env={**kept, **env},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def events(self):
        (ledger,) = self.path.glob(".deedbook/sessions/*/.events.jsonl")
        report = verify_file(ledger, schemas=Schemas.load(data_folder("schemas")))
        assert report.sound, list(report.lines())
        return [json.loads(line) for line in ledger.read_text().splitlines()]

    def written(self) -> bytes:
        return b"".join(path.read_bytes() for path in self.path.rglob("*") if path.is_file())


@pytest.fixture
def place(tmp_path: Path, deedbook_command: str) -> Place:
    return Place(tmp_path, deedbook_command)


class Follower:
    """A model that knows nothing of Deedbook: it reads its instructions, and fills the schema that it was given."""

    def __init__(self, say, *, verdicts=("pass",)) -> None:
        self.say = say
        self.verdicts = list(verdicts)
        self.told: list[tuple[str, dict]] = []

    def __call__(self, body):
        system, brief = body["messages"][0]["content"], json.loads(body["messages"][1]["content"])
        role = re.match(r"# (\w+)", system)[1].lower()
        if body["messages"][-1]["role"] != "tool":
            self.told.append((role, brief))
        if body.get("tools") and body["messages"][-1]["role"] != "tool":
            return self.say.answer(None, [self._call(body["tools"])])
        made = getattr(self, role)(brief, body["messages"])
        found = jsonschema_rs.validator_for(self._schema(body, system)).iter_errors(made)
        assert not list(found)
        return self.say.answer(json.dumps(made))

    def _schema(self, body, system):
        form = body.get("response_format", {}).get("json_schema")
        return form["schema"] if form else json.loads(system.partition("_v1:\n\n")[2])

    def _call(self, tools):
        (tool,) = (tool["function"] for tool in tools)
        (argument,) = tool["parameters"]["required"]
        assert tool["description"]
        return self.say.call(tool["name"], {argument: "Hello, Ada!"}, f"call_{len(self.told)}")

    def lead(self, brief, _):
        intent = f"Do this: {brief['request']}"
        return {
            "intent": intent,
            "constraints": [],
            "needs_advisor": False,
            "needs_scaffolder": False,
            "schema_version": "v1",
        }

    def planner(self, brief, _):
        (tool,) = brief["tools"]
        step = {"id": "s1", "description": f"{brief['directive']['intent']} with {tool['name']}", "depends_on": []}
        return {"steps": [step], "risks": [], "needs_advisor": False, "needs_scaffolder": False, "schema_version": "v1"}

    def worker(self, brief, messages):
        steps = [step["id"] for step in brief["plan"]["steps"]]
        output = json.loads(messages[-1]["content"])["text"]
        return {"output": output, "steps_completed": steps, "tool_calls_made": ["echo"], "schema_version": "v1"}

    def reviewer(self, brief, _):
        assert brief["report"]["output"]
        verdict = self.verdicts.pop(0)
        return {
            "verdict": verdict,
            "feedback": "see for yourself" if verdict == "pass" else "greet louder",
            "schema_version": "v1",
        }


DIALECTS = {
    "as OpenAI": {"dialect": "openai"},
    "compatible": {},
    "in words": {"structured": "none"},
    "json mode": {"structured": "json_object"},
}


@pytest.mark.parametrize("settings", DIALECTS.values(), ids=DIALECTS)
def test_run_with_a_model_goes_through_all_roles(endpoint, say, place, settings):
    endpoint.always = Follower(say)
    place.profile(
        base_url=endpoint.url, key="openai", prices={"input_per_million": 1, "output_per_million": 1}, **settings
    )
    ran = place.run("run", "--profile", "openai", PROMPT, MY_KEY=KEY)
    assert (ran.returncode, ran.stdout) == (0, "Hello, Ada!\n"), ran.stderr
    assert [role for role, _ in endpoint.always.told] == ["lead", "planner", "worker", "reviewer"]
    assert {sent["authorization"] for sent in endpoint.headers} == {f"Bearer {KEY}"}
    events = place.events()
    (called,) = (event["payload"] for event in events if event["event_type"] == "tool.call")
    assert (called["tool_name"], called["args"]) == ("echo", {"text": "Hello, Ada!"})
    usage = [event["payload"]["response"]["usage"] for event in events if event["event_type"] == "llm.response"]
    assert usage == [{"input_tokens": 9, "output_tokens": 12, "cost_usd": 0.000021}] * 5
    assert KEY.encode() not in place.written()


def test_same_prompt_needs_no_other_edit_without_a_model(endpoint, say, place):
    endpoint.always = Follower(say)
    place.profile(base_url=endpoint.url)
    told = [place.run("run", "--profile", profile, PROMPT).stdout for profile in ("local", "openai")]
    assert told == ["Hello, Ada!\n", "Hello, Ada!\n"]
    assert len(endpoint.bodies) == 5


def test_starter_s_profile_works_once_its_comments_are_taken_off(endpoint, say, place):
    endpoint.always = Follower(say)
    settings = place.path / ".system/deedbook.yaml"
    lines = r"(?m)^( *)# ( *(?:openai|flow|models|standard|secrets):)"
    text, changed = re.subn(lines, r"\1\2", settings.read_text(encoding="utf-8"))
    assert changed == 5
    settings.write_text(text.replace("{key: openai}", f"{{key: openai, base_url: '{endpoint.url}'}}"), encoding="utf-8")
    assert place.run("run", "--profile", "openai", PROMPT, OPENAI_API_KEY=KEY).stdout == "Hello, Ada!\n"
    assert endpoint.headers[0]["authorization"] == f"Bearer {KEY}"


def documented():
    """Yield each profile that the page on models shows, with the whole of its block."""
    page = Path(__file__).parents[3] / "docs/models.md"
    for block in re.findall(r"^```yaml\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        shown = YAML(typ="safe", pure=True).load(block)
        yield from ((name, shown) for name in shown.get("profiles", ()))


SHOWN = list(documented())


@pytest.mark.parametrize(("name", "shown"), SHOWN, ids=[name for name, _ in SHOWN])
def test_profiles_of_the_page_on_models_are_accepted(place, name, shown):
    settings = place.path / ".system/deedbook.yaml"
    told = YAML(typ="safe", pure=True).load(settings.read_text(encoding="utf-8"))
    settings.write_text(json.dumps({**told, **shown, "profile": name}), encoding="utf-8")
    ran = place.run("lock", OPENAI_API_KEY=KEY, ANTHROPIC_API_KEY=KEY, GEMINI_API_KEY=KEY)
    assert ran.returncode == 0, ran.stderr


def test_rework_tells_the_model_what_was_wrong_with_what(endpoint, say, place):
    endpoint.always = follower = Follower(say, verdicts=["fail", "pass"])
    place.profile(base_url=endpoint.url)
    assert place.run("run", "--profile", "openai", PROMPT).returncode == 0
    again = [brief for role, brief in follower.told if role == "worker"][1]
    assert (again["feedback"], again["report"]["output"]) == ("greet louder", "Hello, Ada!")


def test_malformed_message_is_told_to_the_model_which_may_mend_it(endpoint, say, place):
    follower = Follower(say)
    spoilt = [say.answer("Certainly! Here is the directive.")]
    endpoint.always = lambda body: spoilt.pop() if spoilt else follower(last_task(body))
    place.profile(base_url=endpoint.url)
    assert place.run("run", "--profile", "openai", PROMPT).stdout == "Hello, Ada!\n"
    assert "your last message was refused" in follower.told[0][1]["violation"]


def last_task(body):
    """Return *body* as a model reads it that heeds the last user message."""
    last = max(at for at, message in enumerate(body["messages"]) if message["role"] == "user")
    return {**body, "messages": [body["messages"][0], *body["messages"][last:]]}


def test_tool_that_the_model_made_up_is_refused_at_the_door_and_told(endpoint, say, place):
    follower = Follower(say)
    made_up = [say.answer(None, [say.call("file-write", {"path": "x", "text": "y"})])]

    def model(body):
        if body.get("tools") and made_up:
            return made_up.pop()
        kept = [
            said for said in body["messages"] if said["role"] != "tool" or "TOOL_NOT_ALLOWED" not in said["content"]
        ]
        return follower({**body, "messages": kept})

    endpoint.always = model
    place.profile(base_url=endpoint.url)
    assert place.run("run", "--profile", "openai", PROMPT).stdout == "Hello, Ada!\n"
    denied = [event["payload"] for event in place.events() if event["event_type"] == "tool.denied"]
    assert [payload["code"] for payload in denied] == ["TOOL_NOT_ALLOWED"]
    assert not (place.path / "x").exists()


def test_refused_key_is_one_line_that_names_the_secret(endpoint, say, place):
    endpoint.always = lambda _: say.error(401, f"Incorrect API key provided: {KEY}", "invalid_api_key")
    place.profile(base_url=endpoint.url, key="openai")
    ran = place.run("run", "--profile", "openai", PROMPT, MY_KEY=KEY)
    assert ran.returncode == 1
    assert "PROVIDER_ERROR" in ran.stderr
    assert "refused the key secret 'openai'" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert KEY not in ran.stdout + ran.stderr
    assert KEY.encode() not in place.written()


def test_key_that_is_not_set_is_said_before_anything_is_asked(endpoint, place):
    place.profile(base_url=endpoint.url, key="openai")
    ran = place.run("run", "--profile", "openai", PROMPT)
    assert ran.returncode != 0
    assert "secret 'openai' is declared, but its environment variable MY_KEY is not set" in ran.stderr
    assert endpoint.bodies == []


def test_endpoint_that_hangs_is_left_at_the_model_s_time_limit(endpoint, say, place):
    endpoint.always = lambda _: say.hang
    place.profile(base_url=endpoint.url, timeout_ms=1500)
    ran = place.run("run", "--profile", "openai", PROMPT)
    assert ran.returncode == 1
    assert "TOOL_TIMEOUT" in ran.stderr or "PROVIDER_ERROR" in ran.stderr
    assert not endpoint.bodies or endpoint.left.wait(10)  # on a busy machine the SDK's import alone may take that long
    assert place.events()[-1]["event_type"] == "session.end"
