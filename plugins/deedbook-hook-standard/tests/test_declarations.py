"""What the distribution offers, and that every hook is what the contract says."""

import inspect
import re
from importlib.metadata import entry_points
from pathlib import Path

import jsonschema_rs
import pytest
from ruamel.yaml import YAML

from deedbook.contract import GateSpec
from deedbook.contract.lifecycle import Lifecycle
from deedbook.format import schema

HOOKS = {
    "allow": "pre_tool_use",
    "deny-tools": "pre_tool_use",
    "redact-pii": "user_prompt_submit",
    "redact-requests": "pre_tool_use",
    "routing": "user_prompt_submit",
    "stop": "stop",
}


def ours():
    points = entry_points(group="deedbook.hooks")
    return {point.name: point for point in points if point.module.startswith("deedbook_hook_standard")}


def test_distribution_offers_these_hooks():
    assert set(ours()) == set(HOOKS)


@pytest.mark.parametrize(("name", "event"), HOOKS.items())
def test_hook_answers_its_event_with_the_signature_of_the_contract(name, event):
    hook = ours()[name].load()
    marked = [key for key, member in inspect.getmembers(hook) if hasattr(member, "deedbook_impl")]
    assert marked == [event]
    ours_takes = list(inspect.signature(getattr(hook, event)).parameters)
    assert ours_takes == list(inspect.signature(getattr(Lifecycle, event)).parameters)
    assert list(inspect.signature(hook).parameters) == ["settings", "host"]


@pytest.mark.parametrize("name", HOOKS)
def test_hook_is_pure_and_reads_no_facts(name):
    spec = ours()[name].load().spec
    assert spec == GateSpec(settings=spec.settings, pure=True, rewrites=name.startswith("redact-"))


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("allow", {"x": 1}),
        ("redact-pii", {"x": 1}),
        ("redact-requests", {"detect": ["cards"]}),
        ("redact-requests", {"patterns": "x"}),
        ("deny-tools", {"name": ["rm"]}),
        ("deny-tools", {"names": []}),
        ("deny-tools", {"names": "rm"}),
        ("deny-tools", {"names": [""]}),
        ("routing", {"limit": 0}),
        ("routing", {"limit": 51}),
        ("routing", {"intent": "yes"}),
        ("stop", {"after": "always"}),
        ("stop", {"after": None}),
    ],
)
def test_hook_settings_are_strict(name, wrong):
    settings = ours()[name].load().spec.settings
    assert schema.lint(settings) == ()
    assert not jsonschema_rs.is_valid(settings, wrong)
    assert jsonschema_rs.is_valid(settings, {})


def test_readme_names_every_hook_and_setting():
    text = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
    for name in HOOKS:
        assert f"## {name}\n" in text
        for setting in ours()[name].load().spec.settings.get("properties", {}):
            assert f"| `{setting}` |" in text


def test_readme_definitions_bind_with_the_settings_they_show(bind):
    text = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
    shown = [YAML(typ="safe", pure=True).load(block) for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)]
    assert [each["handler"]["hook"] for each in shown] == list(HOOKS)
    for each in shown:
        hook = bind(each["handler"]["hook"], **each.get("with", {}))
        assert each["event_type"].lower() == HOOKS[each["handler"]["hook"]].replace("_", "")
        assert hook.spec.pure
