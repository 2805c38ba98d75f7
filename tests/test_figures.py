"""Figures: what a ledger comes to in numbers follows from its lines, and takes the same space however long it is."""

import re
import tracemalloc

import ledgers
import pytest
from cases import for_each
from hypothesis import given
from hypothesis import strategies as st
from ledgers import Book
from prometheus_client.parser import text_string_to_metric_families
from test_folds import SEALED, events_of

from deedbook.contract import Event
from deedbook_inspect.observing.accounts import build_document
from deedbook_inspect.observing.exposition import format_figures
from deedbook_inspect.observing.figures import FiguresFold, Window
from deedbook_inspect.observing.prices import Prices
from deedbook_inspect.observing.tables import LIMIT, OTHER, Table, read_name
from deedbook_inspect.observing.times import parse_moment, parse_time

NIGHT = "2026-11-21T22:00:00.000Z"


def counted(*books, live=False, **settings):
    """Return the figures of some ledgers."""
    fold = FiguresFold(**settings)
    state = fold.start()
    for book in books:
        for event in events_of(book) if isinstance(book, Book) else book:
            fold.step(state, event)
        fold.close(state, live=live)
    return state


def story(*rows):
    """Return events: each row is a type, milliseconds, a parent's number or ``None``, a payload, maybe a principal."""
    return [
        Event(seq, kind, "runtime", who[0] if who else None, f"{seq}", None if parent is None else f"{parent}",
              f"2026-11-21T22:00:{at // 1000:02d}.{at % 1000:03d}Z", payload)
        for seq, (kind, at, parent, payload, *who) in enumerate(rows)
    ]  # fmt: skip


def only(rows):
    (row,) = rows
    return row


def call(outcome, /, **payload):
    """Return a session with one call that took 25 ms and ended in an event of type *outcome*."""
    return story(
        ("session.start", 0, None, {"charter": "c"}),
        ("tool.call", 100, 0, {"tool_name": "echo", "args": {}}, "agent:worker"),
        (outcome, 125, 1, {"tool_name": "echo", **payload}),
        ("session.end", 130, 0, {"ok": True}),
    )


@pytest.mark.parametrize(("end", "state"), [
    ({"ok": True}, "ok"), ({"ok": False, "reason": "x"}, "failed"), ({"message": "done"}, "ended"), ({}, "ended"),
])  # fmt: skip
def test_session_counts_as_its_end_says(end, state):
    figures = counted(story(("session.start", 0, None, {}), ("session.end", 1, 0, end)))
    assert build_document(figures)["sessions"] == {state: 1}
    assert f'deedbook_sessions{{state="{state}"}} 1.0' in format_figures(figures).splitlines()


# --- calls ------------------------------------------------------------------------------------------------------------


def test_call_takes_from_its_intent_to_its_outcome():
    told = only(build_document(counted(call("tool.result", result=1)))["abilities"])
    assert (told["ability"], told["kind"], told["calls"], told["outcomes"]) == ("echo", "tool", 1, {"ok": 1})
    assert told["latency_ms"] == {"count": 1, "sum": 25, "p50": 25, "p90": 25, "p99": 25, "max": 25}


@pytest.mark.parametrize("outcome", ["failed", "cancelled", "timed_out"])
def test_call_that_failed_has_a_time_and_a_code(outcome):
    told = build_document(counted(call("tool.error", code="TOOL_ERROR", outcome=outcome)))
    assert only(told["abilities"])["outcomes"] == {outcome: 1}
    assert only(told["abilities"])["latency_ms"]["max"] == 25
    assert told["errors"] == [{"kind": "tool", "ability": "echo", "code": "TOOL_ERROR", "count": 1}]


def test_call_whose_outcome_was_lost_took_nobody_knows_how_long():
    told = only(build_document(counted(call("tool.error", code="OUTCOME_UNKNOWN", outcome="unknown")))["abilities"])
    assert (told["outcomes"], told["latency_ms"]) == ({"unknown": 1}, None)


@pytest.mark.parametrize(("live", "outcome"), [(True, "open"), (False, "unknown")])
def test_call_without_outcome_is_open_while_somebody_writes_and_unknown_after(live, outcome):
    told = build_document(counted(call("tool.result")[:2], live=live))
    assert only(told["abilities"])["outcomes"] == {outcome: 1}
    assert told["sessions"] == {"open" if live else "interrupted": 1}


def test_call_is_not_timed_where_the_clock_was_set_back():
    told = story(("tool.call", 500, None, {"tool_name": "echo"}), ("tool.result", 100, 0, {"tool_name": "echo"}))
    row = only(build_document(counted(told))["abilities"])
    assert (row["outcomes"], row["latency_ms"]) == ({"ok": 1}, None)


def test_late_result_is_one():
    assert only(build_document(counted(call("tool.result", late=True)))["abilities"])["late"] == 1


def test_outcome_of_another_call_or_of_none_is_not_counted():
    stray = story(("session.start", 0, None, {}), ("tool.result", 5, 0, {"tool_name": "echo"}))
    assert build_document(counted(stray))["abilities"] == []
    twice = [*call("tool.result"), *story(("x", 0, None, {}))[:0], call("tool.result")[2]]
    assert only(build_document(counted(twice))["abilities"])["outcomes"] == {"ok": 1}


def test_calls_of_two_ledgers_with_the_same_spans_do_not_meet():
    told = build_document(counted(call("tool.result")[:2], call("tool.result")[2:]))
    assert only(told["abilities"])["outcomes"] == {"unknown": 1}


# --- models -----------------------------------------------------------------------------------------------------------

USED = {"input_tokens": 1000, "output_tokens": 10}


def asked(usage=None, end="llm.response", **more):
    answer = {"response": {"model": "m-2", "usage": usage or USED}} if end == "llm.response" else more
    return story(
        ("session.start", 0, None, {"charter": "c1"}),
        ("llm.request", 0, 0, {"ability": "model/a", "request": {"model": "m", "role": "lead"}}, "agent:lead"),
        (end, 40, 1, {"ability": "model/a", **answer}),
        ("session.end", 41, 0, {"ok": False}),
    )


def makers(charter):
    return {"model/a": "acme"} if charter == "c1" else {}


def test_model_is_told_by_provider_by_what_answered_and_by_role():
    told = only(build_document(counted(asked(), providers=makers))["models"])
    assert [told[name] for name in ("provider", "model", "role")] == ["acme", "m-2", "lead"]
    assert [told[name] for name in ("input_tokens", "output_tokens", "cached_input_tokens")] == [1000, 10, None]
    assert told["latency_ms"]["max"] == 40
    assert told["cost_usd"] == {"recorded": 0, "priced": 0, "unpriced_answers": 1}


def test_model_that_did_not_answer_is_the_one_that_was_asked_for():
    told = build_document(counted(asked(end="llm.error", code="PROVIDER_ERROR", outcome="failed"), providers=makers))
    assert (only(told["models"])["model"], only(told["models"])["outcomes"]) == ("m", {"failed": 1})
    assert told["errors"] == [{"kind": "model", "ability": "model/a", "code": "PROVIDER_ERROR", "count": 1}]


def test_provider_of_a_charter_that_is_not_kept_is_unknown():
    assert only(build_document(counted(asked()))["models"])["provider"] == "[unknown]"


PRICED = {"input_per_million": 2, "output_per_million": 8, "cached_input_per_million": 0.5}


@for_each("name", ["acme/m-2", "m-2"])
@for_each(
    ("usage", "cost"),
    [
        (USED, {"recorded": 0, "priced": 0.00208, "unpriced_answers": 0}),
        ({**USED, "cached_input_tokens": 400}, {"recorded": 0, "priced": 0.00148, "unpriced_answers": 0}),
        ({**USED, "cost_usd": 0.5}, {"recorded": 0.5, "priced": 0, "unpriced_answers": 0}),
        ({**USED, "cost_usd": 0}, {"recorded": 0, "priced": 0, "unpriced_answers": 0}),
        ({**USED, "cost_usd": 1e308}, {"recorded": 0, "priced": 0.00208, "unpriced_answers": 0}),
        ({**USED, "cost_usd": -0.5}, {"recorded": 0, "priced": 0.00208, "unpriced_answers": 0}),
        ({**USED, "output_tokens": 10**400}, {"recorded": 0, "priced": 0.002, "unpriced_answers": 0}),
    ],
)
def test_cost_is_what_was_recorded_and_else_what_prices_make_of_the_tokens(name, usage, cost):
    told = build_document(counted(asked(usage), providers=makers, prices=Prices({name: PRICED})))
    assert only(told["models"])["cost_usd"] == cost
    assert only(told["roles"])["cost_usd"] == cost["recorded"] + cost["priced"]


def test_answer_without_tokens_needs_no_price():
    told = build_document(counted(asked({"input_tokens": 0, "output_tokens": 0}), asked(USED), providers=makers))
    assert only(told["models"])["cost_usd"]["unpriced_answers"] == 1


def test_role_has_what_its_models_spent_and_what_it_asked_for():
    told = build_document(counted(asked(), call("tool.result")))
    lead, worker = told["roles"]
    assert (lead["role"], lead["model_calls"], lead["input_tokens"], lead["other_calls"]) == ("lead", 1, 1000, 0)
    assert (worker["role"], worker["model_calls"], worker["other_calls"]) == ("worker", 0, 1)


# --- decisions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("by", "who"),
    [
        ({"policy": "careful", "rule": "p.yaml:3", "place": "p.yaml:1"}, ("policy", "careful")),
        ({"hook": "deny-tools"}, ("hook", "deny-tools")),
        ({"skill": "greet"}, ("skill", "greet")),
        ({"scope": "mcp"}, ("scope", "mcp")),
        (None, ("door", "")),
        (SEALED, ("door", "")),
    ],
)
def test_denial_is_counted_by_who_decided(by, who):
    payload = {"kind": "tool", "name": "rm", "code": "GATE_DENIED", "reason": "no", **({"by": by} if by else {})}
    told = build_document(counted(story(("tool.denied", 0, None, payload, "agent:worker"))))
    row = only(told["denials"])
    assert ((row["by"], row["name"]), row["ability"], row["code"]) == (who, "rm", "GATE_DENIED")
    assert only(told["abilities"])["denied"] == only(told["roles"])["denied"] == 1
    assert only(told["abilities"])["calls"] == 0


def test_answers_of_hooks_and_policies_are_counted_for_each():
    fired = {"event": "PreToolUse", "asked": [{"hook": "a", "decision": "allow"}, {"hook": "b", "decision": "deny"}]}
    check = {"ability": "echo", "enforcement": "observe", "asked": [{"policy": "p", "decision": "ask"}]}
    told = build_document(counted(story(("hook.fired", 0, None, fired), ("policy.check", 0, None, check)) * 2))
    assert told["hooks"] == [
        {"hook": "a", "event": "PreToolUse", "decisions": {"allow": 2}},
        {"hook": "b", "event": "PreToolUse", "decisions": {"deny": 2}},
    ]
    assert told["policies"] == [{"policy": "p", "enforcement": "observe", "decisions": {"ask": 2}}]


def test_approvals_are_counted_by_what_became_of_them_and_waited_since_they_were_asked_for():
    told = build_document(counted(ledgers.approved()))["approvals"]
    assert [told[name] for name in ("requested", "granted", "refused", "expired", "withdrawn")] == [4, 1, 1, 1, 1]
    assert (told["wait_ms"]["count"], told["wait_ms"]["max"]) == (2, 7)


def test_approvals_of_the_workspace_are_answered_there_or_wait():
    told = story(
        ("approval.requested", 0, None, {"approval": "a", "requested": NIGHT}),
        ("approval.requested", 0, None, {"approval": "b", "requested": NIGHT}),
        ("approval.answered", 5000, 0, {"approval": "a", "answer": "deny"}),
    )
    waiting = build_document(counted(told))["approvals"]
    assert waiting.pop("wait_ms")["max"] == 5000
    assert waiting == {"requested": 2, "refused": 1, "waiting": 1}


# --- windows ----------------------------------------------------------------------------------------------------------


def test_call_belongs_to_the_window_in_which_it_began():
    start = parse_time(NIGHT)
    before = counted(call("tool.result"), window=Window(None, start + 110))
    after = counted(call("tool.result"), window=Window(start + 110, None))
    assert only(build_document(before)["abilities"])["latency_ms"]["max"] == 25
    assert (before.events, after.events, build_document(after)["abilities"]) == (2, 2, [])


@given(st.integers(0, 140))
def test_two_windows_that_meet_count_everything_once(cut):
    edge = parse_time(NIGHT) + cut
    parts = [counted(call("tool.result"), window=each) for each in (Window(None, edge), Window(edge, None))]
    assert sum(part.events for part in parts) == 4
    assert sum(part.sessions["ok"] for part in parts) == 1
    assert sum(len(build_document(part)["abilities"]) for part in parts) == 1


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 999_910), ("30m", 998_200), ("2h", 992_800), ("1d", 913_600), ("1970-01-02", 86_400)],
)
def test_moment_is_a_time_or_how_long_ago(text, seconds):
    assert parse_moment(text, 1_000_000.0) == seconds * 1000


@pytest.mark.parametrize("text", ["", "yesterday", "0d", "-3h", "2026-13-01", "24"])
def test_moment_that_is_none_is_refused(text):
    with pytest.raises(ValueError, match="no time"):
        parse_moment(text, 0.0)


@pytest.mark.parametrize(
    "ts",
    ["2026-11-21T22:00:00.000Z", "2026-11-21T22:00:00Z", "2026-11-21T23:00:00+01:00", "2026-11-21T22:00:00.000000Z"],
)
def test_times_of_older_forms_are_read(ts):
    assert parse_time(ts) == parse_time(NIGHT) == 1_795_298_400_000


# --- size -------------------------------------------------------------------------------------------------------------


def test_table_tells_so_many_keys_apart_and_no_more():
    table = Table(list, limit=2)
    for name in "abcab":
        table.get(name).append(name)
    assert list(table.rows()) == [(("[other]",), ["c"]), (("a",), ["a", "a"]), (("b",), ["b", "b"])]


def test_figures_of_a_hostile_ledger_stay_small():
    """Every name another one, no call ever answered, every request unanswered."""
    fold = FiguresFold()
    state = fold.start()
    for number in range(70_000):
        at = {"tool_name": f"t{number}"} if number % 2 else {"approval": f"a{number}", "requested": NIGHT}
        kind = "tool.call" if number % 2 else "approval.requested"
        fold.step(state, Event(number, kind, "user", None, f"{number}", None, NIGHT, at))
        fold.step(state, Event(number, f"x.y{number}", "user", None, f"e{number}", None, NIGHT, {}))
    assert len(state.open) <= 65_536
    assert len(list(state.calls.rows())) == len(list(state.types.rows())) == LIMIT + 1
    told = build_document(fold.close(state))
    assert next(row["calls"] for row in told["abilities"] if row["ability"] == OTHER) == 34_000
    assert sum(row["calls"] for row in told["abilities"]) == 35_000


def test_name_is_cut_and_a_sealed_one_is_said_to_be_sealed():
    assert (read_name("a" * 300), read_name(SEALED), read_name(None)) == ("a" * 200, "[sealed]", "[none]")


@for_each("member", ["tool_name", "args", "by", "asked", "name", "code", "outcome", "charter"])
def test_sealed_or_senseless_members_are_counted_all_the_same(member):
    for value in (SEALED, None, 7, [], "\ud800"):
        rows = [
            (kind, 0, None, {member: value}) for kind in ("tool.call", "tool.denied", "hook.fired", "session.start")
        ]
        state = counted(story(*rows))
        assert state.events == 4
        assert format_figures(state).encode()


# --- Prometheus -------------------------------------------------------------------------------------------------------

HOSTILE = st.text(max_size=30) | st.sampled_from(['a"b', "a\\", "a\nb", "a\r\nb", "}", '{x="y"} 1', "\u2028", "\x00"])


def parsed(state):
    """Read the exposition with Prometheus' own parser; return every sample by its name and labels."""
    text = format_figures(state)
    text.encode()
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = (sample.name, *sorted(sample.labels.items()))
            assert key not in found
            found[key] = sample.value
    return found


def test_exposition_says_what_json_says():
    state = counted(ledgers.run(), ledgers.approved(), call("tool.error", code="X", outcome="failed"), providers=makers)
    samples, told = parsed(state), build_document(state)
    for row in told["abilities"]:
        labels = (("ability", row["ability"]), ("kind", row["kind"]))
        for outcome, count in row["outcomes"].items():
            assert samples["deedbook_ability_calls_total", *labels, ("outcome", outcome)] == count
        if row["latency_ms"]:
            assert samples["deedbook_ability_call_duration_seconds_count", *labels] == row["latency_ms"]["count"]
            assert samples["deedbook_ability_call_duration_seconds_sum", *labels] == row["latency_ms"]["sum"] / 1000
    assert sum(value for key, value in samples.items() if key[0] == "deedbook_events_total") == told["events"]
    assert samples["deedbook_approvals_total", ("outcome", "granted")] == told["approvals"]["granted"]
    assert samples["deedbook_ability_errors_total", ("ability", "echo"), ("code", "X"), ("kind", "tool")] == 1


def test_exposition_has_one_help_and_one_type_for_each_family_and_seconds_as_buckets():
    lines = format_figures(counted(call("tool.result"))).splitlines()
    for word in ("HELP", "TYPE"):
        names = [line.split()[2] for line in lines if line.startswith(f"# {word} ")]
        assert len(names) == len(set(names))
    samples = [line.partition("{")[0].split()[0] for line in lines if not line.startswith("#")]
    assert all(re.fullmatch(r"deedbook_[a-z_]+", name) for name in samples)
    (bucket,) = (line for line in lines if 'ability="echo"' in line and 'le="0.025"' in line)
    assert bucket.endswith(" 1.0")
    assert any('le="+Inf"' in line for line in lines)


@given(HOSTILE, HOSTILE)
def test_names_of_any_kind_come_through_as_labels(name, code):
    payload = {"kind": "tool", "name": name, "code": code, "reason": ""}
    samples = parsed(counted(story(("tool.denied", 0, None, payload))))
    (key,) = (key for key in samples if key[0] == "deedbook_denials_total")
    told = dict(key[1:])
    assert (told["ability"], told["code"]) == tuple(re.sub("[\ud800-\udfff\r]", "?", each) for each in (name, code))


def test_what_may_become_less_is_no_counter():
    samples = parsed(counted(call("tool.result")[:2], live=True))
    assert samples["deedbook_ability_calls_open", ("ability", "echo"), ("kind", "tool")] == 1
    assert samples["deedbook_sessions", ("state", "open")] == 1
    assert not [key for key in samples if key[0] == "deedbook_ability_calls_total"]


def test_ten_times_the_calls_take_no_more_room():
    def peak(calls):
        fold = FiguresFold()
        state = fold.start()
        tracemalloc.start()
        for number in range(calls):
            fold.step(state, Event(0, "tool.call", "user", None, f"{number}", None, NIGHT, {"tool_name": "echo"}))
            fold.step(state, Event(0, "tool.result", "tool", None, "", f"{number}", NIGHT, {"tool_name": "echo"}))
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert build_document(fold.close(state))["abilities"][0]["outcomes"] == {"ok": calls}
        return most

    assert peak(5000) < peak(500) + 2000
