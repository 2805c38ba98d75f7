"""`deedbook hooks` and `deedbook hooks test` as a user meets them."""

import pytest

CASES = """
    schema_version: v1
    cases:
      - name: hello is let through
        hook: redact-pii
        event: {prompt: hello}
        expect: {decision: allow}
      - name: a card is taken out
        hook: redact-pii
        event: {prompt: my card is 4111111111111111}
        expect: {decision: transform}
"""


def test_hooks_are_listed_with_event_isolation_and_place(place):
    rows = place.here("hooks", "--json", status=0).fits("output_hooks_v1")["hooks"]
    found = {row["id"]: row for row in rows}
    assert (found["redact-pii"]["event"], found["redact-pii"]["isolation"]) == ("UserPromptSubmit", "inline")
    assert found["redact-pii"]["place"].startswith(".system/hooks/redact-pii.yaml")
    assert "redact-pii" in place.here("hooks", status=0).out


def test_cases_are_put_to_the_real_hook(place):
    place.system("hooks/redact.test.yaml", CASES)
    said = place.here("hooks", "test", "--json", status=0).fits("output_hooks_test_v1")
    assert [case["ok"] for case in said["cases"]] == [True, True]
    assert "4111" not in str(said["cases"][1]["got"])
    assert place.here("hooks", "test", ".system/hooks/redact.test.yaml", status=0).out == "2 of 2 cases passed\n"
    assert place.sessions() == []


def test_case_that_fails_is_told_with_what_was_expected_and_what_came(place):
    place.system("hooks/redact.test.yaml", CASES.replace("{decision: allow}", "{decision: deny}"))
    out = place.here("hooks", "test", status=1).out
    assert 'decision: expected "deny", got "allow"' in out
    assert "redact.test.yaml:4" in out
    assert "1 of 2 cases passed" in out


def test_recorded_prompt_is_asked_about_again(place):
    session = place.here("run", "Say hello to Ada", status=0).session
    (seq,) = (event.seq for event in place.events(session) if event.type == "user.message")
    case = (
        f"{{name: again, hook: redact-pii, recorded: {{session: {session}, seq: {seq}}}, expect: {{decision: allow}}}}"
    )
    place.system("hooks/again.test.yaml", f"schema_version: v1\ncases:\n  - {case}\n")
    place.here("hooks", "test", status=0)


def test_hook_of_calls_is_asked_about_a_call(place):
    place.system(
        "hooks/no-echo.yaml",
        "schema_version: v1\nid: no-echo\nevent_type: PreToolUse\nhandler: {hook: deny-tools}\n"
        "with: {names: [echo]}\nmatch: {abilities: echo}\nisolation: thread\n",
    )
    case = "{name: no, hook: no-echo, event: {ability: echo, args: {text: hi}}, expect: {decision: deny}}"
    place.system("hooks/echo.test.yaml", f"schema_version: v1\ncases:\n  - {case}\n")
    place.here("hooks", "test", status=0)


def test_what_is_no_case_is_refused_with_its_place(place):
    place.system(
        "hooks/bad.test.yaml", "schema_version: v1\ncases:\n  - {name: x, hook: y, expect: {decision: ALLOW}}\n"
    )
    assert "bad.test.yaml:3" in place.here("hooks", "test", status=1).err


def test_unknown_hook_fails_its_case(place):
    place.system(
        "hooks/x.test.yaml",
        "schema_version: v1\ncases:\n  - {name: x, hook: redact-pi, event: {}, expect: {decision: allow}}\n",
    )
    assert 'did you mean "redact-pii"?' in place.here("hooks", "test", status=1).out


def test_listing_hooks_leaves_no_trace(place):
    place.here("hooks", status=0)
    assert not (place.path / ".deedbook").exists()


@pytest.mark.parametrize("name", ["../../../elsewhere", "..", "nothing", "/etc"])
def test_recorded_session_is_one_of_the_workspace(place, name):
    place.here("call", "echo", "--args", '{"text": "hi"}', status=0)
    (place.path.parent / "elsewhere").mkdir(exist_ok=True)
    (place.path.parent / "elsewhere/.events.jsonl").write_text("x\n")
    case = f'{{name: a, hook: allow, recorded: {{session: "{name}", seq: 1}}, expect: {{decision: allow}}}}'
    place.system("hooks/a.test.yaml", f"schema_version: v1\ncases: [{case}]\n")
    ran = place.here("hooks", "test", status=1)
    assert "no sessions begin with" in ran.out + ran.err


def test_recorded_session_may_be_named_by_the_beginning_of_its_id(place):
    place.here("call", "echo", "--args", '{"text": "hi"}', status=0)
    (session,) = place.sessions()
    seq = next(event.seq for event in place.events() if event.type == "tool.call")
    case = f'{{name: a, hook: allow, recorded: {{session: "{session[:8]}", seq: {seq}}}, expect: {{decision: allow}}}}'
    place.system("hooks/a.test.yaml", f"schema_version: v1\ncases: [{case}]\n")
    place.here("hooks", "test", status=0)


def test_hook_is_listed_and_tested_before_it_is_pinned(place):
    settings = place.path / ".system/deedbook.yaml"
    settings.write_text(settings.read_text().replace("lock: auto", "lock: required"))
    place.here("lock", "--editable", status=0)
    pins = (place.path / ".system/deedbook.lock").read_bytes()
    state = sorted((place.path / ".deedbook").rglob("*"))
    (place.path / "guards").mkdir()
    (place.path / "guards/no.sh").write_text("""echo '{"decision": "deny", "reason": "no"}'\n""")
    place.system(
        "hooks/no.yaml",
        "schema_version: v1\nid: no\nevent_type: PreToolUse\nhandler: {script: [sh, guards/no.sh]}\n"
        "match: {abilities: echo}\n",
    )
    case = "{name: no, hook: no, event: {ability: echo, args: {text: hi}}, expect: {decision: deny, reason: 'no'}}"
    place.system("hooks/no.test.yaml", f"schema_version: v1\ncases:\n  - {case}\n")
    rows = place.here("hooks", "--json", status=0).fits("output_hooks_v1")["hooks"]
    assert "no" in {row["id"] for row in rows}
    assert place.here("hooks", "test", status=0).out == "1 of 1 case passed\n"
    assert (place.path / ".system/deedbook.lock").read_bytes() == pins
    assert sorted((place.path / ".deedbook").rglob("*")) == state
    assert "CHARTER_CHANGED" in place.here("call", "echo", "--args", '{"text": "hi"}', status=1).err
