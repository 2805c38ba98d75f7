"""The kernel's reader and the one in JavaScript agree: ledgers, states with a log, proofs; honest, tampered, erased."""

import copy
import json
import shutil
from hashlib import sha256

import ledgers
import logs
import pytest
from agreeing import NOTHING, differences, javascript
from commandline import SCHEMAS
from test_old_verification import BREAKS as BREAKS_000
from test_old_verification import complete
from test_proving import begun, other, places, write
from test_verify import BREAKS_1_0, honest_1_0, line_1_0

from deedbook.format.files import Folder
from deedbook.format.notes import VerifierKey
from deedbook_audit import proving
from deedbook_audit.verification.evidence import ProofTrust, judge_proof
from deedbook_audit.verify import verify_file

KEY, NEXT = (ledgers.verifier_key(logs.ORIGIN, seed) for seed in (ledgers.SEED, logs.NEXT_SEED))
OTHER = ledgers.verifier_key(logs.ORIGIN, b"x" * 32)
WITNESS = logs.witness_key()
EXCISED = {"payload_hash": ledgers.HASH, "size": 1, "reason": "law", "by": "ada"}
MADE = (
    ledgers.run, ledgers.call, ledgers.workspace, ledgers.approved, ledgers.bridged, ledgers.served, ledgers.queue,
    ledgers.tasked, ledgers.chores, logs.workspace,
)  # fmt: skip


def excise(book, number):
    """Take the payload out of a line, after saying so at the end."""
    line = json.loads(book.lines[number])
    said = {"seq": number, "payload_hash": line["payload_hash"], "size": 10, "reason": "law", "by": "ada"}
    book.add("ledger.excised", said, parent=f"{1:016x}")
    gone(book, number)


def gone(book, number):
    digest = json.loads(book.lines[number])["payload_hash"].encode()
    at = book.lines[number].index(b',"payload":') + len(b',"payload":')
    book.lines[number] = book.lines[number][:at] + b'{"$excised":"' + digest + b'"}}\n'


def test_honest_ledgers_are_sound_for_both(tmp_path):
    files = {}
    for make in MADE:
        (tmp_path / f"{make.__module__}{make.__name__}").mkdir()
        files[make.__name__ + make.__module__] = make().write(tmp_path / f"{make.__module__}{make.__name__}")
    assert set(javascript(*files.values())) == {"sound"}
    assert differences(files) == []


def test_sealed_erased_and_excised_ledgers_are_judged_alike(tmp_path):
    cases = {}

    def case(name, change, files=()):
        place = tmp_path / name
        (place / "sealed").mkdir(parents=True)
        salt, value = b"s" * 32, b'"secret"'
        digest = sha256(salt + value).hexdigest()
        book = ledgers.Book()
        said = {"event_type": "x", "data": {"text": {"$sealed": digest, "size": len(value)}}}
        book.add("context.noted", said, parent=ledgers.start(book))
        book.add("context.noted", {"event_type": "y", "data": {}}, parent=f"{1:016x}")
        for raw in files:
            (place / "sealed" / digest).write_bytes(raw(salt + value))
        change(book)
        cases[name] = book.write(place)

    case("sealed", lambda _: None, [lambda raw: raw])
    case("erased", lambda _: None)
    case("sealed value changed", lambda _: None, [lambda raw: raw[:-2] + b'X"'])
    case("sealed value cut", lambda _: None, [lambda raw: raw[:-1]])
    case("excised", lambda book: excise(book, 1))
    case("excised twice", lambda book: [excise(book, 1), excise(book, 2)])
    case("excised without a word", lambda book: gone(book, 1))
    case("excised with another's word", lambda book: [excise(book, 1), gone(book, 2)])
    case("first line excised", lambda book: excise(book, 0))
    case("excision excised", lambda book: [excise(book, 1), gone(book, 3)])
    said = dict(zip(cases, javascript(*cases.values()), strict=True))
    assert differences(cases) == []
    assert {name for name, verdict in said.items() if verdict == "sound"} == {
        "sealed", "erased", "excised", "excised twice",
    }  # fmt: skip


def test_ledgers_of_envelope_1_0_are_judged_alike(tmp_path):
    """Honest, broken in each of the ways that the kernel's own tests know, and with numbers as Python spells them."""
    numbers = [
        0,
        -0.0,
        1.5,
        1e16,
        1e-5,
        0.0001,
        1e22,
        123456789012345680.0,
        5e-324,
        2**70,
        -7,
        1e15,
        0.1,
        [1.0, {"b": 2}],
    ]
    more = line_1_0(
        "note", {"_span_id": "x", "_parent_span_id": "a", "n": numbers, "\U0001f600": 1, "\ue000": "\x7f\x01"}
    )
    cases = {"honest": honest_1_0(), "numbers": [*honest_1_0(), more], "torn": [*honest_1_0(), b"{"]}
    for name, (change, _) in BREAKS_1_0.items():
        cases[name] = [honest_1_0()[0], change(honest_1_0()), *honest_1_0()[2:]]
        cases[f"{name}, behind"] = [*honest_1_0(), change(honest_1_0())]
    cases["spelled otherwise"] = [*honest_1_0(), more.replace(b"1e+16", b"1e16")]
    files = {}
    for number, (name, lines) in enumerate(cases.items()):
        files[name] = tmp_path / f"{number}.jsonl"
        files[name].write_bytes(b"".join(lines))
    assert differences(files) == []
    assert javascript(files["honest"], files["numbers"], files["spelled otherwise"]) == [
        "sound", "sound", "line 6: canonical",
    ]  # fmt: skip


def test_events_of_seed_000_are_judged_alike(tmp_path):
    cases = {name: [*complete(), line] for name, (line, _) in BREAKS_000.items()}
    cases |= {"honest": complete(), "torn": [*complete(), b"{"], "cut": complete()[:3]}
    files = {}
    for number, (name, lines) in enumerate(cases.items()):
        files[name] = tmp_path / f"{number}.jsonl"
        files[name].write_bytes(b"".join(lines))
    assert differences(files) == []
    assert javascript(files["honest"], files["cut"]) == [NOTHING, NOTHING]


# --- states with a log ----------------------------------------------------------------------------------------------


def stated(place, change=lambda **_: None, *, kept=True):
    """Write a state folder with a log of three checkpoints, one of them witnessed, after *change*."""
    run, call = ledgers.run(), ledgers.call()
    own, log = begun()
    log.key()
    log.checkpoint("key")
    log.leaf(run, 5)
    log.checkpoint("events")
    log.key(logs.NEXT_SEED, ledgers.SEED)
    for book in (run, call):
        head = {"session_id": book.session_id, "events": 1, "head": json.loads(book.lines[0])["envelope_hash"]}
        own.add("ledger.session", {**head, "state": "open"}, parent=f"{1:016x}")
    note = log.witnessed(log.checkpoint("session_end", run, call))
    change(run=run, call=call, own=own, log=log)
    write(place, run, call, own=own)
    if kept:
        (place / "checkpoint").write_text(note)
    return place


def rehashed(own, old, new, kind):
    """Change the events of one type, and make the workspace ledger's hashes right again."""
    lines = [line.replace(old, new, 1) if b'"event_type":"%b"' % kind in line else line for line in own.lines]
    assert lines != own.lines
    own.lines = ledgers.forge(lines, genesis="workspace")


STATES = {
    "honest": (lambda **_: None, "sound: checkpoint 6, witnessed up to 6"),
    "session cut": (lambda run, **_: run.lines.__delitem__(slice(4, None)), "ledger.leaf"),
    "session with more behind": (
        lambda call, **_: call.add("ledger.excised", {**EXCISED, "seq": 99}, parent=f"{1:016x}"), "sound: checkpoint 6",
    ),
    "session written anew": (
        lambda call, **_: setattr(call, "lines", ledgers.forge([line.replace(b"hi", b"ho") for line in call.lines])),
        "ledger.leaf",
    ),
    "leaf with another head": (
        lambda own, **_: rehashed(own, b'"head":"', b'"head":"0', b"ledger.leaf"), "payload",
    ),
    "leaf of another index": (
        lambda own, **_: rehashed(own, b'"index":2', b'"index":3', b"ledger.leaf"), "ledger.leaf",
    ),
    "checkpoint of another size": (
        lambda own, **_: rehashed(own, b'"size":1,', b'"size":2,', b"ledger.checkpoint"), "ledger.checkpoint",
    ),
    "key that nobody signed": (
        lambda own, **_: rehashed(own, NEXT.encode(), OTHER.encode(), b"ledger.key"), "ledger.key",
    ),
    "cosignature of other text": (
        lambda own, **_: rehashed(own, b'"size":6', b'"size":3', b"ledger.witnessed"), "ledger.witnessed",
    ),
    "tail of the workspace ledger cut": (lambda own, **_: own.lines.__delitem__(slice(-4, None)), "ROLLED BACK"),
}  # fmt: skip


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory):
    """Return what JavaScript says of each state; a process each, since each has keys and a folder of its own."""
    told = {}
    for name, (change, _) in STATES.items():
        place = stated(tmp_path_factory.mktemp("state") / "s", change)
        told[name] = javascript("--state", place, KEY, NEXT, WITNESS)[0]
    return told


@pytest.mark.parametrize("name", STATES)
def test_log_of_a_state_folder_is_checked(verdicts, name):
    assert STATES[name][1] in verdicts[name]
    assert verdicts[name].startswith("sound") is STATES[name][1].startswith("sound")


# --- proofs ---------------------------------------------------------------------------------------------------------


def test_proofs_and_changed_proofs_are_judged_alike(tmp_path):
    """Each of some forty changed proofs is checked in JavaScript, and by the kernel."""
    place = stated(tmp_path / "s")
    run = ledgers.run()
    with Folder.at(place) as state:
        event = proving.prove_inclusion(state, run.session_id, 7)
        honest = [
            event,
            proving.prove_inclusion(state, run.session_id),
            proving.prove_inclusion(state, "workspace", 2),
            proving.prove_consistency(state, "3", "newest"),
        ]
    cases = [*honest]
    for number, path in enumerate(places(event)):
        changed = copy.deepcopy(event)
        into = changed
        for step in path[:-1]:
            into = into[step]
        into[path[-1]] = other(into[path[-1]])
        cases += [changed] if number % 2 else []
    trust = ProofTrust({VerifierKey.parse(KEY): "--log-key"})
    said = []
    for number, proof in enumerate(cases):
        (tmp_path / f"{number}.json").write_text(json.dumps(proof))
    said = javascript("--proof", *[tmp_path / f"{number}.json" for number in range(len(cases))], KEY)
    kernel = [
        not SCHEMAS.validator("output_proof_v1").violations(proof) and judge_proof(proof, trust).proved
        for proof in cases
    ]
    assert [verdict == "proved" for verdict in said] == kernel
    assert kernel.count(True) >= 4
    shutil.rmtree(place)


def test_reader_of_the_kernel_takes_the_honest_state(tmp_path):
    place = stated(tmp_path / "s")
    for file in place.rglob(".events.jsonl"):
        assert verify_file(file, schemas=SCHEMAS).sound
