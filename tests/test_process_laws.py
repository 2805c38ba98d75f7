"""Laws of the hierarchy: whatever processes do side by side, the fold gives it back, and one changed id is found."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from deedbook.contract import Event
from deedbook.format.folds import fold
from deedbook.maintenance.processes import ProcessesFold
from deedbook_audit.verification.hierarchy import Hierarchy

HASH = "0123456789abcdef" * 4


def name(kind, number):
    return f"{kind}{number:031x}"


@st.composite
def stories(draw):
    """Draw what up to four processes do side by side, as events in order: each boots, has sessions, may shut down."""
    written, left, spans = [], {}, iter(range(1, 10_000))
    for process in range(draw(st.integers(1, 4))):
        sessions = draw(st.lists(st.integers(0, 2), max_size=4))  # each in one of the process's runs
        left[process] = ["boot", *(("session", run) for run in sessions), *draw(st.sampled_from([[], ["shutdown"]]))]
    boots, made = {}, 0
    while left:
        process = draw(st.sampled_from(sorted(left)))
        step = left[process].pop(0)
        left = {each: steps for each, steps in left.items() if steps}
        span, own = next(spans), name("b", process)
        if step == "boot":
            boots[process] = span
            more = {"kind": "warm", "pid": process, "kernel": "k", "charter": HASH}
            written.append(("system.boot", span, 0, {"process_id": own, **more}))
        elif step == "shutdown":
            written.append(("system.shutdown", span, boots[process], {"process_id": own, "reason": "closed"}))
        else:
            made += 1
            ids = {
                "run_id": name("4", process * 8 + step[1]),
                "session_id": name("5", made),
                "trace_id": name("7", made),
            }
            written.append(("system.run", span, boots[process], {"process_id": own, **ids}))
            head = {"session_id": ids["session_id"], "events": 1, "head": HASH, "state": "open"}
            written.append(("ledger.session", next(spans), span, head))
    return written


def faults(written):
    hierarchy = Hierarchy(workspace=True)
    return [
        why
        for kind, span, parent, payload in written
        for why in hierarchy.check(kind, b"%016x" % span, b"%016x" % parent, payload)
    ]


def folded(written):
    ts = "2026-11-21T22:00:00.000Z"
    return fold(
        ProcessesFold(),
        (
            Event(seq, kind, "runtime", None, f"{span:016x}", f"{parent:016x}", ts, payload)
            for seq, (kind, span, parent, payload) in enumerate(written)
        ),
    )


@given(stories())
def test_honest_processes_break_no_rule_however_they_interleave(written):
    assert faults(written) == []


@given(stories())
def test_fold_gives_back_who_began_which_session(written):
    found = folded(written)
    runs = [payload for kind, *_, payload in written if kind == "system.run"]
    told = [
        (process.id, run, session)
        for process in found.processes.values()
        for run, sessions in process.runs.items()
        for session in sessions
    ]
    assert Counter(told) == Counter((each["process_id"], each["run_id"], each["session_id"]) for each in runs)
    assert {each.id: each.trace for each in found.sessions.values()} == {
        each["session_id"]: each["trace_id"] for each in runs
    }
    down = {payload["process_id"] for kind, *_, payload in written if kind == "system.shutdown"}
    assert {each.id for each in found.processes.values() if each.state == "shut down"} == down


@given(stories(), st.data())
def test_id_that_is_changed_to_one_that_is_taken_is_found(written, data):
    """Whose a session is cannot be said otherwise, unless everything that says so is changed with it."""
    runs = [number for number, (kind, *_) in enumerate(written) if kind == "system.run"]
    places = [
        (number, member, other)
        for number in runs
        for member in ("process_id", "session_id", "trace_id")
        for _, _, _, payload in written
        if (other := payload.get(member, written[number][3][member])) != written[number][3][member]
    ]
    if not places:
        return
    number, member, other = data.draw(st.sampled_from(places))
    kind, span, parent, payload = written[number]
    changed = [*written]
    changed[number] = (kind, span, parent, {**payload, member: other})
    assert faults(changed)


@given(stories(), st.data())
def test_event_that_stands_twice_is_found(written, data):
    """A boot, a run or a shutdown under a span of its own, said again at the end."""
    number = data.draw(st.sampled_from([n for n, (kind, *_) in enumerate(written) if kind != "ledger.session"]))
    kind, _, parent, payload = written[number]
    assert faults([*written, (kind, 99_999, parent, payload)])
