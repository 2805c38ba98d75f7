"""The fold: which spans a ledger makes, from its events alone."""

import itertools
import json
from types import SimpleNamespace

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deedbook import Event
from deedbook_sink_otel.spans import SpanFold

SEALED = {"$sealed": "ab" * 32, "size": 12}
SOURCE = SimpleNamespace(
    list_providers=lambda charter: {"model/a": "gemini"} if charter == "c" else {},
    find_layer=lambda kind, charter: f"of {kind}",
)


@attrs.frozen
class Line:
    event: Event
    session: str = "s1"
    trace: str = "7a" * 16
    hash: str = ""


def story(*rows):
    """Return lines: each row is a name, a type, a parent's name or ``None``, a payload, maybe a principal."""
    names = {row[0]: f"{number + 1:016x}" for number, row in enumerate(rows)}
    return [
        Line(
            Event(
                seq, row[1], "runtime", row[4] if len(row) > 4 else None, names[row[0]], row[2] and names[row[2]],
                f"2026-11-22T08:00:00.{seq:03d}Z", row[3],
            ),
            hash=f"{seq:064x}",
        )
        for seq, row in enumerate(rows)
    ]  # fmt: skip


def made(lines, **settings):
    fold = SpanFold(SOURCE, **settings)
    return [span for line in lines for span in fold(line)]


def named(spans):
    found = {span.name: span for span in spans}
    assert len(found) == len(spans)
    return found


ANSWER = {
    "model": "m-2", "finish_reason": "tool_use", "text": "thinking", "usage": {"input_tokens": 7, "output_tokens": 3},
    "tool_calls": [{"id": "t9", "name": "other", "args": {}}, {"id": "t1", "name": "echo", "args": {"text": "hi"}}],
}  # fmt: skip
REQUEST = {"model": "m", "role": "lead", "messages": [{"role": "user", "content": "secret prompt"}], "max_tokens": 9}
ALLOWED = {"ability": "echo", "decision": "allow", "asked": [{"policy": "p", "decision": "allow"}]}
ASKED = {
    "event": "PreToolUse",
    "ability": "echo",
    "decision": "transform",
    "asked": [{"hook": "h", "decision": "transform"}],
}
RUN = (
    ("root", "session.start", None, {"purpose": "run", "charter": "c"}),
    ("said", "user.message", "root", {"text": "secret prompt"}),
    ("flow", "flow.call", "said", {"flow": "review", "args": {}}),
    ("lead", "agent.transition", "flow", {"from": None, "to": "lead"}),
    ("asks", "llm.request", "lead", {"ability": "model/a", "request": REQUEST}, "agent:lead"),
    ("answers", "llm.response", "asks", {"ability": "model/a", "response": ANSWER}),
    ("fired", "hook.fired", "answers", ASKED),
    ("check", "policy.check", "answers", ALLOWED),
    ("calls", "tool.call", "answers", {"tool_name": "echo", "args": {"text": "secret argument"}}),
    ("result", "tool.result", "calls", {"tool_name": "echo", "result": {"text": "secret result"}}),
    ("worker", "agent.transition", "flow", {"from": "lead", "to": "worker"}),
    ("report", "worker.report", "worker", {"output": "secret report"}),
    ("done", "flow.result", "flow", {"flow": "review", "result": {}}),
    ("reply", "agent.reply", "said", {"reply": "secret reply"}),
    ("end", "session.end", "root", {"ok": True, "reason": "COMPLETED"}),
)


def test_what_begins_and_ends_is_a_span_with_the_ids_of_the_ledger():
    lines = story(*RUN)
    spans = named(made(lines))
    assert list(spans) == [
        "chat m", "execute_tool echo", "invoke_agent lead", "invoke_agent worker", "invoke_workflow review",
        "invoke_agent", "session run",
    ]  # fmt: skip
    by_type = {line.event.span: line.event for line in lines}
    for span in spans.values():
        assert span.trace == "7a" * 16
        assert by_type[span.id].type == span.type
        assert span.start == by_type[span.id].ts <= span.end


def test_parent_is_the_nearest_span_above_and_what_was_recorded_is_told_where_it_is_another():
    spans = named(made(story(*RUN)))
    above = {
        name: next((other for other in spans if spans[other].id == span.parent), None) for name, span in spans.items()
    }
    assert above == {
        "chat m": "invoke_agent lead",
        "execute_tool echo": "chat m",
        "invoke_agent lead": "invoke_workflow review",
        "invoke_agent worker": "invoke_workflow review",
        "invoke_workflow review": "invoke_agent",
        "invoke_agent": "session run",
        "session run": None,
    }
    assert spans["execute_tool echo"].attributes["deedbook.parent_span_id"] == f"{6:016x}"
    assert "deedbook.parent_span_id" not in spans["chat m"].attributes


def test_chat_has_what_the_conventions_ask_for():
    span = named(made(story(*RUN)))["chat m"]
    assert span.client
    told = {name: value for name, value in span.attributes.items() if name.startswith("gen_ai")}
    assert told == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "gcp.gemini",
        "gen_ai.request.model": "m",
        "gen_ai.request.max_tokens": 9,
        "gen_ai.response.model": "m-2",
        "gen_ai.response.finish_reasons": ["tool_use"],
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.output_tokens": 3,
        "gen_ai.output.type": "text",
        "gen_ai.agent.name": "lead",
        "gen_ai.conversation.id": "s1",
    }


def test_tool_has_the_id_of_the_models_call_and_how_it_was_judged():
    told = named(made(story(*RUN)))["execute_tool echo"].attributes
    assert (told["gen_ai.operation.name"], told["gen_ai.tool.name"]) == ("execute_tool", "echo")
    assert (told["gen_ai.tool.call.id"], told["gen_ai.tool.type"]) == ("t1", "function")
    assert (told["deedbook.decision"], told["deedbook.hook.ids"], told["deedbook.policy.ids"]) == (
        "transform",
        ["h"],
        ["p"],
    )
    assert (told["deedbook.outcome"], told["deedbook.outcome.seq"]) == ("ok", 9)
    assert (told["deedbook.hash"], told["deedbook.outcome.hash"]) == (f"{8:064x}", f"{9:064x}")


def test_what_only_happens_is_a_note_on_the_innermost_open_span_above():
    notes = {name: [note.name for note in span.notes] for name, span in named(made(story(*RUN))).items()}
    assert {name: found for name, found in notes.items() if found} == {
        "invoke_agent lead": ["hook.fired", "policy.check"], "invoke_agent worker": ["worker.report"]
    }  # fmt: skip


def test_decision_about_a_subject_is_a_note_with_the_subject_and_belongs_to_no_call():
    judged = {"asked": [{"policy": "p", "decision": "deny"}], "decision": "deny", "schema_version": "v2"}
    rows = (
        ("s", "session.start", None, {"purpose": "run"}),
        ("f", "flow.call", "s", {"flow": "review", "args": {}}),
        ("p", "policy.check", "f", {**judged, "subject": {"name": "finding", "value": {"secret": "no"}}}),
        ("t", "tool.call", "f", {"tool_name": "echo", "args": {}}),
        ("r", "tool.result", "t", {"tool_name": "echo", "result": 1}),
        ("e", "flow.result", "f", {"flow": "review", "result": 1}),
    )
    spans = named(made(story(*rows)))
    (note,) = next(span for span in spans.values() if span.notes).notes
    told = {name: note.attributes[name] for name in ("deedbook.decision", "deedbook.policy.subject")}
    assert told == {"deedbook.decision": "deny", "deedbook.policy.subject": "finding"}
    assert "secret" not in str(note.attributes)
    assert not any("deedbook.decision" in span.attributes for span in spans.values())


def test_advisory_answer_is_the_strictest_only_beside_answers_that_allow():
    rows = [("s", "session.start", None, {"purpose": "run"})]
    for name, decision in (("p", "advisory"), ("h", "allow")):
        asked = {"ability": "echo", "asked": [], "decision": decision, "event": "PreToolUse"}
        rows.append((name, "hook.fired" if name == "h" else "policy.check", "s", asked))
    rows += [("t", "tool.call", "s", {"tool_name": "echo", "args": {}}), ("r", "tool.result", "t", {"result": 1})]
    assert named(made(story(*rows)))["execute_tool echo"].attributes["deedbook.decision"] == "advisory"


def test_denial_is_a_span_that_says_who_denied():
    by = {"policy": "careful", "rule": "p.yaml:3", "place": "p.yaml:1"}
    denied = {
        "kind": "tool",
        "name": "rm",
        "code": "GATE_DENIED",
        "reason": "secret reason",
        "args": {"a": 1},
        "by": by,
    }
    check = {"ability": "rm", "decision": "deny", "asked": [{"policy": "careful", "decision": "deny"}]}
    lines = story(RUN[0], ("check", "policy.check", "root", check), ("no", "tool.denied", "root", denied), RUN[-1])
    span = named(made(lines))["execute_tool rm"]
    assert (span.error, span.start, span.attributes["error.type"]) == ("GATE_DENIED", span.end, "GATE_DENIED")
    told = {name.removeprefix("deedbook."): value for name, value in span.attributes.items() if "denied" in name}
    assert told == {
        "denied.by": "policy careful", "denied.code": "GATE_DENIED",
        "denied.rule": "p.yaml:3", "denied.place": "p.yaml:1",
    }  # fmt: skip
    assert (span.attributes["deedbook.decision"], span.attributes["deedbook.policy.ids"]) == ("deny", ["careful"])


@pytest.mark.parametrize(("outcome", "code"), [("failed", "TOOL_ERROR"), ("unknown", "OUTCOME_UNKNOWN")])
def test_call_that_failed_says_how(outcome, code):
    error = {"tool_name": "echo", "code": code, "message": "secret message", "retryable": False, "outcome": outcome}
    lines = story(RUN[0], ("calls", "tool.call", "root", {"tool_name": "echo"}), ("bad", "tool.error", "calls", error))
    (span,) = made(lines)
    assert (span.error, span.attributes["error.type"], span.attributes["deedbook.outcome"]) == (code, code, outcome)
    assert "secret" not in str(span)


def test_call_without_outcome_is_unknown_when_the_session_ends_and_waits_until_then():
    lines = story(RUN[0], ("calls", "tool.call", "root", {"tool_name": "echo"}), RUN[-1])
    fold = SpanFold(SOURCE)
    assert [span for line in lines[:2] for span in fold(line)] == []
    assert fold.unfinished == 2
    call, session = fold(lines[2])
    assert (call.error, call.attributes["deedbook.outcome"], session.error) == ("OUTCOME_UNKNOWN", "unknown", "")
    assert fold.unfinished == 0


def test_session_that_did_not_end_well_says_why():
    (span,) = made(story(RUN[0], ("end", "session.end", "root", {"ok": False, "reason": "HALTED"})))
    assert span.error == span.attributes["error.type"] == "HALTED"


def test_approval_is_a_span_as_long_as_somebody_waited_and_the_call_names_it():
    request = {"approval": "a1", "name": "echo", "effects": "write", "call": "d" * 64, "args": {"x": "secret"}}
    lines = story(
        RUN[0],
        ("asked", "approval.requested", "root", request),
        ("yes", "approval.granted", "asked", {"approval": "a1", "approver": "ada"}),
        ("calls", "tool.call", "yes", {"tool_name": "echo"}),
        ("result", "tool.result", "calls", {"tool_name": "echo"}),
    )
    waited, call = made(lines)
    assert (waited.name, waited.attributes["deedbook.approval.outcome"]) == ("approval echo", "granted")
    assert waited.attributes["deedbook.approval.approver"] == "ada"
    assert (call.attributes["deedbook.approval"], call.parent) == ("a1", waited.id)
    assert "secret" not in str((waited, call))


def test_checkpoint_is_a_span_of_the_workspaces_ledger():
    lines = story(
        ("root", "ledger.created", None, {"format": "1.1"}),
        ("point", "ledger.checkpoint", "root", {"origin": "o", "size": 3, "root": "ef" * 32, "why": "asked"}),
        ("leaf", "ledger.leaf", "root", {"index": 0}),
    )
    spans = named(made(lines))
    told = spans["checkpoint"].attributes
    assert (told["deedbook.checkpoint.size"], told["deedbook.checkpoint.why"]) == (3, "asked")
    assert {span.parent for span in spans.values()} == {None, f"{1:016x}"}


def test_foreign_trace_is_a_link_of_the_session():
    foreign = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    lines = story(RUN[0], ("linked", "session.linked", "root", {"traceparent": foreign}), RUN[-1])
    (span,) = made(lines)
    assert (span.links, span.parent) == ([foreign], None)


def test_nothing_that_was_said_is_told_unless_asked_for():
    told = str(made(story(*RUN)))
    assert "secret" not in told
    assert "secret" in str(made(story(*RUN), contents=True))


def test_contents_are_messages_as_the_conventions_have_them():
    spans = named(made(story(*RUN), contents=True))
    chat, tool, turn = (spans[name].attributes for name in ("chat m", "execute_tool echo", "invoke_agent"))
    assert json.loads(chat["gen_ai.input.messages"]) == [
        {"role": "user", "parts": [{"type": "text", "content": "secret prompt"}]}
    ]
    (answer,) = json.loads(chat["gen_ai.output.messages"])
    assert (answer["role"], answer["finish_reason"]) == ("assistant", "tool_call")
    assert answer["parts"][2] == {"type": "tool_call", "id": "t1", "name": "echo", "arguments": {"text": "hi"}}
    assert json.loads(tool["gen_ai.tool.call.arguments"]) == {"text": "secret argument"}
    assert json.loads(tool["gen_ai.tool.call.result"]) == {"text": "secret result"}
    assert json.loads(turn["gen_ai.output.messages"])[0]["parts"][0]["content"] == "secret reply"


@pytest.mark.parametrize("kind", [row[1] for row in RUN])
def test_sealed_value_is_never_told(kind):
    rows = [
        (*row[:3], dict.fromkeys(row[3], SEALED) if row[1] == kind else row[3], *row[4:]) for row in RUN
    ]  # fmt: skip
    told = str(made(story(*rows), contents=True))
    assert "ab" * 32 not in told
    assert "$sealed" not in told


def test_long_contents_are_cut_and_say_so():
    lines = story(RUN[0], ("said", "user.message", "root", {"text": "é" * 50_000}), RUN[-1])
    told = made(lines, contents=True)[0].attributes["gen_ai.input.messages"]
    assert len(told) < 33_000
    assert told.endswith(" characters)")


@given(st.integers(0, len(RUN)), st.booleans())
def test_ledger_read_in_two_goes_makes_the_same_spans(cut, contents):
    lines = story(*RUN)
    fold = SpanFold(SOURCE, contents=contents)
    first = [span for line in lines[:cut] for span in fold(line)]
    assert first + [span for line in lines[cut:] for span in fold(line)] == made(lines, contents=contents)


KINDS = [
    "session.start", "user.message", "agent.transition", "tool.call", "tool.result", "llm.request", "llm.response",
    "flow.call", "flow.error", "hook.fired", "tool.denied", "session.end", "x.acme.seen", "approval.requested",
]  # fmt: skip


@given(st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 30)), max_size=25))
def test_any_ledger_makes_each_span_once_below_a_span_or_at_the_root(rows):
    """Whatever hangs under whatever: nobody verified this ledger."""
    lines = story(*(
        (f"{number}", kind, None if above >= number else f"{above}", {"decision": "allow", "ability": "a"})
        for number, (kind, above) in enumerate(rows)
    ))  # fmt: skip
    fold = SpanFold(SOURCE)
    spans = list(itertools.chain.from_iterable(fold(line) for line in lines))
    ids = [span.id for span in spans]
    assert len(ids) == len(set(ids))
    assert set(ids) <= {line.event.span for line in lines}
    known = {line.event.span for line in lines} | {None}
    assert all(span.parent in known and span.parent != span.id and span.start <= span.end for span in spans)
