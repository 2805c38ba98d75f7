"""RunContext: its state machine, and one truth for its writer and its readers."""

import threading
import time
from copy import deepcopy
from types import SimpleNamespace

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deedbook.contract import Event, Failed
from deedbook.format.context import (
    ABSENT,
    LIVE,
    MOVES,
    ContextFold,
    ExecutionLog,
    LogEntry,
    Recorder,
    RunContext,
    advance,
)
from deedbook.format.errors import Err, LedgerError, Ok
from deedbook.format.families import CATALOGUE, schema_of
from deedbook.format.folds import fold
from deedbook.format.schema import Schemas, data_folder

SCHEMAS = Schemas.load(data_folder("schemas"))
STRAIGHT = ["clarify", "set_scope", "plan", "begin_execution", "verify", "complete"]
ENDS = {"fail": "FAILED", "halt": "HALTED", "need_human": "NEEDS_HUMAN"}
WORKS = {"CREATED", "CLARIFIED", "SCOPED", "PLANNED", "EXECUTING", "VERIFYING"}
BEFORE = "the state before NEEDS_HUMAN"
# The machine once more, independent of the code: the verb, where it may be used, where it leads.
MACHINE = {
    "create": ({ABSENT}, "CREATED"),
    "clarify": ({"CREATED"}, "CLARIFIED"),
    "set_scope": ({"CLARIFIED"}, "SCOPED"),
    "plan": ({"CLARIFIED", "SCOPED"}, "PLANNED"),
    "begin_execution": ({"PLANNED", "VERIFYING"}, "EXECUTING"),
    "verify": ({"EXECUTING"}, "VERIFYING"),
    "complete": ({"VERIFYING"}, "COMPLETED"),
    "fail": (WORKS | {"NEEDS_HUMAN"}, "FAILED"),
    "halt": (WORKS | {"NEEDS_HUMAN"}, "HALTED"),
    "need_human": (WORKS, "NEEDS_HUMAN"),
    "resume": ({"NEEDS_HUMAN"}, BEFORE),
}
VERBS = [*MACHINE, "note"]
RUN = "a" * 16
TS = "2026-01-01T00:00:00.000Z"

leaves = st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(-1e6, 1e6) | st.text(max_size=8)


def objects_of(members):
    return st.dictionaries(st.text(max_size=4).filter(lambda key: key != "$sealed"), members, max_size=3)


values = st.recursive(leaves, lambda deeper: st.lists(deeper, max_size=3) | objects_of(deeper), max_leaves=6)
objects = objects_of(values)


class Book:
    """A list of events, and the recorders that write to it: one for each run."""

    def __init__(self):
        self.events = []
        self.recorder = self.open(RUN)

    def open(self, run, parent=None, append=None):
        """Return a new recorder for *run*."""
        return Recorder(append or (lambda *event: self.append(run, *event)), run=run, parent=parent)

    def append(self, run, event_type, payload):
        span = f"{len(self.events) + 1:016x}"
        self.events.append(event(len(self.events), event_type, deepcopy(payload), run=run, span=span))
        return span

    def use(self, verb, thing=None, recorder=None):
        """Use one verb of the recorder, with an artifact where it takes one."""
        thing = {"n": 1} if thing is None else thing
        told = {"create": ("a task", "test"), "begin_execution": (), "resume": (), "note": ("loop.turn", thing)}
        told |= dict.fromkeys(ENDS, ("because",))
        return getattr(recorder or self.recorder, verb)(*told.get(verb, (thing,)))

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

    def types(self):
        return [each.type for each in self.events]

    def contexts(self):
        return fold(ContextFold(), self.events)

    def fold(self):
        return self.contexts().get(RUN)


def event(seq, event_type, payload, *, run=RUN, span="1" * 16):
    return Event(seq, event_type, "runtime", None, span, run, TS, payload)


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
        assert book.recorder.state == ("CREATED" if to == BEFORE else to)
        assert len(book.events) == len(recorded) + 1 + (verb == "verify")
        return
    with pytest.raises(Failed, match="not possible") as refused:
        book.use(verb)
    assert refused.value.code == "SCHEMA_VIOLATION"
    assert (book.recorder.context, book.events) == (before, recorded)


def test_refusal_names_the_state_and_the_legal_moves(book):
    with pytest.raises(Failed) as refused:
        book.reach("PLANNED").use("complete")
    expected = (
        "context.completed is not possible: the context is PLANNED; expected VERIFYING. "
        "Legal from here: context.executing, context.failed, context.halted, context.needs_human"
    )
    assert str(refused.value) == expected
    book.use("need_human")
    with pytest.raises(Failed, match=r"Legal from here: context\.failed, context\.halted, context\.resumed$"):
        book.use("verify")


@given(
    parents=st.lists(st.integers(-1, 3), min_size=1, max_size=4),
    steps=st.lists(st.tuples(st.integers(0, 3), st.sampled_from(VERBS), objects), max_size=40),
)
def test_fold_of_a_record_is_the_state_of_its_recorders(parents, steps):
    """Any history of several runs, also nested ones, gives the same contexts to the writers and to a reader."""
    book, runs = Book(), []
    for at, above in enumerate(parents):
        parent = f"{above:016x}" if above < at and above >= 0 else None
        runs.append(SimpleNamespace(recorder=book.open(f"{at:016x}", parent), parent=parent, state=ABSENT, left=None))
    for at, verb, thing in steps:
        _use_or_be_refused(book, runs[at % len(runs)], verb, thing)
    contexts = book.contexts()
    assert dict(contexts) == {
        each.recorder.context.run: each.recorder.context for each in runs if each.recorder.context
    }
    assert [each.parent for each in contexts.values()] == [_of(runs, run).parent for run in contexts]
    for each in book.events:
        if each.type.startswith("context."):
            assert SCHEMAS.validator(schema_of(each.type, each.payload)).violations(each.payload) == ()


def _use_or_be_refused(book, run, verb, thing):
    since, to = MACHINE.get(verb, ({*LIVE, "COMPLETED", *ENDS.values()}, run.state))
    legal, recorded = run.state in since, len(book.events)
    if legal:
        assert book.use(verb, thing, run.recorder) is None
        run.state, run.left = run.left if to == BEFORE else to, run.state if to == "NEEDS_HUMAN" else run.left
    else:
        with pytest.raises(Failed):
            book.use(verb, thing, run.recorder)
    assert len(book.events) == recorded + legal + (legal and verb == "verify")
    assert run.recorder.state == run.state


def _of(runs, name):
    return next(each for each in runs if each.recorder.context and each.recorder.context.run == name)


def test_artifacts_stand_under_their_names(book):
    book.use("create")
    for verb in STRAIGHT:
        book.use(verb, {"from": verb})
    context = book.recorder.context
    kept = (context.clarification, context.scope, context.plan, context.report, context.verification)
    assert [each["from"] for each in kept] == ["clarify", "set_scope", "plan", "verify", "complete"]
    assert (context.task, context.source, context.attempts, context.reason) == ("a task", "test", 1, None)


def test_plan_may_follow_the_clarification(book):
    book.reach("CLARIFIED").use("plan", {"steps": []})
    assert (book.recorder.state, book.recorder.context.scope) == ("PLANNED", None)
    assert book.fold() == book.recorder.context


def test_rework_counts_attempts_and_keeps_the_latest_report(book):
    book.reach("EXECUTING")
    for attempt in (1, 2, 3):
        book.use("verify", {"attempt": attempt})
        book.use("begin_execution")
    assert book.recorder.context.attempts == 4
    assert book.recorder.context.report == {"attempt": 3}
    told = [each.payload["attempt"] for each in book.events if each.type == "context.executing"]
    assert told == [1, 2, 3, 4]


def test_report_stands_in_one_event_whose_span_the_transition_names(book):
    book.reach("EXECUTING").use("verify", {"output": "the work"})
    report, verifying = book.events[-2:]
    assert (report.type, report.payload) == ("worker.report", {"output": "the work"})
    assert (verifying.type, verifying.payload) == ("context.verifying", {"report": report.span, "schema_version": "v2"})
    assert book.recorder.read().report == book.fold().report == {"output": "the work"}


@pytest.mark.parametrize("verb", ENDS)
def test_end_has_its_reason(book, verb):
    book.reach("EXECUTING").use(verb)
    assert book.recorder.context.reason == "because"


@pytest.mark.parametrize("state", sorted(WORKS))
def test_run_that_waits_for_a_person_resumes_where_it_was(book, state):
    book.reach(state)
    before = book.recorder.context
    book.use("need_human")
    assert (book.recorder.context.waiting, book.recorder.is_live) == (state, False)
    book.use("resume")
    assert book.recorder.context == book.fold() == before
    assert book.events[-1].payload == {"state": state}


@pytest.mark.parametrize("verb", ["fail", "halt"])
def test_run_that_waits_for_a_person_may_end(book, verb):
    book.reach("EXECUTING").use("need_human")
    book.use(verb)
    assert (book.recorder.state, book.recorder.context.waiting) == (ENDS[verb], None)
    assert book.fold() == book.recorder.context


def test_notes_move_nothing_and_stand_in_order_even_after_the_end(book):
    book.reach("SCOPED").use("note", {"n": 1})
    book.use("halt")
    book.use("note", {"n": 2})
    assert book.recorder.state == "HALTED"
    assert list(book.recorder.context.log) == [LogEntry("loop.turn", {"n": 1}), LogEntry("loop.turn", {"n": 2})]


def test_reply_is_the_output_of_a_completed_run_and_the_reason_of_another(book):
    book.reach("EXECUTING").use("verify", {"output": "the work"})
    assert book.recorder.context.reply == ""
    book.use("complete")
    assert book.recorder.context.reply == "the work"
    other = Book()
    other.reach("EXECUTING").use("verify", {"output": "the work"})
    other.use("halt")
    assert other.recorder.context.reply == "because"


def test_every_move_has_an_event_type_of_the_catalogue():
    others = {"context.created", "context.noted", "context.resumed"}
    assert {*MOVES, *others} == {name for name in CATALOGUE if name.startswith("context.")}


# --- the execution log ------------------------------------------------------------------------------------------------


def test_logs_that_grew_from_one_log_do_not_see_each_others_entries():
    first = ExecutionLog().add(LogEntry("a", {}))
    left, right = first.add(LogEntry("b", {})), first.add(LogEntry("c", {}))
    told = [[each.event_type for each in log] for log in (first, left, right)]
    assert told == [["a"], ["a", "b"], ["a", "c"]]
    assert (left[-1], left[0], len(left)) == (LogEntry("b", {}), LogEntry("a", {}), 2)
    assert left != right
    assert left[:1] == first[:]


@pytest.mark.parametrize("index", [1, -2])
def test_entry_that_a_log_does_not_have_is_an_index_error(index):
    longer = ExecutionLog().add(LogEntry("a", {}))
    longer.add(LogEntry("b", {}))
    with pytest.raises(IndexError, match="a log with 1"):
        longer[index]


# --- runs beside and inside each other --------------------------------------------------------------------------------


def test_each_run_has_a_context_of_its_own(book):
    book.reach("SCOPED")
    inner = book.open("b" * 16, RUN)
    inner.create("an inner task", "test")
    inner.fail("inner reason")
    book.use("plan", {"steps": []})
    contexts = book.contexts()
    assert list(contexts) == [RUN, "b" * 16]
    assert (contexts[RUN].state, contexts[RUN].parent) == ("PLANNED", None)
    assert (contexts["b" * 16].state, contexts["b" * 16].parent) == ("FAILED", RUN)
    assert contexts.latest == contexts[RUN]
    assert contexts.latest_state == "PLANNED"


def test_run_has_one_context(book):
    book.reach("COMPLETED")
    with pytest.raises(Failed, match="a run has one context"):
        book.use("create")


def test_move_of_a_run_that_has_no_context_is_unsound(book):
    book.reach("PLANNED")
    book.events.append(event(9, "context.executing", {"attempt": 1}, run="c" * 16))
    with pytest.raises(LedgerError, match="there is no context yet"):
        book.contexts()


# --- the recorder -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "thing",
    [{"n": float("nan")}, {"n": 2**53}, {1: "n"}, {"n": {1, 2}}, {"$sealed": "0" * 64, "size": 1}, {"n": "\ud800"}],
)
@pytest.mark.parametrize("verb", ["plan", "verify"])
def test_what_cannot_be_recorded_is_refused_and_changes_nothing(book, thing, verb):
    book.reach({"plan": "SCOPED", "verify": "EXECUTING"}[verb])
    before, recorded = book.recorder.context, list(book.events)
    with pytest.raises(Failed) as refused:
        book.use(verb, thing)
    assert refused.value.code == "INTAKE_REFUSED"
    assert (book.recorder.context, book.events) == (before, recorded)


def test_what_the_ledger_does_not_take_has_not_happened(book):
    left = [5]
    recorder = book.open(RUN, append=lambda *told: full_disk(left, book, *told))
    for verb in ("create", *STRAIGHT[:4]):
        book.use(verb, recorder=recorder)
    with pytest.raises(OSError, match="No space"):
        recorder.verify({"output": "x"})
    assert recorder.state == "EXECUTING"
    assert recorder.context == book.fold()


def full_disk(left, book, event_type, payload):
    """Append *left* events, then fail."""
    if not left[0]:
        raise OSError(28, "No space left on device")
    left[0] -= 1
    return book.append(RUN, event_type, payload)


def test_report_without_its_transition_moves_nothing(book):
    left = [6]
    recorder = book.open(RUN, append=lambda *told: full_disk(left, book, *told))
    for verb in ("create", *STRAIGHT[:4]):
        book.use(verb, recorder=recorder)
    with pytest.raises(OSError, match="No space"):
        recorder.verify({"output": "x"})
    assert (recorder.state, book.types()[-1]) == ("EXECUTING", "worker.report")
    left[0] = 2
    recorder.verify({"output": "again"})
    assert recorder.context == book.fold()
    assert book.fold().report == {"output": "again"}


def test_artifacts_changed_afterwards_do_not_change_the_record(book):
    plan = {"steps": [{"id": "s1"}]}
    book.reach("SCOPED").use("plan", plan)
    plan["steps"].clear()
    book.recorder.context.plan["steps"].append("another")
    book.recorder.read().plan["steps"].append("another")
    assert book.recorder.context.plan == book.fold().plan == {"steps": [{"id": "s1"}]}


def test_payload_that_the_ledger_changes_does_not_change_the_context():
    recorder = Recorder(lambda _event_type, payload: payload.clear() or "1" * 16)
    recorder.create("a task", "test")
    recorder.clarify({"goal": "x"})
    assert (recorder.context.task, recorder.context.clarification) == ("a task", {"goal": "x"})


def test_recorder_is_absent_before_it_begins(book):
    assert (book.recorder.state, book.recorder.context, book.fold()) == (ABSENT, None, None)
    assert book.contexts().latest_state is None
    with pytest.raises(Failed, match=r"context\.created comes first"):
        book.recorder.read()


def test_one_of_many_threads_makes_the_move(book):
    gate, refused = threading.Barrier(8), []

    def append(event_type, payload):
        time.sleep(0.005)  # a disk takes its time, and whoever checks meanwhile must wait
        return book.append(RUN, event_type, payload)

    recorder = book.open(RUN, append=append)
    for verb in ("create", *STRAIGHT[:3]):
        book.use(verb, recorder=recorder)

    def execute():
        gate.wait()
        try:
            recorder.begin_execution()
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

V2 = {"schema_version": "v2"}


@pytest.mark.parametrize(
    ("state", "event_type", "payload"),
    [
        (ABSENT, "context.planned", {"plan": {}}),
        (ABSENT, "context.noted", {"event_type": "x", "data": {}}),
        (ABSENT, "context.resumed", {"state": "CREATED"}),
        ("CREATED", "context.created", {"task": "t", "source": "s"}),
        ("CREATED", "context.created", {"task": "t", "source": "s", "parent": None, **V2}),
        ("CREATED", "context.completed", {"verification": {}}),
        ("CREATED", "context.clarified", {}),
        ("CREATED", "context.noted", {"data": {}}),
        ("CREATED", "context.vanished", {"reason": "x"}),
        ("CREATED", "context.resumed", {"state": "CREATED"}),
        ("NEEDS_HUMAN", "context.resumed", {"state": "EXECUTING"}),
        ("NEEDS_HUMAN", "context.resumed", {}),
        ("NEEDS_HUMAN", "context.clarified", {"clarification": {}}),
        ("COMPLETED", "context.failed", {"reason": "x"}),
        ("COMPLETED", "context.created", {"task": "t", "source": "s", "parent": None, **V2}),
        ("PLANNED", "context.executing", {"attempt": 2}),
        ("VERIFYING", "context.executing", {"attempt": 1}),
    ],
)
def test_fold_refuses_a_ledger_with_a_move_that_nobody_could_make(book, state, event_type, payload):
    contexts = book.reach(state).contexts()
    assert isinstance(advance(contexts.get(RUN), event_type, payload, run=RUN), Err)
    with pytest.raises(LedgerError, match="event 7") as unsound:
        ContextFold().step(contexts, event(7, event_type, payload))
    assert unsound.value.error.code == "LEDGER_UNSOUND"


@pytest.mark.parametrize("report", ["no span", "0" * 16, None, {"output": "x"}])
def test_transition_that_names_no_report_is_unsound(book, report):
    contexts = book.reach("EXECUTING").contexts()
    with pytest.raises(LedgerError, match=r"no worker\.report has the span"):
        ContextFold().step(contexts, event(7, "context.verifying", {"report": report, **V2}))


def test_transition_that_names_the_report_of_another_run_is_unsound(book):
    contexts = book.reach("EXECUTING").contexts()
    fold_, report = ContextFold(), event(6, "worker.report", {"output": "x"}, run="b" * 16, span="d" * 16)
    fold_.step(contexts, report)
    with pytest.raises(LedgerError, match=r"no worker\.report has the span"):
        fold_.step(contexts, event(7, "context.verifying", {"report": "d" * 16, **V2}))


def test_fold_leaves_other_events_alone(book):
    contexts = book.reach("PLANNED").contexts()
    before = dict(contexts)
    for name in CATALOGUE:
        if not name.startswith("context."):
            ContextFold().step(contexts, event(1, name, {}))
    assert dict(contexts) == before


def test_fold_takes_sealed_values_as_they_are(book):
    sealed = {"$sealed": "0" * 64, "size": 9}
    context = book.reach("SCOPED").fold()
    planned = advance(context, "context.planned", {"plan": sealed})
    assert planned == Ok(attrs.evolve(context, state="PLANNED", plan=sealed))
    executing = advance(planned.value, "context.executing", {"attempt": sealed})
    assert executing.value.attempts == 1


# --- payloads of version 1 --------------------------------------------------------------------------------------------


def first_version(*told, run=RUN):
    """Return the contexts of events as the first version wrote them: the report itself in ``context.verifying``."""
    events = [event(seq, name, payload, run=run, span=f"{seq:016x}") for seq, (name, payload) in enumerate(told)]
    return fold(ContextFold(), events)


CREATED = ("context.created", {"task": "a task", "source": "test"})
WAY = (
    ("context.clarified", {"clarification": {}}),
    ("context.scoped", {"scope": {}}),
    ("context.planned", {"plan": {}}),
    ("context.executing", {"attempt": 1}),
    ("context.verifying", {"report": {"output": "x"}}),
    ("context.completed", {"verification": {}}),
)


def test_context_of_version_1_has_its_report():
    assert first_version(CREATED, *WAY)[RUN].reply == "x"


def test_second_run_of_version_1_begins_with_nothing_of_the_first():
    told = [CREATED, *WAY, ("context.noted", {"event_type": "x", "data": {}}), CREATED]
    contexts = first_version(*told)
    assert contexts.latest == RunContext(run=RUN, state="CREATED", task="a task", source="test")


def test_second_run_of_version_1_cannot_begin_while_the_first_works():
    with pytest.raises(LedgerError, match="a run has one context"):
        first_version(CREATED, CREATED)


def test_move_of_version_1_outside_its_flow_moves_the_latest_context():
    """The first version closed an interrupted run under the span of the session."""
    halted = event(9, "context.halted", {"reason": "killed"}, run="f" * 16)
    contexts = ContextFold().step(first_version(CREATED), halted)
    assert contexts.latest_state == "HALTED"
