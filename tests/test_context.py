"""RunContext: its state machine, and one truth for its writer and its readers."""

import threading
import time

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deedbook.contract import Event, Failed
from deedbook.format.context import ABSENT, LIVE, MOVES, ContextFold, LogEntry, Recorder, RunContext, advance
from deedbook.format.errors import Err, LedgerError, Ok
from deedbook.format.families import CATALOGUE
from deedbook.format.schema import Schemas, data_folder

SCHEMAS = Schemas.load(data_folder("schemas"))
STRAIGHT = ["clarify", "scope", "plan", "execute", "verify", "complete"]
ENDS = {"fail": "FAILED", "halt": "HALTED", "need_human": "NEEDS_HUMAN"}
# The machine once more, in words of its own: verb, where it may be used, where it leads.
MACHINE = {
    "create": ({ABSENT, "COMPLETED", *ENDS.values()}, "CREATED"),
    "clarify": ({"CREATED"}, "CLARIFIED"),
    "scope": ({"CLARIFIED"}, "SCOPED"),
    "plan": ({"SCOPED"}, "PLANNED"),
    "execute": ({"PLANNED", "VERIFYING"}, "EXECUTING"),
    "verify": ({"EXECUTING"}, "VERIFYING"),
    "complete": ({"VERIFYING"}, "COMPLETED"),
    **{
        verb: ({"CREATED", "CLARIFIED", "SCOPED", "PLANNED", "EXECUTING", "VERIFYING"}, state)
        for verb, state in ENDS.items()
    },
}
VERBS = [*MACHINE, "note"]

leaves = st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(-1e6, 1e6) | st.text(max_size=8)


def objects_of(members):
    return st.dictionaries(st.text(max_size=4).filter(lambda key: key != "$sealed"), members, max_size=3)


values = st.recursive(leaves, lambda deeper: st.lists(deeper, max_size=3) | objects_of(deeper), max_leaves=6)
objects = objects_of(values)


class Book:
    """A recorder over a list of events."""

    def __init__(self):
        self.events = []
        self.recorder = Recorder(self.append)

    def append(self, event_type, payload):
        self.events.append((event_type, payload))

    def use(self, verb, thing=None):
        """Use one verb of the recorder, with an artifact where it takes one."""
        thing = {"n": 1} if thing is None else thing
        told = {"create": ("a task", "test"), "execute": (), "note": ("loop.turn", thing)}
        told |= dict.fromkeys(ENDS, ("because",))
        return getattr(self.recorder, verb)(*told.get(verb, (thing,)))

    def reach(self, state):
        """Take the straight way to *state*."""
        for verb in ["create", *STRAIGHT] if state != ABSENT else []:
            if self.recorder.state == state:
                return self
            if state in ENDS.values():
                self.use("create")
                self.use(next(verb for verb, end in ENDS.items() if end == state))
                return self
            self.use(verb)
        return self

    def fold(self):
        fold = ContextFold()
        state = fold.start()
        for event in numbered(self.events):
            state = fold.step(state, event)
        return state


def numbered(recorded):
    for seq, (event_type, payload) in enumerate(recorded):
        yield Event(seq, event_type, "runtime", None, f"{seq + 1:016x}", None, "2026-01-01T00:00:00.000Z", payload)


@pytest.fixture
def book():
    return Book()


# --- the machine ------------------------------------------------------------------------------------------------------


def test_straight_way_passes_every_state(book):
    book.use("create")
    states = []
    for verb in STRAIGHT:
        book.use(verb)
        states.append(book.recorder.state)
    assert states == ["CLARIFIED", "SCOPED", "PLANNED", "EXECUTING", "VERIFYING", "COMPLETED"]


@pytest.mark.parametrize("state", [ABSENT, *sorted(LIVE), "COMPLETED", *ENDS.values()])
@pytest.mark.parametrize("verb", MACHINE)
def test_every_move_is_made_or_refused_as_the_machine_says(book, state, verb):
    book.reach(state)
    before, recorded = book.recorder.context, list(book.events)
    since, to = MACHINE[verb]
    if state in since:
        book.use(verb)
        assert book.recorder.state == to
        assert len(book.events) == len(recorded) + 1
        return
    with pytest.raises(Failed, match="not possible") as refused:
        book.use(verb)
    assert refused.value.code == "SCHEMA_VIOLATION"
    assert (book.recorder.context, book.events) == (before, recorded)


@given(st.lists(st.tuples(st.sampled_from(VERBS), objects), max_size=25))
def test_fold_of_what_was_recorded_is_what_the_recorder_holds(steps):
    book, state = Book(), ABSENT
    for verb, thing in steps:
        since, to = MACHINE.get(verb, ({*LIVE, "COMPLETED", *ENDS.values()}, state))
        legal, recorded = state in since, len(book.events)
        if legal:
            assert book.use(verb, thing) is None
            state = to
        else:
            with pytest.raises(Failed):
                book.use(verb, thing)
        assert len(book.events) == recorded + legal
        assert book.recorder.state == state
    assert book.fold() == book.recorder.context
    for event_type, payload in book.events:
        assert SCHEMAS.validator(CATALOGUE[event_type]).violations(payload) == ()


def test_artifacts_stand_under_their_names(book):
    book.use("create")
    for verb in STRAIGHT:
        book.use(verb, {"from": verb})
    context = book.recorder.context
    kept = (context.clarification, context.scope, context.plan, context.report, context.verification)
    assert [each["from"] for each in kept] == ["clarify", "scope", "plan", "verify", "complete"]
    assert (context.task, context.source, context.attempts, context.reason) == ("a task", "test", 1, None)


def test_rework_counts_attempts_and_keeps_the_latest_report(book):
    book.reach("EXECUTING")
    for attempt in (1, 2, 3):
        book.use("verify", {"attempt": attempt})
        book.use("execute")
    assert book.recorder.context.attempts == 4
    assert book.recorder.context.report == {"attempt": 3}
    assert [payload["attempt"] for name, payload in book.events if name == "context.executing"] == [1, 2, 3, 4]


@pytest.mark.parametrize("verb", ENDS)
def test_end_says_why(book, verb):
    book.reach("EXECUTING").use(verb)
    assert book.recorder.context.reason == "because"


def test_notes_move_nothing_and_stand_in_order_even_after_the_end(book):
    book.reach("SCOPED").use("note", {"n": 1})
    book.use("halt")
    book.use("note", {"n": 2})
    assert book.recorder.state == "HALTED"
    assert book.recorder.context.log == (LogEntry("loop.turn", {"n": 1}), LogEntry("loop.turn", {"n": 2}))


def test_new_run_begins_with_nothing_of_the_one_before(book):
    book.reach("COMPLETED").use("note")
    book.use("create")
    assert book.recorder.context == RunContext(state="CREATED", task="a task", source="test")
    assert book.fold() == book.recorder.context


def test_every_move_has_an_event_type_of_the_catalogue():
    assert {*MOVES, "context.created", "context.noted"} == {name for name in CATALOGUE if name.startswith("context.")}


# --- the recorder -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "thing",
    [{"n": float("nan")}, {"n": 2**53}, {1: "n"}, {"n": {1, 2}}, {"$sealed": "0" * 64, "size": 1}, {"n": "\ud800"}],
)
def test_what_cannot_be_recorded_is_refused_and_changes_nothing(book, thing):
    book.reach("SCOPED")
    recorded = list(book.events)
    with pytest.raises(Failed) as refused:
        book.use("plan", thing)
    assert refused.value.code == "INTAKE_REFUSED"
    assert (book.recorder.state, book.recorder.context.plan, book.events) == ("SCOPED", None, recorded)


def test_what_the_ledger_does_not_take_has_not_happened(book):
    book.reach("SCOPED")
    recorder = Recorder(full_disk, book.recorder.context)
    with pytest.raises(OSError, match="No space"):
        recorder.plan({"steps": []})
    assert recorder.state == "SCOPED"
    assert recorder.context == book.fold()


def full_disk(_event_type, _payload):
    raise OSError(28, "No space left on device")


def test_artifacts_changed_afterwards_do_not_change_the_record(book):
    plan = {"steps": [{"id": "s1"}]}
    book.reach("SCOPED").use("plan", plan)
    plan["steps"].clear()
    book.recorder.context.plan["steps"].append("another")
    assert book.recorder.context.plan == book.fold().plan == {"steps": [{"id": "s1"}]}


def test_payload_that_the_ledger_changes_does_not_change_the_context():
    recorder = Recorder(lambda _event_type, payload: payload.clear())
    recorder.create("a task", "test")
    assert recorder.context.task == "a task"


def test_recorder_goes_on_from_a_folded_context(book):
    book.reach("VERIFYING")
    later = Recorder(book.append, book.fold())
    later.execute()
    assert later.context == book.fold()
    assert (later.state, later.context.attempts) == ("EXECUTING", 2)


def test_recorder_is_absent_before_it_begins(book):
    assert (book.recorder.state, book.recorder.context, book.fold()) == (ABSENT, None, None)


def test_one_of_many_threads_makes_the_move(book):
    book.reach("PLANNED")
    gate, refused = threading.Barrier(8), []

    def append(event_type, payload):
        time.sleep(0.005)  # a disk takes its time, and whoever checks meanwhile must wait
        book.append(event_type, payload)

    recorder = Recorder(append, book.fold())

    def execute():
        gate.wait()
        try:
            recorder.execute()
        except Failed as failure:
            refused.append(failure.code)

    threads = [threading.Thread(target=execute) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert refused == ["SCHEMA_VIOLATION"] * 7
    assert book.fold() == recorder.context


# --- the fold ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "event_type", "payload"),
    [
        (ABSENT, "context.planned", {"plan": {}}),
        (ABSENT, "context.noted", {"event_type": "x", "data": {}}),
        ("CREATED", "context.created", {"task": "t", "source": "s"}),
        ("CREATED", "context.completed", {"verification": {}}),
        ("CREATED", "context.clarified", {}),
        ("CREATED", "context.noted", {"data": {}}),
        ("CREATED", "context.vanished", {"reason": "x"}),
        ("COMPLETED", "context.failed", {"reason": "x"}),
        ("COMPLETED", "context.created", {"task": "t"}),
        ("PLANNED", "context.executing", {"attempt": 2}),
        ("VERIFYING", "context.executing", {"attempt": 1}),
    ],
)
def test_fold_refuses_a_ledger_with_a_move_that_nobody_could_make(book, state, event_type, payload):
    context = book.reach(state).fold()
    event = Event(7, event_type, "runtime", None, "1" * 16, None, "2026-01-01T00:00:00.000Z", payload)
    assert isinstance(advance(context, event_type, payload), Err)
    with pytest.raises(LedgerError, match="event 7") as unsound:
        ContextFold().step(context, event)
    assert unsound.value.error.code == "LEDGER_UNSOUND"


def test_fold_leaves_other_events_alone(book):
    context = book.reach("PLANNED").fold()
    for name in CATALOGUE:
        if not name.startswith("context."):
            event = Event(1, name, "runtime", None, "1" * 16, None, "2026-01-01T00:00:00.000Z", {})
            assert ContextFold().step(context, event) is context


def test_fold_takes_sealed_values_as_they_are(book):
    sealed = {"$sealed": "0" * 64, "size": 9}
    context = book.reach("SCOPED").fold()
    planned = advance(context, "context.planned", {"plan": sealed})
    assert planned == Ok(attrs.evolve(context, state="PLANNED", plan=sealed))
    executing = advance(planned.value, "context.executing", {"attempt": sealed})
    assert executing.value.attempts == 1
