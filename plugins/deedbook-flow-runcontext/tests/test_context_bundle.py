"""Bundles that hand a context over: they hold against the ledger that they were taken from, and against no other."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deedbook.contract import Event
from deedbook.format import canonical, events
from deedbook.format.context import ContextFold, Recorder, RunContext
from deedbook.format.errors import DeedbookError, LedgerError
from deedbook.format.folds import fold
from deedbook_inspect.ledger_contexts import load, save

SESSION = "s-context"
TS = "2026-01-01T00:00:00.000Z"
RUN = "a" * 16
STATES = ["CLARIFIED", "SCOPED", "PLANNED", "EXECUTING", "VERIFYING", "COMPLETED"]

leaves = st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(-1e6, 1e6) | st.text(max_size=8)
keys = st.text(max_size=4)
objects = st.dictionaries(
    keys, leaves | st.lists(leaves, max_size=3) | st.dictionaries(keys, leaves, max_size=3), max_size=3
)


class Book:
    """A recorder over a list of events, which can be written as a real ledger."""

    def __init__(self):
        self.events = []
        self.recorder = self.begin(RUN)

    def begin(self, run, parent=None):
        """Begin another run, and return its recorder."""
        recorder = Recorder(lambda *told: self.append(run, *told), run=run, parent=parent)
        recorder.create("a task", "test")
        return recorder

    def append(self, run, event_type, payload):
        """Append an event under *run*; the ledger has one line before the first."""
        span = f"{len(self.events) + 2:016x}"
        self.events.append(Event(len(self.events) + 1, event_type, "runtime", None, span, run, TS, payload))
        return span

    def reach(self, state, things=()):
        """Take the straight way to *state*, with the artifacts *things*."""
        verbs = ["clarify", "set_scope", "plan", "begin_execution", "verify", "complete"]
        for at, verb in enumerate(verbs[: STATES.index(state) + 1] if state in STATES else []):
            thing = things[at] if things else {"n": 1}
            getattr(self.recorder, verb)(*(() if verb == "begin_execution" else (thing,)))
        return self

    def fold(self, run=RUN):
        return fold(ContextFold(), self.events)[run]

    def ledger(self, folder, more=()):
        """Write the events as a real ledger, beside events of other types; return the head."""
        lines, head = [], events.first_hash(SESSION)
        prefix = events.line_prefix(SESSION, "a" * 32)
        told = [("session.start", {"kernel": "0"}, None)]
        told += [(each.type, each.payload, each.parent) for each in self.events]
        told += [("agent.reply", {"reply": "ok"}, "1" * 16), *more]
        for seq, (event_type, payload, parent) in enumerate(told):
            label = events.label(event_type, "runtime", None)
            entry = events.Entry(label, f"{seq + 1:016x}", parent, canonical.encode(payload))
            line, head = events.seal_line(prefix, seq, TS, head, entry)
            lines.append(line)
        (folder / ".events.jsonl").write_bytes(b"".join(lines))
        return head


@pytest.fixture
def book():
    return Book()


@given(things=st.lists(objects, min_size=6, max_size=6), count=st.integers(0, 6), note=objects)
def test_bundle_comes_back_as_it_was_saved(tmp_path_factory, things, count, note):
    folder, book = tmp_path_factory.mktemp("bundle"), Book()
    book.reach(STATES[count - 1] if count else "CREATED", things)
    book.recorder.note("loop.turn", note)
    save(book.recorder.context, book.ledger(folder), folder / "run.json")
    assert load(folder / "run.json") == book.recorder.context == book.fold()


@given(counts=st.lists(st.integers(0, 6), min_size=1, max_size=4), at=st.integers(0, 3))
def test_bundle_of_one_of_several_runs_comes_back(tmp_path_factory, counts, at):
    """Each run but the first is nested in the one before."""
    folder, book = tmp_path_factory.mktemp("bundle"), Book()
    for number, count in enumerate(counts):
        if number:
            book.recorder = book.begin(f"{number:x}" * 16, book.recorder.context.run)
        book.reach(STATES[count - 1] if count else "CREATED")
    run = list(fold(ContextFold(), book.events))[at % len(counts)]
    save(book.fold(run), book.ledger(folder), folder / "run.json")
    assert load(folder / "run.json") == book.fold(run)


def test_bundle_is_one_readable_object(tmp_path, book):
    head = book.reach("PLANNED").ledger(tmp_path)
    save(book.fold(), head, tmp_path / "run.json")
    bundle = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))
    assert (bundle["schema_version"], bundle["head"]) == ("v2", head)
    assert bundle["context"] == book.fold().as_json()
    assert bundle["context"]["state"] == "PLANNED"


def test_bundle_may_lie_apart_from_its_ledger(tmp_path, book):
    (tmp_path / "elsewhere").mkdir()
    head = book.reach("PLANNED").ledger(tmp_path)
    save(book.fold(), head, tmp_path / "elsewhere" / "run.json")
    assert load(tmp_path / "elsewhere" / "run.json", tmp_path / ".events.jsonl") == book.fold()


def test_bundle_holds_while_only_other_events_follow(tmp_path, book):
    book.reach("COMPLETED")
    save(book.fold(), book.ledger(tmp_path), tmp_path / "run.json")
    book.ledger(tmp_path, more=[("session.end", {"ok": True, "reason": ""}, "1" * 16)])
    assert load(tmp_path / "run.json").state == "COMPLETED"


def test_bundle_of_a_context_that_moved_on_is_refused(tmp_path, book):
    book.reach("PLANNED")
    save(book.fold(), book.ledger(tmp_path), tmp_path / "run.json")
    book.ledger(tmp_path, more=[("context.executing", {"attempt": 1}, RUN)])
    assert refusal(tmp_path).startswith("the context has moved on")


def test_bundle_holds_while_another_run_moves(tmp_path, book):
    book.reach("PLANNED")
    save(book.fold(), book.ledger(tmp_path), tmp_path / "run.json")
    created = {"task": "t", "source": "s", "parent": RUN, "schema_version": "v2"}
    book.ledger(tmp_path, more=[("context.created", created, "b" * 16)])
    assert load(tmp_path / "run.json") == book.fold()


def test_bundle_of_another_ledger_is_refused(tmp_path, book):
    book.reach("PLANNED").ledger(tmp_path)
    save(book.fold(), "0" * 64, tmp_path / "run.json")
    assert refusal(tmp_path).startswith("no line has the bundle's head")


def test_bundle_before_any_context_is_refused(tmp_path, book):
    book.events.clear()
    save(RunContext(state="CREATED", task="t", source="s"), book.ledger(tmp_path), tmp_path / "run.json")
    assert refusal(tmp_path).startswith("the bundle differs from the ledger")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"state":"PLANNED"', b'"state":"COMPLETED"'),
        (b'"plan":{"n":1}', b'"plan":{"n":2}'),
        (b'"attempts":0', b'"attempts":9'),
        (b'"parent":null', b'"parent":"b"'),
        (b'"run":"aaaa', b'"run":"bbbb'),
        (b'{"context"', b'{ "context"'),
        (b'{"context"', b'{"also":1,"context"'),
    ],
)
def test_bundle_that_was_changed_is_refused(tmp_path, book, old, new):
    path = tmp_path / "run.json"
    save(book.reach("PLANNED").fold(), book.ledger(tmp_path), path)
    changed = path.read_bytes().replace(old, new, 1)
    assert changed != path.read_bytes()
    path.write_bytes(changed)
    assert refusal(tmp_path).startswith("the bundle differs from the ledger")


@pytest.mark.parametrize("version", ["v1", "v3"])
def test_bundle_of_another_version_is_refused(tmp_path, book, version):
    path = tmp_path / "run.json"
    save(book.reach("PLANNED").fold(), book.ledger(tmp_path), path)
    path.write_bytes(path.read_bytes().replace(b'"schema_version":"v2"', f'"schema_version":"{version}"'.encode()))
    assert refusal(tmp_path).startswith("a bundle of another version")


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"null", b'"head"', b"{}", b"\xff", b'{"head":1}', b"[" * 2000])
def test_bundle_that_is_none_is_refused(tmp_path, book, raw):
    book.reach("PLANNED").ledger(tmp_path)
    (tmp_path / "run.json").write_bytes(raw)
    assert refusal(tmp_path)


def test_every_changed_byte_of_the_ledger_refuses_the_bundle(tmp_path, book):
    save(book.reach("CLARIFIED").fold(), book.ledger(tmp_path), tmp_path / "run.json")
    ledger = tmp_path / ".events.jsonl"
    whole = ledger.read_bytes()
    for at in range(0, len(whole), 3):
        ledger.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert refusal(tmp_path)


@pytest.mark.parametrize("at", [0, 1, 2, 3])
def test_ledger_that_lost_a_line_refuses_the_bundle(tmp_path, book, at):
    save(book.reach("PLANNED").fold(), book.ledger(tmp_path), tmp_path / "run.json")
    ledger = tmp_path / ".events.jsonl"
    lines = ledger.read_bytes().splitlines(keepends=True)
    ledger.write_bytes(b"".join(lines[:at] + lines[at + 1 :]))
    assert refusal(tmp_path).startswith("the line's hashes do not match")


@pytest.mark.parametrize("cut", [1, 200])
def test_ledger_that_lost_its_tail_refuses_the_bundle(tmp_path, book, cut):
    save(book.reach("PLANNED").fold(), book.ledger(tmp_path), tmp_path / "run.json")
    ledger = tmp_path / ".events.jsonl"
    ledger.write_bytes(ledger.read_bytes()[:-cut])
    assert refusal(tmp_path).startswith("no line has the bundle's head")


def test_torn_line_after_the_head_is_not_counted(tmp_path, book):
    save(book.reach("PLANNED").fold(), book.ledger(tmp_path), tmp_path / "run.json")
    with (tmp_path / ".events.jsonl").open("ab") as ledger:
        ledger.write(b'{"schema_version":"1.1","sess')
    assert load(tmp_path / "run.json") == book.fold()


def test_endless_line_is_refused(tmp_path, book):
    save(book.reach("PLANNED").fold(), book.ledger(tmp_path), tmp_path / "run.json")
    (tmp_path / ".events.jsonl").write_bytes(b"x" * 3_000_000)
    assert refusal(tmp_path) == "not a line of format 1.1"


def test_line_with_a_payload_that_is_no_json_is_refused(tmp_path, book):
    book.reach("PLANNED")
    save(book.fold(), "0" * 64, tmp_path / "run.json")
    label = events.label("context.created", "runtime", None)
    entry = events.Entry(label, "1" * 16, None, b"{oops}")
    line, _ = events.seal_line(events.line_prefix(SESSION, "a" * 32), 0, TS, events.first_hash(SESSION), entry)
    (tmp_path / ".events.jsonl").write_bytes(line)
    assert refusal(tmp_path) == "the payload is no JSON"


def test_bundle_is_not_read_through_a_link(tmp_path, book):
    save(book.reach("PLANNED").fold(), book.ledger(tmp_path), tmp_path / "real.json")
    (tmp_path / "run.json").symlink_to("real.json")
    with pytest.raises(DeedbookError) as refused:
        load(tmp_path / "run.json")
    assert refused.value.error.code == "PATH_REFUSED"


def refusal(folder):
    """Load the bundle, which has to be refused; return why."""
    with pytest.raises(LedgerError) as unsound:
        load(folder / "run.json")
    assert unsound.value.error.code == "LEDGER_UNSOUND"
    return unsound.value.error.message
