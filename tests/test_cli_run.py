"""`deedbook run` and `deedbook call` as a user meets them: answers, refusals, exit codes, odd requests."""

import json
import re

import pytest
from commandline import Place, play, report, verdict

from deedbook.cli.output import format_error
from deedbook.format.errors import fault

HOSTILE = "Say hello to Ada\x1b[2J\x1b]0;owned\x07\u202e\u2066evil\x9b31m"
REFUSING_HOOK = """
    from deedbook import GateSpec, deny, hookimpl


    class Plugin:
        spec = GateSpec()

        def __init__(self, settings, host):
            pass

        @hookimpl
        def session_start(self, principal, session, now, facts):
            return deny("no sessions on a Sunday")

        @hookimpl
        def user_prompt_submit(self, prompt, principal, session, now, facts):
            return deny("the request is not for us")

        @hookimpl
        def skill_start(self, skill, prompt, principal, session, now):
            return deny(f"{skill} is resting")

        @hookimpl
        def pre_tool_use(self, call):
            return deny("nothing runs today")
"""


def refuse_at(place: Place, event: str) -> None:
    place.offer("hooks", "refuse", REFUSING_HOOK)
    match = "match: {kind: [tool]}\n" if event == "PreToolUse" else ""
    place.system(
        "hooks/refuse.yaml",
        f"schema_version: v1\nid: refuse\nevent_type: {event}\nhandler: {{hook: refuse}}\n{match}",
    )


# --- run --------------------------------------------------------------------------------------------------------------


def test_run_prints_the_answer_and_says_where_its_ledger_is(place: Place):
    ran = place.run("run", "Say hello to Ada", status=0)
    assert ran.out == "Hello, Ada!\n"
    session = ran.session
    assert ran.err == f"session {session}\nledger  .deedbook/sessions/{session}/.events.jsonl\n"
    assert place.types(session)[-1] == "session.end"
    assert place.payloads("session.end", session) == [{"ok": True, "reason": "COMPLETED"}]
    assert place.payloads("session.start", session)[0]["purpose"] == "run"


def test_run_as_json_is_one_document_and_fits_its_schema(place: Place):
    answer = place.run("run", "--json", "Say hello to Ada", status=0)
    assert answer.err == ""
    told = answer.fits("output_run_v1")
    assert (told["ok"], told["state"], told["reply"], told["denied"]) == (True, "COMPLETED", "Hello, Ada!", [])
    assert told["ledger"] == str(place.ledger(told["session"]))


def test_run_reads_the_request_from_standard_input(place: Place):
    assert place.run("run", "-", stdin="Say hello to Zoë\n".encode(), status=0).out == "Hello, Zoë!\n"
    (message,) = place.payloads("user.message")
    assert message["text"] == "Say hello to Zoë", "the line break belongs to the pipe"


@pytest.mark.parametrize(
    ("stdin", "said"),
    [
        (b"", "empty"),
        (b"\n\n", "empty"),
        (b"Say hello to \xff\xfe", "not UTF-8 at character 14"),
        (b"x" * 2**20 + b"yy", "longer"),
    ],
    ids=["nothing", "only line breaks", "not UTF-8", "too long"],
)
def test_run_refuses_standard_input_that_is_no_request(told: Place, stdin: bytes, said: str):
    assert said in told.run("run", "-", stdin=stdin, status=2).err


def test_run_refuses_an_argument_that_is_not_utf_8(told: Place):
    before = told.sessions()
    ran = told.run("run", b"Say hello to \xff", status=2)
    assert "the request is not UTF-8 at character 14" in ran.err
    assert told.sessions() == before


def test_run_works_from_a_folder_below_and_names_the_ledger_so_that_it_is_found(place: Place):
    below = place.path / "docs/deep"
    below.mkdir(parents=True)
    inner = Place(below)
    ran = inner.run("run", "hello", status=0)
    assert f"ledger  {place.ledger()}" in ran.err
    assert Place(place.path.parent).run("-C", str(below), "run", "hello", status=0).out == "Hello, world!\n"
    relative = Place(place.path.parent).run("-C", place.path.name, "run", "hello", status=0).err
    assert f"ledger  {place.path.name}/.deedbook/sessions/" in relative


def test_run_spells_what_a_terminal_could_act_on(place: Place):
    ran = place.run("run", HOSTILE, status=1)
    printed = ran.out + ran.err
    assert not [char for char in printed if not char.isprintable() and char != "\n"]
    assert place.payloads("user.message", ran.session) == [{"text": HOSTILE}], "the record is exact"
    for command in ("replay", "tree"):
        shown = place.run(command, ran.session, status=0).out
        assert not [char for char in shown if not char.isprintable() and char != "\n"]
        assert "\\u{1b}" in shown
    exact = place.run("replay", ran.session, "--json", status=0)
    assert exact.json["prompt"] == HOSTILE
    assert not [char for char in exact.out if not char.isprintable() and char != "\n"]


def test_run_keeps_an_answer_of_several_lines_apart_and_its_tabs_in_columns(place: Place):
    text = "a\tb\nsecond\x1b[31m\r\nthird"
    play(place, [report(text), verdict("pass")])
    ran = place.run("run", "--profile", "played", "Say hello to Ada", status=0)
    assert ran.out == "a       b\nsecond\\u{1b}[31m\nthird\n"


def test_run_without_a_skill_that_fits_says_which_there_are(place: Place):
    ran = place.run("run", "What is the weather?", status=1)
    assert "no skill fits this request" in ran.err
    assert "greet (hello, hi, greet)" in ran.err
    assert "[NO_RULE]" in ran.err
    assert place.payloads("session.end", ran.session)[0] == {"ok": False, "reason": "NO_RULE"}


def test_run_acts_for_a_declared_principal(place: Place):
    place.system(
        "deedbook.yaml", (place.path / ".system/deedbook.yaml").read_text() + "principals: {ada: {roles: [ops]}}\n"
    )
    ran = place.run("run", "--as", "ada", "hello", status=0)
    (start,) = place.payloads("session.start", ran.session)
    assert (start["principal"]["id"], start["principal"]["roles"]) == ("ada", ["ops"])
    assert 'did you mean "ada"?' in place.run("run", "--as", "adda", "hello", status=2).err


@pytest.mark.parametrize(
    ("event", "code", "what"),
    [
        ("UserPromptSubmit", "PROMPT_DENIED", "the request: the request is not for us"),
        ("SkillStart", "SKILL_DENIED", "the skill: greet is resting"),
    ],
)
def test_run_that_a_hook_refuses_says_who_and_where_and_exits_3(place: Place, event: str, code: str, what: str):
    refuse_at(place, event)
    ran = place.run("run", "Say hello to Ada", status=3)
    assert f"error: denied: {what} (by hook refuse, .system/hooks/refuse.yaml:" in ran.err
    assert f"[{code}]" in ran.err
    assert ran.err.count("error:") == 1
    assert place.payloads("session.end", ran.session)[0] == {"ok": False, "reason": code}
    told = place.run("run", "--json", "Say hello to Ada", status=3).fits("output_run_v1")
    assert (told["ok"], told["error"]["code"], told["denied"][0]["by"]["hook"]) == (False, code, "refuse")


def test_session_that_a_hook_refuses_exits_3_and_is_ended(place: Place):
    refuse_at(place, "SessionStart")
    by = "hook refuse, .system/hooks/refuse.yaml:1"
    for command in (["run", "hello"], ["call", "echo"]):
        ran = place.run(*command, status=3)
        assert ran.err == f"error: denied: {by}: no sessions on a Sunday [SESSION_DENIED]\n"
    assert {session["state"] for session in place.run("sessions", "--json").json["sessions"]} == {"ended"}
    told = place.run("run", "--json", "hello", status=3).fits("output_error_v1")
    assert told["errors"] == [{"code": "SESSION_DENIED", "message": "no sessions on a Sunday", "place": by}]


def test_run_whose_tools_are_denied_ends_with_a_person_and_exits_3(place: Place):
    refuse_at(place, "PreToolUse")
    ran = place.run("run", "Say hello to Ada", status=3)
    assert ran.err.count("denied: echo: nothing runs today (by hook refuse, .system/hooks/refuse.yaml:") == 1
    assert "error: the run ended NEEDS_HUMAN" in ran.err
    assert "No report passed the review in 3 attempts" in ran.out
    told = place.run("run", "--json", "Say hello to Ada", status=3).fits("output_run_v1")
    assert (told["ok"], told["state"]) == (False, "NEEDS_HUMAN")
    assert [denial["code"] for denial in told["denied"]] == ["GATE_DENIED"]


# --- call -------------------------------------------------------------------------------------------------------------


def test_call_prints_the_result_as_json(place: Place):
    ran = place.run("call", "echo", "--args", '{"text":"Grüße"}', status=0)
    assert ran.out == '{\n  "text": "Grüße"\n}\n'
    assert place.types(ran.session)[-3:] == ["tool.call", "tool.result", "session.end"]
    told = place.run("call", "--json", "echo", "--args", '{"text":"hi"}', status=0).fits("output_call_v1")
    assert told["result"] == {"text": "hi"}


def test_call_reads_its_arguments_from_standard_input(place: Place):
    assert place.run("call", "echo", "--args", "-", stdin=b'{"text":"hi"}', status=0).json == {"text": "hi"}
    assert "--args: not acceptable JSON" in place.run("call", "echo", "--args", "-", stdin=b"\xff", status=2).err


def test_call_spells_what_a_terminal_could_act_on_as_json_does(place: Place):
    text = "\x1b[31m\x7f\x9b\u202e\U000e0001 ok"
    ran = place.run("call", "echo", "--args", json.dumps({"text": text}), status=0)
    assert ran.json == {"text": text}
    assert not [char for char in ran.out if not char.isprintable() and char != "\n"]


@pytest.mark.parametrize("args", ["[]", '"x"', "null", "3", '{"text":1}', "{}", '{"text":"x","more":1}'])
def test_call_with_arguments_that_do_not_fit_is_denied_before_anything_runs(place: Place, args: str):
    ran = place.run("call", "echo", "--args", args, status=1)
    assert "[SCHEMA_VIOLATION]" in ran.err
    types = place.types(ran.session)
    assert "tool.call" not in types
    assert types[-3:] == ["schema.violation", "tool.denied", "session.end"]


def test_call_with_integers_that_cannot_be_recorded_exactly_is_refused_by_the_door(place: Place):
    ran = place.run("call", "echo", "--args", '{"text": 12345678901234567890}', status=1)
    assert "[INTAKE_REFUSED]" in ran.err
    assert "tool.call" not in place.types(ran.session)


def test_call_that_a_policy_denies_names_policy_and_place(place: Place):
    write = {"path": "docs/x.md", "text": "x", "who": "me", "why": "to try", "expected_hash": ""}
    ran = place.run("call", "file-write", "--args", json.dumps(write), status=3)
    assert "(by policy baseline, .system/policies/baseline.yaml:" in ran.err
    assert "[GATE_DENIED]" in ran.err
    assert not (place.path / "docs").exists()
    told = place.run("call", "--json", "file-write", "--args", json.dumps(write), status=3).fits("output_call_v1")
    assert told["denied"][0]["by"]["policy"] == "baseline"
    assert told["error"]["code"] == "GATE_DENIED"


def test_call_that_wants_a_person_exits_3(place: Place):
    place.system(
        "registry/low-level/echo.yaml",
        """\
        schema_version: v1
        id: echo
        summary: Echo, once somebody has agreed.
        handler: {tool: echo}
        tags: [approval-gate]
        """,
    )
    ran = place.run("call", "echo", "--args", '{"text":"hi"}', status=3)
    assert re.match(r"error: waits for a person: echo: .*; approval [0-9a-f]{32} waits .* \[NEEDS_HUMAN\]\n", ran.err)
    assert "denied" not in ran.err
    assert "tool.call" not in place.types(ran.session)
    ran = place.run("run", "Say hello to Ada", status=3)
    assert ran.err.count("error: waits for a person: ") == 1
    assert place.types(ran.session)[-1] == "session.suspended"
    assert "denied" not in ran.err


def test_error_says_whether_it_is_a_denial_or_waits_for_a_person():
    """Other commands print a request for a person as an error, without what the ledger says of it."""
    assert format_error(fault("GATE_DENIED", "no")) == "denied: no [GATE_DENIED]"
    assert (
        format_error(fault("NEEDS_HUMAN", "a person looks first"))
        == "waits for a person: a person looks first [NEEDS_HUMAN]"
    )
    assert format_error(fault("TOOL_ERROR", "no")) == "no [TOOL_ERROR]"


def test_call_of_a_tool_that_fails_exits_1_with_its_own_code(place: Place):
    ran = place.run("call", "file-read", "--args", '{"path":"absent.md"}', status=1)
    assert ran.err.startswith("error: ")
    (error,) = place.payloads("tool.error", ran.session)
    assert f"[{error['code']}]" in ran.err
    assert place.payloads("session.end", ran.session)[0]["ok"] is False


@pytest.mark.parametrize("name", ["../../etc/passwd", "echo\x1b[31m\n", "e" * 5000], ids=["path", "escape", "long"])
def test_call_of_a_name_that_is_none_is_denied_and_recorded(place: Place, name: str):
    ran = place.run("call", name, status=3)
    assert "[TOOL_NOT_FOUND]" in ran.err
    assert not [char for char in ran.err if not char.isprintable() and char != "\n"]
    assert place.types(ran.session) == ["session.start", "tool.denied", "session.end"]


def test_call_says_everything_that_is_wrong_with_the_arguments(place: Place):
    wrong = '{"pth": "a.md", "text": 1}'
    told = place.run("call", "--json", "file-write", "--args", wrong, status=1).fits("output_call_v1")
    said = [f"{each['path']}: {each['message']}" for each in told["error"]["violations"]]
    assert '$.pth: unknown key; did you mean "path"?' in said
    assert "$.text: expected string, found number" in said
    assert '$: the key "why" is missing' in said
    assert told["error"]["message"] == said[0]
    ran = place.run("call", "file-write", "--args", wrong, status=1)
    lines = [line.removeprefix("error: ") for line in ran.err.splitlines() if line.startswith("error: ")]
    assert lines == [f"denied: file-write: {said[0]} [SCHEMA_VIOLATION]", *said[1:]]
    assert place.here("explain", "file-write", "--args", wrong, status=3).out.count("$") > len(said)


def test_call_with_one_fault_says_it_once_and_other_errors_have_no_violations(place: Place):
    ran = place.here("call", "echo", "--args", "{}", status=1)
    assert ran.err.count("is missing") == 1
    told = place.here("call", "--json", "ecko", status=3).fits("output_call_v1")
    assert "violations" not in told["error"]


def test_malformed_answer_is_shown_with_how_often_the_model_was_asked(place: Place):
    play(
        place,
        [{"role": "lead", "response": {"text": text}} for text in ("Sure.", "Here it is: " + "x" * 500)],
        usual=False,
    )
    ran = place.here("run", "--profile", "played", "say hello", status=1)
    said = (
        f'the model was asked 2 times; the last answer begins "Here it is: {"x" * 108}"; all of it: deedbook tree last'
    )
    assert said in ran.err.splitlines()
    told = place.here("run", "--json", "--profile", "played", "say hello", status=1).json
    assert "Here it is" not in told["error"]["message"]


def test_request_that_rules_cannot_complete_ends_with_a_status_and_says_what_was_done(place: Place):
    ran = place.here("run", "fix the bug in auth.ts", status=3)
    assert "Nothing is fixed." in ran.out
    assert "there is no ability run-tests for this role" in ran.out
    assert "${" not in ran.out
    assert "error: the run ended NEEDS_HUMAN" in ran.err
    assert "denied" not in ran.err
