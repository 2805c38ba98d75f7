"""Folds: tree, snapshot, metrics and transcript come from events alone, and what they print is safe."""

import json
import unicodedata

import ledgers
import pytest
from cases import for_each
from hypothesis import given
from hypothesis import strategies as st
from ledgers import Book

from deedbook.contract import Event
from deedbook.format import canonical
from deedbook.format.folds import MetricsFold, SnapshotFold, fold
from deedbook.format.terminal import excerpt, plain, short
from deedbook_inspect.event_summary import summary
from deedbook_inspect.event_tree import TreeFold, transcript

SEALED = {"$sealed": ledgers.HASH, "size": 12}
HOSTILE = [
    "\x1b[2J", "\x1b]52;c;eA==\x07", "a\rb", "a\nb", "\u202eevil", "\u2066x\u2069", "\u2028", "\x85", "\x9b1m",
    "\x00", "\x7f", "\u200b", "\ufeff", "\ue000", "\ud800", "\U000e0041", "\u00ad", "\t", "\x08\x08",
]  # fmt: skip


def events_of(book):
    """Read a ledger of the oracle back with nothing but json."""
    rows = map(json.loads, book.lines)
    return [
        Event(row["seq"], row["event_type"], row["actor"], row["principal"], row["span_id"], row["parent_span_id"],
              row["ts"], row["payload"])
        for row in rows
    ]  # fmt: skip


def event(kind, payload, span="1", parent=None, seq=0):
    return Event(seq, kind, "runtime", None, span, parent, "2026-11-21T22:00:00.000Z", payload)


RUN = events_of(ledgers.run())


# --- tree -------------------------------------------------------------------------------------------------------------


def test_tree_of_an_honest_run_has_one_root_and_no_orphan():
    tree = fold(TreeFold(), RUN)
    assert ([root.type for root in tree.roots], tree.orphans) == (["session.start"], [])
    assert len(tree.nodes) == len(RUN)


def test_tree_hangs_every_event_under_its_parent_in_the_order_of_the_ledger():
    tree = fold(TreeFold(), RUN)
    for span, children in tree.children.items():
        assert all(child.parent == span for child in children)
        assert [child.seq for child in children] == sorted(child.seq for child in children)
    assert sum(map(len, tree.children.values())) == len(RUN) - 1


def test_tree_lines_draw_the_causes_and_count_roots_and_orphans():
    book = ledgers.call()
    lines = list(fold(TreeFold(), events_of(book)).lines())
    assert lines == [
        "spans: 4, roots: 1, orphans: 0",
        "session.start  call for local, enforce, charter 0123456789ab",
        '├─ tool.call  echo {"text":"hi"}',
        '│  └─ tool.result  echo = {"text":"hi"}',
        "└─ session.end  ok: done",
    ]


def test_tree_counts_and_shows_orphans():
    told = [RUN[0], event("user.message", {"text": "x"}, span="b", parent="nobody"), RUN[-2]]
    tree = fold(TreeFold(), told)
    assert [each.span for each in tree.orphans] == ["b"]
    lines = list(tree.lines())
    assert lines[0] == "spans: 3, roots: 1, orphans: 1"
    assert "user.message  x" in lines


def test_tree_counts_every_root():
    told = [event("session.start", {}, span="a"), event("session.start", {}, span="b")]
    assert [each.span for each in fold(TreeFold(), told).roots] == ["a", "b"]


@pytest.mark.parametrize("told", [
    [("a", "a")],
    [("a", "b"), ("b", "a")],
    [("a", None), ("a", "a")],
    [("a", None), ("b", "a"), ("b", "b"), ("c", "b")],
])  # fmt: skip
def test_tree_ends_on_ledgers_whose_causes_go_in_circles(told):
    tree = fold(TreeFold(), [event("x.y", {}, span, parent) for span, parent in told])
    assert tree.orphans
    assert len(list(tree.lines())) == len(told) + 1


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from([None, *"abcdef"])), max_size=12))
def test_tree_shows_every_event_once_whatever_hangs_where(told):
    tree = fold(TreeFold(), [event("x.y", {}, span, parent) for span, parent in told])
    assert len(list(tree.lines())) == len(told) + 1


def test_tree_of_ten_thousand_levels_is_drawn_without_recursion():
    told = [event("x.y", {}, f"s{level}", f"s{level - 1}" if level else None) for level in range(10_000)]
    assert sum(1 for _ in fold(TreeFold(), told).lines()) == 10_001


def test_tree_as_json_names_every_event_and_its_parent():
    said = json.loads(json.dumps(fold(TreeFold(), RUN).as_json()))
    assert [node["span"] for node in said["events"]] == [each.span for each in RUN]
    assert (said["roots"], said["orphans"]) == ([RUN[0].span], [])


# --- snapshot ---------------------------------------------------------------------------------------------------------


def seed_000_replay(events):
    """Return what seed 000's replay keeps of a session, computed here on its own."""
    kept = {"closed": False, "output": None, "cost": {"input": 0, "output": 0}, "agents": {}, "tools_invoked": []}
    for each in events:
        payload = each.payload
        match each.type:
            case "llm.response":
                usage = payload["response"].get("usage", {})
                kept["cost"]["input"] += usage.get("input_tokens", 0)
                kept["cost"]["output"] += usage.get("output_tokens", 0)
            case "tool.call":
                kept["tools_invoked"].append(payload)
            case "agent.transition":
                kept["agents"][each.actor] = payload["to"]
            case "worker.report":
                kept["output"] = payload["output"]
            case "session.end":
                kept["closed"] = True
    return kept


@for_each("upto", range(0, len(RUN) + 1, 3))
def test_snapshot_holds_what_seed_000_keeps_at_every_point_of_a_session(upto):
    said = fold(SnapshotFold(), RUN[:upto]).as_json()
    expected = seed_000_replay(RUN[:upto])
    assert {key: said[key] for key in expected} == expected


def test_snapshot_tells_the_whole_run():
    said = fold(SnapshotFold(), RUN).as_json()
    assert (said["closed"], said["ok"], said["reason"]) == (True, True, "done")
    assert (said["output"], said["reply"]) == ("Hello, Ada", "Hello, Ada")
    assert said["cost"] == {"input": 7, "output": 5}
    assert (said["skill"], said["roles"], said["context"], said["attempts"]) == ("greet", ["worker"], "NEEDS_HUMAN", 1)
    assert said["calls"] == {"flow/review": 1, "flow/inner": 1, "model/worker": 2, "echo": 1, "count": 1}
    assert [each["name"] for each in said["denied"]] == ["rm"]
    assert len(said["errors"]) == 3
    assert (said["violations"], said["unknown"], said["events"]) == (1, 0, len(RUN))


def test_snapshot_is_json():
    said = fold(SnapshotFold(), RUN).as_json()
    assert json.loads(json.dumps(said)) == said
    assert canonical.encode(said)


def test_snapshot_counts_calls_whose_outcome_is_not_known():
    told = [
        event("tool.call", {"tool_name": "a", "args": {}}),
        event("tool.call", {"tool_name": "a", "args": {}}),
        event("tool.error", {**ledgers.error(tool_name="a"), "outcome": "unknown"}),
        event("flow.call", {"flow": "f", "args": {}}),
        event("flow.result", {"flow": "f", "result": 1}),
    ]
    assert fold(SnapshotFold(), told).unknown == 2


def test_snapshot_adds_what_providers_say_in_money():
    usage = {"input_tokens": 1, "output_tokens": 1, "cost_usd": 0.5}
    told = [event("llm.response", {"ability": "m", "response": {"usage": usage}})] * 3
    assert fold(SnapshotFold(), told).cost == {"input": 3, "output": 3, "usd": 1.5}


def test_snapshot_of_nothing_is_open_and_empty():
    said = fold(SnapshotFold(), []).as_json()
    assert (said["closed"], said["ok"], said["events"]) == (False, None, 0)


@for_each("index", range(len(RUN)))
def test_folds_take_sealed_members_wherever_they_stand(index):
    told = RUN[index]
    for member in told.payload:
        sealed = Event(0, told.type, told.actor, None, told.span, None, told.ts, {**told.payload, member: SEALED})
        assert json.dumps(fold(SnapshotFold(), [sealed]).as_json())
        assert fold(MetricsFold(), [sealed]) is not None
        assert list(fold(TreeFold(), [sealed]).lines())
        assert all(line.isprintable() for line in transcript([sealed]))


def test_folds_do_not_change_events_and_start_afresh():
    before = json.dumps([each.payload for each in RUN])
    first, second = fold(SnapshotFold(), RUN), fold(SnapshotFold(), RUN)
    assert first == second
    assert first is not second
    assert json.dumps([each.payload for each in RUN]) == before


# --- metrics ----------------------------------------------------------------------------------------------------------


def test_metrics_count_intents_of_each_ability_and_what_models_spent():
    facts = fold(MetricsFold(), RUN).facts()
    assert facts["session.calls"] == {"flow/review": 1, "flow/inner": 1, "model/worker": 2, "echo": 1, "count": 1}
    assert facts["session.usage"] == {"input_tokens": 7, "output_tokens": 5}


def test_metrics_do_not_count_what_was_denied():
    told = [event("tool.denied", {"kind": "tool", "name": "rm", "code": "GATE_DENIED", "reason": "no"})]
    assert fold(MetricsFold(), told).calls == {}


def test_metrics_give_copies():
    how = MetricsFold()
    state = fold(how, RUN)
    facts = state.facts()
    how.step(state, event("tool.call", {"tool_name": "echo", "args": {}}))
    assert (facts["session.calls"]["echo"], state.facts()["session.calls"]["echo"]) == (1, 2)


@pytest.mark.parametrize("usage", [None, 1, [], {"input_tokens": "many"}, {"input_tokens": True}, SEALED])
def test_metrics_do_not_trust_what_a_model_says_it_spent(usage):
    told = [event("llm.response", {"ability": "m", "response": {"usage": usage}})]
    assert fold(MetricsFold(), told).usage == {}


# --- transcript -------------------------------------------------------------------------------------------------------


def test_transcript_tells_what_was_asked_done_refused_and_answered():
    lines = list(transcript(RUN))
    said = [line.split(" ", 1)[1] for line in lines]
    assert said[0] == "session.start: run for local, enforce, charter 0123456789ab"
    assert "user: Grüße an Ada 😀\\u{2028}!" in said
    assert "agent.transition: nobody → worker" in said
    assert "tool.error: count: TOOL_ERROR: it broke (failed)" in said
    assert "tool.denied: rm: GATE_DENIED: no (hook deny-rm)" in said
    assert "schema.violation: arguments of rm: $ no" in said
    assert "agent: Hello, Ada" in said
    assert said[-2] == "session.end: ok: done"


def test_transcript_is_silent_about_gates_that_allowed():
    assert not [line for line in transcript(RUN) if "hook.fired" in line or "policy.check" in line]
    asked = [{"policy": "p", "digest": "0", "decision": "deny", "reason": "no"}]
    told = event("policy.check", {"ability": "rm", "asked": asked, "decision": "deny", "enforcement": "observe"})
    assert list(transcript([told])) == ["22:00:00.000 policy.check: rm: deny [p deny (no)]"]


def test_transcript_shows_what_a_model_said_and_asked_for():
    response = {"text": "I will", "tool_calls": [{"id": "1", "name": "echo", "args": {}}]}
    told = event("llm.response", {"ability": "model/lead", "response": response})
    assert summary(told) == "model/lead = I will → echo"
    told = event("llm.response", {"ability": "model/lead", "response": {**response, "text": ""}})
    assert summary(told) == "model/lead → echo", "of one that says nothing only what it asks for"
    assert summary(event("tool.result", {"tool_name": "t", "result": "→ x"})) == "t = → x"


def test_stop_hook_that_ends_the_loop_is_not_told_as_a_refusal():
    asked = [{"hook": "once", "digest": "0", "decision": "deny", "reason": "one is enough"}]
    told = event("hook.fired", {"event": "Stop", "asked": asked, "decision": "deny"})
    assert summary(told) == "Stop: the loop ends here [once stops here (one is enough)]"
    allowed = event("hook.fired", {"event": "Stop", "asked": [{**asked[0], "decision": "allow"}], "decision": "allow"})
    assert summary(allowed) == "Stop: allow [once allow (one is enough)]"


def test_denials_show_what_was_asked_for_shortly_and_why_in_full():
    denied = {"kind": "tool", "name": "rm", "code": "GATE_DENIED", "reason": "no"}
    told = event("tool.denied", {**denied, "args": {"path": "a\u202e"}})
    assert summary(told) == r'rm {"path":"a\u{202e}"}: GATE_DENIED: no'
    told = event("tool.denied", {**denied, "args": {"path": "x" * 5000}})
    assert summary(told).endswith("x…: GATE_DENIED: no")
    assert summary(event("tool.denied", {**denied, "args": {}})) == "rm: GATE_DENIED: no"


def test_tool_that_nobody_declared_comes_before_what_it_was_given():
    args = {"input": {"url": "x" * 5000}, "tool": "WebFetch"}
    told = {"kind": "tool", "name": "claude-code/other", "code": "GATE_DENIED", "reason": "no", "args": args}
    assert summary(event("tool.denied", told)).startswith('claude-code/other {"tool":"WebFetch","input":{"url":"xxx')
    told = {"tool_name": "claude-code/other", "args": args}
    assert summary(event("tool.call", told)).startswith('claude-code/other {"tool":"WebFetch","input":{')


def test_session_of_an_agent_says_which_one_it_continues_and_what_was_denied_in_it():
    told = {"agent": "claude-code", "agent_session": "s1", "session_id": "b"}
    assert summary(event("bridge.session", told)) == "claude-code s1"
    assert summary(event("bridge.session", {**told, "continues": "a"})) == "claude-code s1, continues a"
    told = {"agent": "claude-code", "event": "PermissionRequest", "said": {}, "denied": "never judged"}
    assert summary(event("bridge.told", told)) == "claude-code: PermissionRequest {}; denied: never judged"
    told = {"agent": "codex", "event": "PreToolUse", "what": ["context"], "why": "it takes none"}
    assert summary(event("bridge.undelivered", told)) == 'codex PreToolUse: not told: ["context"]: it takes none'


def test_transcript_gives_speech_in_full_and_data_in_its_beginning():
    long = "x" * 5000
    result = event("tool.result", {"tool_name": "t", "result": long})
    spoken, called = transcript([event("user.message", {"text": long}), result])
    assert len(spoken) > 5000
    assert len(called) < 300
    assert called.endswith("…")


def test_transcript_shows_types_it_does_not_know():
    assert list(transcript([event("x.shop.sold", {"n": 1})])) == ['22:00:00.000 x.shop.sold: {"n":1}']


def test_late_results_are_marked():
    assert summary(event("tool.result", {"tool_name": "t", "result": 1, "late": True})) == "t (late) = 1"


# --- terminal ---------------------------------------------------------------------------------------------------------


@for_each("text", HOSTILE, ids=ascii)
def test_plain_spells_what_a_terminal_acts_on(text):
    assert plain(text).isprintable()
    assert "\\u{" in plain(text)


@pytest.mark.parametrize("text", ["", "plain", "Grüße, Ada!", "日本語", "😀", "a\\b", "naïve — “quoted”"])
def test_plain_leaves_what_is_printable(text):
    assert plain(text) == text


@given(st.text(st.characters()))
def test_plain_text_is_one_line_without_controls_or_formats(text):
    said = plain(text)
    assert len(said.splitlines()) <= 1
    assert not {unicodedata.category(char) for char in said} & {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    assert plain(said) == said


@for_each("text", HOSTILE, ids=ascii)
def test_every_printed_line_is_plain_whatever_the_events_hold(text):
    for kind in {each.type for each in RUN} | {"x.evil.thing"}:
        payload = next((each.payload for each in RUN if each.type == kind), {"a": 1})
        hostile = {key: spoil(value, text) for key, value in payload.items()} | {text: text}
        told = [event(kind, hostile)]
        for line in (*fold(TreeFold(), told).lines(), *transcript(told)):
            assert line.isprintable()
            assert len(line.splitlines()) <= 1


def spoil(value, text):
    """Return *value* with *text* in place of every string."""
    if isinstance(value, dict):
        return {key: spoil(item, text) for key, item in value.items()}
    if isinstance(value, list):
        return [spoil(item, text) for item in value]
    return text if isinstance(value, str) else value


def test_excerpt_spells_bytes_that_are_no_text():
    assert excerpt(b"a\xff\x1b") == "a\\xff\\u{1b}"
    assert len(excerpt(b"x" * 10_000)) <= 120
    assert short("abcdef", 4) == "abc…"


def test_events_of_the_oracle_come_back_in_order():
    book = Book()
    ledgers.start(book)
    assert [(each.seq, each.type) for each in events_of(book)] == [(0, "session.start")]
