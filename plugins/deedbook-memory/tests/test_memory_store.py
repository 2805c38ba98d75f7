"""The store is a cache of the ledger's fold: whatever lies there, what is remembered is what the ledger says.

Also what older forms said, of stores and of entries, and what many writers and a sudden death leave.
"""

import json
import multiprocessing
import os
import signal
from hashlib import sha256

import pytest
from cases import for_each
from commandline import Place
from hypothesis import given
from hypothesis import strategies as st
from remembering import ABILITIES, code, fine, folded, kept, propose, remembering, told, why

from deedbook import Ok, open_kernel
from deedbook.charter.zones import LEGACY
from deedbook.contract import Event
from deedbook.format import canonical
from deedbook.format.errors import MemoryRefused
from deedbook.format.events import Entry, label
from deedbook.workspace.own_ledger import open_own_ledger
from deedbook.workspace.workspace import load_workspace
from deedbook_memory.book import MemoryBook, read_history
from deedbook_memory.entries import is_key, upcast
from deedbook_memory.legacy import list_items, take_over
from deedbook_memory.recall import EntryName, Memory
from deedbook_memory.store import NAME

OLD = {"schema_version": "1.0", "world": {"City": "Rome"}, "notes": [{"id": "n 1", "text": "tea"}, "plain"], "mood": 3}
TAKEN = {"world/city": "Rome", "notes/n-1": {"id": "n 1", "text": "tea"}, "notes/1": "plain", "mood": 3}


@pytest.fixture
def lab_with_entries(lab):
    """Give a lab that remembers two things, whose kernels are closed, so that the store is written."""
    remembering(lab)
    with lab.session() as session:
        fine(propose(session, "a", 1))
        fine(propose(session, "b", "zwei", "decision"))
    shut(lab)
    return lab


def shut(lab):
    for kernel in lab._kernels:
        kernel.close()
    lab._kernels.clear()


ENTRIES = {(None, "observation", "a"): 1, (None, "decision", "b"): "zwei"}


def damaged(change):
    def damage(place):
        place.write_bytes(change(place.read_bytes()))

    return damage


def of_another_ledger(place):
    said = json.loads(place.read_bytes())
    said.pop("sha256")
    said["head"] = "0" * 64
    place.write_bytes(canonical.encode({**said, "sha256": canonical.digest(canonical.encode(said))}))


WRONG = {
    "absent": lambda place: place.unlink(),
    "empty": damaged(lambda raw: b""),
    "cut": damaged(lambda raw: raw[:-20]),
    "a value changed": damaged(lambda raw: raw.replace(b"zwei", b"drei")),
    "no object": damaged(lambda raw: b"[1]"),
    "of another ledger": of_another_ledger,
    "a folder": lambda place: (place.unlink(), place.mkdir()),
}


@pytest.mark.parametrize("what", WRONG)
def test_store_that_is_not_sound_costs_a_reading_and_nothing_else(lab_with_entries, what):
    lab = lab_with_entries
    place = lab.path / ".deedbook" / NAME
    assert folded(lab) == ENTRIES
    WRONG[what](place)
    assert folded(lab) == ENTRIES
    if place.is_dir():
        place.rmdir()
    with lab.session() as session:
        assert kept(session) == {"a": 1}
    shut(lab)
    with MemoryBook(lab.path / ".deedbook") as book:
        assert book.stored.state == "sound"
    assert folded(lab) == folded(lab, afresh=True) == ENTRIES


def test_store_is_read_and_only_what_came_later_is_folded(lab_with_entries):
    """A sound store is believed up to its line; that it is used at all shows where it says something else."""
    lab = lab_with_entries
    place = lab.path / ".deedbook" / NAME
    said = json.loads(place.read_bytes())
    said.pop("sha256")
    said["entries"][0][-1]["entry"]["value"] = "from the store"
    place.write_bytes(canonical.encode({**said, "sha256": canonical.digest(canonical.encode(said))}))
    assert folded(lab)[None, "decision", "b"] == "from the store"
    assert folded(lab, afresh=True) == ENTRIES


def test_store_of_a_later_form_is_refused_and_never_touched(lab_with_entries):
    lab = lab_with_entries
    place = lab.path / ".deedbook" / NAME
    later = canonical.encode({"schema": "memory_store", "schema_version": "v9", "more": True})
    place.write_bytes(later)
    with lab.session() as session:
        refused = propose(session, "a", 2)
        assert (code(refused), "v9" in why(refused)) == ("MEMORY_FUTURE", True)
    shut(lab)
    with pytest.raises(MemoryRefused, match="v9"):
        MemoryBook(lab.path / ".deedbook", afresh=True)
    assert place.read_bytes() == later


def test_store_of_an_older_form_is_moved_aside_kept_and_taken_over(lab):
    remembering(lab, persona="p-1")
    with lab.session():
        pass
    shut(lab)
    place = lab.path / ".deedbook" / NAME
    place.parent.mkdir()
    raw = json.dumps(OLD).encode()
    place.write_bytes(raw)
    with lab.session() as session:
        assert kept(session, "legacy") == TAKEN
        assert kept(session, "world_state") == {}
        assert code(propose(session, "city", "Rome", "legacy")) == "SCHEMA_VIOLATION"
    shut(lab)
    quarantined, snapshot, migrated, *imported = told(lab)
    digest = sha256(raw).hexdigest()
    assert [each.type for each in imported] == ["memory.imported"] * 4
    assert quarantined.payload == {
        "name": NAME, "form": "v0", "kept": f"memory/snapshots/{digest}.json", "sha256": digest, "size": len(raw),
    }  # fmt: skip
    entries = "".join(sha256(canonical.encode(each.payload["entry"])).hexdigest() for each in imported)
    assert migrated.payload["before"] == digest == snapshot.payload["sha256"]
    assert migrated.payload["after"] == sha256(entries.encode()).hexdigest()
    assert {each.payload["pointer"] for each in imported} == {"/world/City", "/notes/0", "/notes/1", "/mood"}
    copy = lab.path / ".deedbook" / snapshot.payload["kept"]
    assert (copy.read_bytes(), copy.stat().st_mode & 0o222) == (raw, 0)
    with MemoryBook(lab.path / ".deedbook") as book:
        assert book.stored.state == "sound"
    place.write_bytes(raw)
    with lab.session() as session:
        assert kept(session, "legacy") == TAKEN
    assert len(told(lab)) == 7, "it is taken over once"


def test_what_must_never_be_remembered_is_not_taken_over_either(lab):
    remembering(lab)
    with lab.session():
        pass
    raw = json.dumps({"cards": ["4111 1111 1111 1111"], "fine": 1}).encode()
    with open_own_ledger(load_workspace(lab.path)) as own, MemoryBook(lab.state) as book:
        taken = take_over(own, book, raw, None)
        assert (taken.entries, taken.left_out, taken.again) == (1, 1, False)
        assert take_over(own, book, raw, None).again is True
        for wrong in (b"[1]", b"\xff", b'{"a":1,"a":2}'):
            with pytest.raises(MemoryRefused):
                take_over(own, book, wrong, None)
        with pytest.raises(MemoryRefused, match="present form"):
            take_over(own, book, book.render(), None)
    assert folded(lab) == {(None, LEGACY, "fine"): 1}


@given(
    st.dictionaries(
        st.text(), st.recursive(st.none() | st.text(), lambda i: st.lists(i) | st.dictionaries(st.text(), i))
    )
)
def test_everything_that_an_old_store_says_gets_a_key_of_its_own(said):
    found = list(list_items(said))
    assert all(is_key(each.key) for each in found)
    assert len({each.key for each in found}) == len({each.pointer for each in found}) == len(found)


# --- entries of older forms -------------------------------------------------------------------------------------------


@for_each(
    ("entry", "zone"),
    [
        ({"schema_version": "v0", "key": "a", "value": 1}, LEGACY),
        ({"schema_version": "v0", "key": "a", "value": 1, "zone": "observation"}, "observation"),
        ({"schema_version": "v0", "key": "a", "value": 1, "zone": "world_state"}, LEGACY),
        ({"schema_version": "v0", "key": "a"}, LEGACY),
        ({"schema_version": "v7", "key": "a", "value": 1, "zone": "world_state"}, LEGACY),
        ({"schema_version": "v1", "key": "a", "value": 1, "zone": "world_state"}, LEGACY),
        ({"schema_version": ["v1"], "key": "a"}, LEGACY),
        ({"key": "a"}, LEGACY),
    ],
)
def test_entry_of_another_form_is_upcast_or_ends_in_legacy(entry, zone):
    assert upcast(entry)[1] == zone


def test_old_entry_in_the_ledger_is_remembered_in_the_present_form(lab):
    """An older release wrote it: nothing in the ledger is rewritten, and both readers come to the same."""
    remembering(lab)
    with lab.session() as session:
        fine(propose(session, "a", 1))
    proposed, checked, _ = told(lab)
    with open_own_ledger(load_workspace(lab.path)) as own:
        for number, entry in enumerate([
            {"schema_version": "v0", "key": "b", "value": "old", "zone": "observation"},
            {"schema_version": "v7", "key": "c", "value": "from the future"},
        ]):  # fmt: skip
            name = f"m-{number:032d}"
            first = entry_of(own, "memory.proposed", own.root, {**proposed.payload, "proposal": name, "entry": entry})
            check = entry_of(own, "memory.checked", first.span, {**checked.payload, "proposal": name})
            said = {"proposal": name, "persona": None, "zone": entry.get("zone", "decision"), "key": entry["key"]}
            done = entry_of(own, "memory.committed", check.span, {**said, "version": 1})
            own.append([first, check, done], durable=True)
    assert (
        folded(lab)
        == folded(lab, afresh=True)
        == {
            (None, "observation", "a"): 1,
            (None, "observation", "b"): "old",
            (None, LEGACY, "c"): "from the future",
        }
    )
    with lab.session() as session:
        assert kept(session) == {"a": 1, "b": "old"}
        assert fine(propose(session, "b", "new"))["version"] == 2


def entry_of(own, event_type, above, payload):
    return Entry(label(event_type, "runtime", "local"), own.span(), above, canonical.encode_payload(dict(payload)))


# --- the fold ---------------------------------------------------------------------------------------------------------


def event(seq, event_type, payload, parent=None):
    return Event(seq, event_type, "runtime", None, f"{seq:016x}", parent, "2026-11-22T00:00:00.000Z", payload)


LINKS = {"session": "s", "span": "0" * 16, "trace_id": "0" * 32, "charter": "0" * 64, "by": {"id": "local"}}


@given(st.lists(st.tuples(st.sampled_from(["propose", "commit", "refuse", "retract", "noise"]), st.integers(0, 2),
                          st.integers(0, 4)), max_size=40))  # fmt: skip
def test_versions_only_go_up_one_by_one_whatever_comes(steps):
    memory, before = Memory(), {}
    for seq, (what, key, number) in enumerate(steps):
        said = {"persona": None, "zone": "observation", "key": f"k{key}", "version": number}
        entry = {"schema_version": "v1", "zone": "observation", "key": f"k{key}", "value": seq}
        payload, kind = {
            "propose": ({"proposal": f"p{number}", "persona": None, "entry": entry, **LINKS}, "memory.proposed"),
            "commit": ({"proposal": f"p{number}", **said, "version": key + 1}, "memory.committed"),
            "refuse": ({"proposal": f"p{number}", "code": "C", "reason": "r"}, "memory.refused"),
            "retract": ({**said, **LINKS, "reason": "r"}, "memory.retracted"),
            "noise": ({"proposal": [], "version": None}, "memory.committed"),
        }[what]
        memory.apply(event(seq, kind, payload))
        for name, slot in memory.slots.items():
            assert slot.version - before.get(name, 0) in (0, 1)
            before[name] = slot.version


def test_payload_that_was_taken_out_leaves_a_key_that_goes_on():
    memory = Memory()
    memory.apply(event(1, "memory.proposed", {"$excised": "0" * 64}))
    memory.apply(event(2, "memory.checked", {"proposal": "p", "ok": True, "checks": []}, parent=f"{1:016x}"))
    said = {"persona": None, "zone": "observation", "key": "a"}
    memory.apply(event(3, "memory.committed", {"proposal": "p", **said, "version": 1}))
    entry = {"schema_version": "v1", "zone": "observation", "key": "a", "value": "anew"}
    memory.apply(event(4, "memory.proposed", {"proposal": "q", "persona": None, "entry": entry, **LINKS}))
    memory.apply(event(5, "memory.committed", {"proposal": "q", **said, "version": 2}))
    slot = memory.get_slot(EntryName(None, "observation", "a"))
    assert (slot.version, slot.content["entry"]["value"]) == (2, "anew")


def test_what_is_taken_out_of_the_ledger_is_known_nowhere_any_more(lab_with_entries):
    """Neither by the store, nor by who has the memory open meanwhile; the key goes on from its version."""
    lab = lab_with_entries
    place = Place(lab.path)
    store = lab.path / ".deedbook" / NAME
    assert "zwei" in store.read_text()
    seq = next(each.seq for each in told(lab) if each.payload.get("entry", {}).get("value") == "zwei")
    with MemoryBook(lab.path / ".deedbook", saves=True) as book:
        place.here("ledger", "excise", "workspace", str(seq), "--reason", "private", "--yes", status=0)
        assert not store.exists()
        book.refresh()
        (entry,) = [
            book.describe(EntryName(None, "decision", key), slot) for key, slot in book.list_entries(None, "decision")
        ]
        assert (entry["erased"], entry["version"]) == (True, 1)
    assert "zwei" not in store.read_text()
    with lab.session() as session:
        assert fine(propose(session, "b", "drei", "decision"))["version"] == 2
    place.here("verify", status=0)


# --- many writers, and sudden death -----------------------------------------------------------------------------------


def counting(path, times):
    """Count up one key by compare-and-set, in a process of its own."""
    with open_kernel(path) as kernel, kernel.session() as session:
        for _ in range(times):
            while True:
                found = session.call("memory/read", {"zone": "observation", "key": "n"}).value["entries"]
                value, version = (found[0]["value"], found[0]["version"]) if found else (0, 0)
                done = propose(session, "n", value + 1, expected_version=version)
                if isinstance(done, Ok):
                    break
                assert done.error.code == "MEMORY_CONFLICT", done.error


def test_eight_processes_count_one_key_and_lose_nothing(lab):
    remembering(lab)
    with lab.session():
        pass
    fork = multiprocessing.get_context("fork")
    workers = [fork.Process(target=counting, args=(lab.path, 3)) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    assert folded(lab) == {(None, "observation", "n"): 24}
    changes = list(read_history(lab.state))
    assert [each.version for each in changes if each.what == "committed"] == list(range(1, 25))
    assert {each.what for each in changes} <= {"committed", "refused"}


@pytest.mark.parametrize("after", ["memory.proposed", "memory.committed"])
def test_death_between_events_leaves_what_the_ledger_says(lab, after):
    """The writer is killed right after an event is written: a proposal alone is nothing, a commit is remembered."""
    remembering(lab)
    with lab.session() as session:
        fine(propose(session, "a", 1))
    shut(lab)

    def die(path):
        with open_kernel(path) as kernel, kernel.session() as session:
            kernel.ledger.subscribe(lambda event: event.type == after and os.kill(os.getpid(), signal.SIGKILL))
            propose(session, "a", 2)

    worker = multiprocessing.get_context("fork").Process(target=die, args=(lab.path,))
    worker.start()
    worker.join(60)
    assert worker.exitcode == -signal.SIGKILL
    wanted = {(None, "observation", "a"): 1 if after == "memory.proposed" else 2}
    assert folded(lab) == folded(lab, afresh=True) == wanted
    with lab.kernel() as kernel:
        assert kernel.recover()
    with lab.session() as session:
        fine(propose(session, "a", 3))
        assert set(ABILITIES) <= set(session.bindings.abilities)
    assert folded(lab) == {(None, "observation", "a"): 3}
