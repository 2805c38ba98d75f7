"""Charters that ledgers name: each is recorded and kept as it was, and whatever one holds, every ledger is reported."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from commandline import SCHEMAS, Place
from faults.states import HOME, OLD, Event, State

from deedbook.format.canonical import encode
from deedbook.format.schema import Schemas
from deedbook.kernel import open_kernel

SETTINGS = """schema_version: v1
abilities: {echo: {summary: Echo a text back., handler: {tool: echo}}}
policies: {baseline: {kind: rules, rules: [{match: {effects: [none]}, then: allow}], default: deny}}
"""


@pytest.fixture(autouse=True, scope="module")
def schemas_are_compiled_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Schemas, "load", lambda _: SCHEMAS)
        yield


def workspace(root: Path, *, log: bool = True) -> State:
    place = Place(root)
    place.system("deedbook.yaml", SETTINGS)
    key = place.here("keys", "rotate", status=0).out.strip() if log else ""
    for text in ("one", "two"):
        place.here("call", "echo", "--args", json.dumps({"text": text}), status=0)
    return State(root, {}, key)


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> State:
    return workspace(tmp_path_factory.mktemp("signed") / "w")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> State:
    return workspace(tmp_path_factory.mktemp("plain") / "w", log=False)


@pytest.fixture
def case(signed: State, tmp_path: Path) -> State:
    """Give a copy of a workspace with a log, to be tampered with."""
    return signed.copy(tmp_path / "w")


@pytest.fixture
def bare(plain: State, tmp_path: Path) -> State:
    """Give a copy of a workspace that nobody has signed anything about, so that all hashes can be made right."""
    return plain.copy(tmp_path / "w")


def charters(state: State) -> Path:
    return state.state / "charters"


def digest(state: State) -> str:
    """Return the digest of the charter in force."""
    return str(json.loads((charters(state) / "current.json").read_bytes())["charter"])


def kept(state: State) -> Path:
    return charters(state) / digest(state) / "charter.json"


def verify(state: State, *args: str, status: int) -> Any:
    """Return what verify says, of which every ledger is a part."""
    ran = state.place.here("verify", "--json", *args, status=status)
    found = ran.fits("output_verify_v1")
    assert len(found["reports"]) == (1 if args else len(list(state.state.glob("*/**/.events.jsonl"))))
    assert found["sound"] == (status == 0)
    return found


def session(state: State) -> str:
    return state.place.sessions()[0]


def use(state: State, raw: bytes) -> str:
    """Keep *raw* as a charter under its own digest, and let every ledger name it instead of the honest one."""
    old, new = digest(state), sha256(raw).hexdigest()
    (charters(state) / old).rename(charters(state) / new)
    (charters(state) / new / "charter.json").write_bytes(raw)
    (charters(state) / "current.json").write_text(json.dumps({"charter": new}))
    rename(state, old, new, HOME, *state.place.sessions())
    state.heads()
    return new


def rename(state: State, old: str, new: str, *ledgers: str) -> None:
    """Let *ledgers* name another charter, with all hashes made right again."""

    def change(events: list[Event]) -> None:
        for event in events:
            event.payload.update({name: new for name, value in event.payload.items() if value == old})

    for name in ledgers:
        state.edit(name, change)


# --- what is kept -----------------------------------------------------------------------------------------------------


def test_honest_workspace_is_complete(signed: State):
    assert verify(signed, status=0)["verdict"]["said"].startswith("sound and complete up to checkpoint ")


def changed(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"default":"deny"', b'"default":"allow"'))


def continued(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\n")


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def linked(path: Path) -> None:
    path.rename(path.with_name("other.json"))
    path.symlink_to("other.json")


def piped(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def foldered(path: Path) -> None:
    path.unlink()
    path.mkdir()


def stored_under_another_digest(path: Path) -> None:
    path.parent.rename(path.parent.with_name("0" * 64))


def stored_twice(path: Path) -> None:
    shutil.copytree(path.parent, path.parent.with_name("f" * 64))


@pytest.mark.parametrize("damage", [changed, continued, emptied, linked, piped, foldered])
def test_charter_with_other_bytes_is_a_failure(case: State, damage: Callable[[Path], None]):
    damage(kept(case))
    for args in ((), ("--log-key", case.key), ("last",)):
        found = verify(case, *args, status=4) if "last" in args or not args else None
        said = found["verdict"]["said"] if found else case.place.here("verify", *args, status=4).out
        assert said.startswith("BROKEN")
        assert "charter" in said.splitlines()[0]
    found = verify(case, status=4)
    failing = [report for report in found["reports"] if not report["sound"]]
    assert [report["decisions"]["failures"][0]["check"] for report in failing] == ["charter", "charter"]
    assert [gap["session"] for gap in found["missing"]] == [f"charter {digest(case)[:12]}"]


@pytest.mark.parametrize("damage", [stored_under_another_digest, stored_twice])
def test_charter_that_is_kept_under_another_digest_is_a_failure(case: State, damage: Callable[[Path], None]):
    damage(kept(case))
    assert verify(case, status=4)["verdict"]["said"].startswith("BROKEN")


def deleted(path: Path) -> None:
    path.unlink()


def renamed(path: Path) -> None:
    path.rename(path.with_name("charter.json.bak"))


def set_aside(path: Path) -> None:
    path.parent.rename(path.parent.with_name("aside"))


def all_deleted(path: Path) -> None:
    shutil.rmtree(path.parents[1])


@pytest.mark.parametrize("damage", [deleted, renamed, set_aside, all_deleted])
def test_without_a_charter_decisions_are_not_checked_and_nothing_is_complete(
    case: State, damage: Callable[[Path], None]
):
    name = digest(case)
    damage(kept(case))
    for args in ((), ("last",)):
        found = verify(case, *args, status=0)
        said = found["verdict"]["said"]
        assert said.startswith("sound up to checkpoint ")
        assert said.endswith(f"; decisions not checked: charter {name} is named, and is not kept here")
        assert f"charter {name} is named, and is not kept here" in found["verdict"]["unchecked"]


def test_missing_charter_of_a_session_without_calls_is_said_too(bare: State):
    with open_kernel(bare.root) as kernel, kernel.session() as begun:
        begun.end(ok=True, reason="done")
    kept(bare).unlink()
    said = verify(bare, begun.id, status=0)["verdict"]["said"]
    assert said.startswith("unwitnessed: sound as far as it goes")
    assert "decisions not checked" in said


# --- what is recorded -------------------------------------------------------------------------------------------------


def forged(state: State) -> str:
    """Keep another charter under its own digest, and let a session name it."""
    raw = kept(state).read_bytes().replace(b"Echo a text back.", b"Echo any text back.")
    name = sha256(raw).hexdigest()
    (charters(state) / name).mkdir()
    (charters(state) / name / "charter.json").write_bytes(raw)
    rename(state, digest(state), name, session(state))
    state.heads()
    return name


def test_charter_that_no_event_records_is_a_failure(bare: State):
    name = forged(bare)
    for args in ((), (session(bare),)):
        found = verify(bare, *args, status=4)
        assert name in found["verdict"]["said"]
        (gap,) = found["missing"]
        assert (gap["session"], gap["check"]) == (session(bare), "charter of line 1")


def record(state: State, name: str, at: int, ts: str) -> None:
    """Let the workspace ledger record a charter at that place and time."""

    def change(events: list[Event]) -> list[Event]:
        first = next(event for event in events if event.type == "ledger.charter")
        header = first.header | {"ts": ts, "span_id": "ab" * 8}
        more = Event(header, first.payload | {"digest": name, "previous": first.payload["digest"]})
        return [*events[:at], more, *events[at:]]

    state.edit(HOME, change)


def test_record_that_comes_after_the_session_does_not_count(bare: State):
    record(bare, forged(bare), len(bare.events(HOME)), bare.events(HOME)[-1].header["ts"])
    assert "charter of line 1" in verify(bare, status=4)["verdict"]["said"]


def test_record_of_a_clock_that_was_set_back_counts_by_its_place(bare: State):
    record(bare, forged(bare), bare.number(HOME, "ledger.session"), "2099-01-01T00:00:00.000Z")
    assert verify(bare, status=0)["missing"] == []


def test_record_counts_by_its_time_where_there_is_no_head(bare: State):
    name = forged(bare)
    record(bare, name, 2, bare.events(HOME)[1].header["ts"])
    assert verify(bare, status=0)["missing"] == []


def test_charter_of_a_process_that_no_event_records_is_a_failure(bare: State):
    name = forged(bare)
    bare.edit(
        HOME, lambda events: [e for e in events if e.type == "system.boot" and e.payload.update(charter=name)] and None
    )
    found = verify(bare, status=4)["missing"]
    assert "workspace" in {gap["session"] for gap in found}


def test_charter_in_force_that_no_event_records_is_a_failure(bare: State):
    rename(bare, forged(bare), digest(bare), session(bare))
    bare.heads()
    other = next(place.name for place in charters(bare).iterdir() if place.is_dir() and place.name != digest(bare))
    (charters(bare) / "current.json").write_text(json.dumps({"charter": other}))
    (gap,) = verify(bare, status=4)["missing"]
    assert gap["check"] == "charter in force"
    bare.place.here("call", "echo", "--args", '{"text":"three"}', status=0)
    assert verify(bare, status=0)["verdict"]["kind"] == "unwitnessed"


def test_workspace_ledger_that_is_begun_anew_records_the_charter_in_force(bare: State):
    for name in ("workspace", "sessions"):
        shutil.rmtree(bare.state / name)
    bare.place.here("call", "echo", "--args", '{"text":"three"}', status=0)
    assert bare.number(HOME, "ledger.charter") == 1
    assert verify(bare, status=0)["missing"] == []


def test_recorded_charter_may_be_sealed(tmp_path: Path):
    place = Place(tmp_path)
    place.system("deedbook.yaml", SETTINGS + 'seal: ["ledger.charter/digest"]\n')
    place.here("call", "echo", "--args", '{"text":"hi"}', status=0)
    state = State(tmp_path, {})
    assert "decisions not checked" not in verify(state, status=0)["verdict"]["said"]
    (value,) = state.sealed(HOME)
    value.unlink()
    said = verify(state, status=0)["verdict"]["said"]
    assert said.endswith("decisions not checked: a ledger.charter names a charter by a sealed value that is gone")


# --- ledgers without a workspace --------------------------------------------------------------------------------------


def test_ledger_that_is_checked_alone_says_that_decisions_are_not_checked(signed: State, tmp_path: Path):
    shutil.copyfile(signed.file(session(signed)), tmp_path / "sent.jsonl")
    said = Place(tmp_path).here("verify", "./sent.jsonl", status=0).out
    assert "decisions not checked: the charter that the session names is not at hand" in said


def test_session_that_was_imported_says_that_decisions_are_not_checked(bare: State):
    bare.place.write("old.jsonl", OLD)
    bare.place.here("ledger", "import", "old.jsonl", status=0)
    assert "decisions not checked" not in bare.place.here("verify", status=0).out
    said = bare.place.here("verify", "old", status=0).out
    assert "decisions not checked: a ledger of format 1.0 names no charter" in said


# --- whatever a charter holds -----------------------------------------------------------------------------------------


def doc(change: Callable[[Any], Any]) -> Callable[[bytes], bytes]:
    """Return how a charter is changed as JSON: by what *change* does to it, or returns."""

    def apply(raw: bytes) -> bytes:
        document = json.loads(raw)
        return encode(change(document) or document, nodes=10**7)

    return apply


def schema_of(document: Any) -> Any:
    return document["schemas"][document["abilities"]["echo"]["takes"]]


NONSENSE: dict[str, Callable[[bytes], bytes]] = {
    "nothing": lambda _: b"",
    "no JSON": lambda _: b"charter",
    "no UTF-8": lambda _: b'{"format":"\xff"}',
    "an empty object": lambda _: b"{}",
    "a list": lambda _: b"[]",
    "null": lambda _: b"null",
    "policies null": doc(lambda d: d.update(policies=None)),
    "no policies": doc(lambda d: d.pop("policies") and None),
    "no hooks": doc(lambda d: d.pop("hooks", 1) and None),
    "another format": doc(lambda d: d.update(format="charter-99")),
    "a refused schema": doc(lambda d: schema_of(d).update(typ="object")),
    "a schema of another kind": doc(lambda d: schema_of(d).update(type="obj", properties=3)),
    "a schema that leads to itself": doc(lambda d: schema_of(d).update({"$ref": "#"})),
    "a schema that is not there": doc(lambda d: d["abilities"]["echo"].update(takes="0" * 64)),
    "a plugin that is not there": doc(lambda d: d["abilities"]["echo"].update(plugin=["tool", "nobody"])),
    "an unknown key in a match": doc(lambda d: d["policies"]["baseline"].update(match={"nothing": 1})),
    "a match of another kind": doc(lambda d: d["policies"]["baseline"].update(match=7)),
    "rules of another kind": doc(lambda d: d["policies"]["baseline"]["settings"].update(rules=7)),
    "a rule without an answer": doc(lambda d: d["policies"]["baseline"]["settings"].update(rules=[{}])),
    "a rule with an unknown key": doc(
        lambda d: d["policies"]["baseline"]["settings"].update(rules=[{"then": "allow", "match": {}, "x": 1}])
    ),
    "a limit that is text": doc(lambda d: d["abilities"]["echo"].update(timeout_ms="soon")),
    "infinity": lambda raw: raw.replace(b'"timeout_ms":null', b'"timeout_ms":1e999'),
    "a number of thirty digits": lambda raw: raw.replace(b'"timeout_ms":null', b'"timeout_ms":' + b"9" * 30),
    "a spelled-out number": lambda raw: raw.replace(b'"timeout_ms":null', b'"timeout_ms":1.50'),
    "a space": lambda raw: raw.replace(b'"kernel":', b'"kernel": '),
    "a key twice": lambda raw: raw.replace(b'"lock":"auto"', b'"lock":"required","lock":"auto"'),
    "deep nesting": lambda raw: raw.replace(b'"secrets":{}', b'"secrets":' + b'{"a":' * 900 + b"{}" + b"}" * 900),
    "deeper nesting": lambda raw: raw.replace(b'"secrets":{}', b'"secrets":' + b"[" * 90000 + b"]" * 90000),
    "deep settings": lambda raw: raw.replace(b'"settings":{}', b'"settings":' + b'{"a":' * 900 + b"{}" + b"}" * 900),
    "too many values": lambda _: b"[" + b"0," * 10_000_001 + b"0]",
    "principals of another kind": doc(lambda d: d.update(principals={"ada": 1})),
    "an unknown event": doc(lambda d: d.update(hooks={"h": {"event": "Never"}})),
}  # fmt: skip


@pytest.mark.campaign(keep=12)
@pytest.mark.parametrize("name", NONSENSE)
def test_whatever_a_charter_holds_every_ledger_is_reported(bare: State, name: str):
    before = kept(bare).read_bytes()
    raw = NONSENSE[name](before)
    assert raw != before
    use(bare, raw)
    found = verify(bare, status=4)
    assert "charter" in found["verdict"]["said"]
    assert all(not report["bytes"]["failed"] and not report["structure"]["failed"] for report in found["reports"])
    assert "charter" in verify(bare, session(bare), status=4)["verdict"]["said"]


def test_processes_that_verify_together_report_every_ledger_too(bare: State):
    use(bare, b"{}")
    assert bare.place.here("verify", "--jobs", "2", status=4).out.startswith("BROKEN")


READERS = [
    ["replay", "last"],
    ["replay", "last", "--json"],
    ["replay", "last", "--html"],
    ["tree", "last"],
    ["stats"],
    ["stats", "last"],
    ["export", "last", "--as", "seed-002"],
    ["export", "last", "--as", "cloudevents"],
    ["abilities"],
    ["explain", "last", "2"],
    ["whatif", "last", "--system", "."],
    ["doctor"],
    ["sessions"],
    ["approvals", "list"],
    ["tasks"],
    ["processes"],
    ["workdocs", "last"],
    ["lock"],
    ["fork", "last", "--at", "1"],
    ["call", "echo", "--args", '{"text":"three"}'],
]


@pytest.mark.campaign(keep=2)
@pytest.mark.parametrize(
    "name", ["an empty object", "a list", "policies null", "deep settings", "infinity", "a limit that is text"]
)
def test_no_command_that_reads_a_charter_ends_with_an_internal_error(bare: State, name: str):
    use(bare, NONSENSE[name](kept(bare).read_bytes()))
    for argv in READERS:
        ran = bare.place.here(*argv)
        assert "internal error" not in ran.err, (argv, ran.err)
        assert ran.status in (0, 1, 4), (argv, ran)
