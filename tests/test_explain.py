"""`deedbook explain`: every step, its place, and the outcome the door would come to; nothing is called or written."""

import json
import re
from typing import Any

import pytest
from commandline import Place, starter
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from deedbook import Decision, Err
from deedbook.format.canonical import admit, decode
from deedbook.format.errors import BindingError
from deedbook.kernel import bindings_for_judging
from deedbook.policy.bound import EVERYTHING, Caller
from deedbook.policy.callers import LOCAL
from deedbook.policy.judge import DecisionContext
from deedbook_audit.rederive import DecisionInput
from deedbook_inspect.rejudging.explanation import Explanation, explain

WRITING = {"path": "reports/a.md", "text": "hi", "expected_hash": "", "who": "ada", "why": "to try"}


@pytest.fixture(scope="module")
def only_read(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Give a workspace with one denied call, for tests that only read."""
    made = starter(tmp_path_factory.mktemp("explained") / "workspace")
    made.here("call", "file-write", "--args", json.dumps({**WRITING, "path": "src/a.py"}), status=3)
    return made


def told(place: Place, *args: str, status: int) -> Any:
    return place.here("explain", *args, "--json", status=status).fits("output_explain_v1")


def steps(found: Any) -> list[tuple[str, str, str]]:
    return [(step["step"], step["name"], step["says"]) for step in found["steps"]]


def test_explain_names_each_step_and_the_rule_that_allows(only_read: Place) -> None:
    found = told(only_read, "file-write", "--args", json.dumps(WRITING), status=0)
    assert steps(found) == [
        ("ability", "file-write", "found"),
        ("scope", "everything", "inside"),
        ("arguments", "file-write", "fit"),
        ("hook", "deny-dangerous-tools", "allow"),
        ("hook", "allow", "allow"),
        ("policy", "baseline", "allow"),
    ]
    assert found["steps"][-1]["place"] == ".system/policies/baseline.yaml:10"
    assert found["steps"][-1]["passed_over"] == [
        {"rule": ".system/policies/baseline.yaml:7", "then": "allow", "why": "its match on effects does not hold"}
    ]
    assert (found["outcome"], found["code"], found["remedy"]) == ("allow", "", "")


def test_explain_says_what_to_edit_where_the_default_denies(only_read: Place) -> None:
    ran = only_read.here("explain", "file-write", "--args", json.dumps({**WRITING, "path": "src/a"}), status=3)
    outcome, remedy = ran.out.splitlines()[-2:]
    assert outcome == "outcome    deny GATE_DENIED (no rule matches; the default is deny)"
    rule = "to allow it, add a rule that allows it to policy baseline"
    assert remedy == f"{rule}, above its default at .system/policies/baseline.yaml:16"


def test_explain_says_which_schema_refused_the_arguments(place: Place) -> None:
    ability = place.path / ".system/registry/low-level/echo.yaml"
    ability.write_text(ability.read_text() + "schema_in: {type: object, properties: {text: {maxLength: 3}}}\n")
    line = len(ability.read_text().splitlines())
    found = told(place, "echo", "--args", '{"text": "long"}', status=3)["steps"][-1]
    assert (found["says"], [each["schema"] for each in found["violations"]]) == (
        "violate",
        [f".system/registry/low-level/echo.yaml:{line}: schema_in"],
    )
    assert found["violations"][0]["path"] == "$.text"
    found = told(place, "echo", "--args", '{"text": 1}', status=3)["steps"][-1]
    assert "deedbook-tool-standard" in found["violations"][0]["schema"]


def test_explain_suggests_the_ability_that_was_meant(only_read: Place) -> None:
    found = told(only_read, "ecko", status=3)
    assert (found["code"], steps(found)) == ("TOOL_NOT_FOUND", [("ability", "ecko", "missing")])
    assert 'did you mean "echo"?' in found["reason"]
    out = only_read.here("explain", "ecko", status=3).out
    assert out.startswith('did you mean "echo"? run: deedbook explain echo\n')
    assert "declare it" not in out
    assert "declare it: .system/registry" in only_read.here("explain", "zzzzzz", status=3).out


def test_explain_of_a_session_alone_asks_for_the_event(only_read: Place) -> None:
    (session,) = (each["id"] for each in only_read.here("sessions", "--json", status=0).json["sessions"])
    for name in (session, session[:6], "last"):
        err = only_read.here("explain", name, status=2).err
        assert f"give SEQ: deedbook explain {name} SEQ" in err
        assert f"`deedbook tree --ids {name}`" in err
    assert "tree --ids SESSION" in " ".join(only_read.here("explain", "--help", status=0).out.split())


def test_explain_scopes_a_role_by_its_skill(only_read: Place) -> None:
    inside = ("echo", "--skill", "greet", "--role", "worker", "--args", '{"text":"hi"}')
    found = told(only_read, *inside, status=0)
    assert (found["principal"], found["role"], found["skill"]) == ("agent:worker", "worker", "greet")
    found = told(only_read, "file-write", "--skill", "greet", "--args", "{}", status=3)
    assert (found["code"], len(found["steps"])) == ("TOOL_NOT_ALLOWED", 2)
    skill = (only_read.path / ".system/skills/greet/SKILL.md").read_text().splitlines()
    line = next(number for number, text in enumerate(skill, 1) if text.startswith("allowed-tools"))
    assert found["remedy"] == f"to allow it, add file-write to allowed-tools at .system/skills/greet/SKILL.md:{line}"


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (["echo", "--role", "wrker"], 'did you mean "worker"?'),
        (["echo", "--skill", "gret"], 'did you mean "greet"?'),
        (["echo", "--fact", "session.call=1"], 'did you mean "session.calls"?'),
        (["echo", "--fact", "session.calls={"], "session.calls:"),
        (["echo", "--args", "{"], "--args"),
    ],
)
def test_explain_refuses_what_it_does_not_know(only_read: Place, args: list[str], why: str) -> None:
    assert why in only_read.here("explain", *args, status=2).err


def test_explain_writes_nothing(only_read: Place) -> None:
    before = {path: path.stat().st_mtime_ns for path in only_read.path.rglob("*")}
    only_read.here("explain", "file-write", "--args", json.dumps(WRITING), status=0)
    assert {path: path.stat().st_mtime_ns for path in only_read.path.rglob("*")} == before


def test_explain_of_a_recorded_denial_says_who_decided_and_whether_it_still_holds(place: Place) -> None:
    place.here("call", "file-write", "--args", json.dumps({**WRITING, "path": "src/a.py"}), status=3)
    (denied,) = (event for event in place.events() if event.type == "tool.denied")
    for named in (str(denied.seq), denied.span):
        found = told(place, "last", named, status=3)
        assert (found["recorded"]["by"]["policy"], found["recorded"]["today"]) == ("baseline", "same")
    digests = {line["policy"]: line["digest"] for line in place.payloads("policy.check")[0]["asked"]}
    assert {line["digest"] for line in found["recorded"]["asked"]} >= set(digests.values())
    rules = place.path / ".system/policies/baseline.yaml"
    rules.write_text(rules.read_text().replace("[reports]", "[reports, src]"))
    found = told(place, "last", denied.span, status=0)
    assert (found["recorded"]["outcome"], found["recorded"]["today"]) == ("deny", "allowed")


def test_explain_of_an_event_that_is_no_call_says_so(only_read: Place) -> None:
    err = only_read.here("explain", "last", "0", status=2).err
    assert "is no call, no denial and no decision about a subject" in err
    assert "[EVENT_NOT_FOUND]" in err
    (seq,) = re.search(r"; those have the seq ([0-9]+) ", err).groups()
    only_read.here("explain", "last", seq, status=3)
    assert "`deedbook tree --ids last`" in err


# --- with gates of all sorts ----------------------------------------------------------------------------------------


def explained(lab: Any, ability: str, args: Any, **facts: Any) -> Explanation:
    from deedbook.workspace.workspace import read_workspace

    raw = admit(args)
    when = DecisionContext("2026-01-02T03:04:05.006Z", "s", {"session.calls": {}, **facts})
    with bindings_for_judging(read_workspace(lab.path), lab.catalogue()) as bindings:
        caller = Caller(principal=LOCAL, actor="user", scope=EVERYTHING)
        asking = DecisionInput(bindings, caller, ability, decode(raw), raw, when)
        return explain(asking, lambda gate, call: None, lambda section, name, pointer: "")


def test_gate_that_is_not_pure_would_be_asked_and_the_outcome_is_open(lab: Any) -> None:
    lab.tool("act", lambda args, ctx: args)
    lab.hook("who-knows", "PreToolUse", lambda call: pytest.fail("asked"))
    found = explained(lab, "act", {})
    assert [(step.name, step.result) for step in found.steps][-1] == ("who-knows", "unasked")
    assert (found.outcome, found.by) == ("undetermined", {"hook": "who-knows"})


def test_pure_denial_decides_whatever_others_would_answer(lab: Any) -> None:
    lab.tool("act", lambda args, ctx: args)
    lab.hook("who-knows", "PreToolUse", lambda call: pytest.fail("asked"))
    lab.policy("never", lambda call: Decision("deny", "no"), pure=True)
    assert (explained(lab, "act", {}).outcome, explained(lab, "act", {}).reason) == ("deny", "no")


def test_rewriter_is_shown_with_what_it_was_given_and_what_it_left(lab: Any) -> None:
    lab.tool("act", lambda args, ctx: args)
    lab.hook("more", "PreToolUse", lambda call: Decision("transform", args={"n": 2}), rewrites=True, pure=True)
    (step,) = (step for step in explained(lab, "act", {"n": 1}).steps if step.what == "rewriter")
    assert (step.result, dict(step.more)) == ("transform", {"before": {"n": 1}, "after": {"n": 2}})


def test_tag_approval_gate_is_a_step_of_its_own(lab: Any) -> None:
    lab.tool("act", lambda args, ctx: args, tags=["approval-gate"])
    found = explained(lab, "act", {})
    assert (found.outcome, found.code, found.steps[-1].what) == ("ask", "NEEDS_HUMAN", "tag")


def test_facts_are_those_that_were_given(lab: Any) -> None:
    def spent(call: Any) -> Decision:
        return Decision("deny" if call.facts["session.calls"].get("act", 0) > 1 else "allow")

    lab.tool("act", lambda args, ctx: args)
    lab.policy("quota", spent, pure=True, reads=["session.calls"])
    assert explained(lab, "act", {}).outcome == "allow"
    assert explained(lab, "act", {}, **{"session.calls": {"act": 2}}).outcome == "deny"


values = st.sampled_from(["a", "b", "src/x", "reports/y", 1, 5, None])
matches = st.fixed_dictionaries(
    {},
    optional={
        "abilities": st.sampled_from([["act"], ["other"], ["*"]]),
        "effects": st.sampled_from(["none", ["none", "write"], "write"]),
        "principals": st.sampled_from([["local"], ["x*"]]),
        "args": st.dictionaries(
            st.sampled_from(["/n", "/path"]), st.sampled_from(["a", {"min": 2}, {"under": ["src"]}]), min_size=1
        ),
    },
)
rules = st.lists(
    st.fixed_dictionaries({"match": matches, "then": st.sampled_from(["allow", "ask", "deny"])}),
    max_size=5,
    unique_by=lambda rule: str(rule["match"]),
)
calls = st.dictionaries(st.sampled_from(["n", "path"]), values, max_size=2)


@settings(
    max_examples=settings.default.max_examples // 2,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(rules=rules, default=st.sampled_from(["allow", "ask", "deny"]), args=st.lists(calls, min_size=1, max_size=4))
def test_explain_agrees_with_what_the_door_then_does(lab: Any, rules: Any, default: str, args: Any) -> None:
    """Law: for any rules and any call, the outcome, the code, the reason and who decides are those of the door."""
    lab.tool("act", lambda args, ctx: args)
    lab.settings(policies={"random": {"kind": "rules", "rules": rules, "default": default}})
    try:
        session = lab.session()
    except BindingError:
        reject()  # two rules about the same calls
    for each in args:
        found, got = explained(lab, "act", each), session.call("act", each)
        if isinstance(got, Err):
            denied = lab.all("tool.denied", session)[-1].payload
            reason = got.error.message.partition("; approval ")[0]
            assert (found.code, found.reason, found.by) == (got.error.code, reason, denied["by"])
        else:
            assert (found.outcome, found.code) == ("allow", "")
    session.end(ok=True, reason="done")
