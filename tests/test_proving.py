"""Proofs: made from files, checked by the kernel and by a second implementation; what was changed proves nothing."""

import copy
import json
import sys
from base64 import b64encode

import ledgers
import logs
import proofcheck
import pytest
from commandline import SCHEMAS
from hypothesis import given
from hypothesis import strategies as st

from deedbook.cli import program as cli
from deedbook.format.errors import LedgerError
from deedbook.format.files import Folder
from deedbook.format.notes import SigningKey, VerifierKey, WitnessKey
from deedbook_audit import proving
from deedbook_audit.verification.evidence import UNTRUSTED, ProofTrust, judge_proof

KEY, NEXT = (ledgers.verifier_key(logs.ORIGIN, seed) for seed in (ledgers.SEED, logs.NEXT_SEED))
WITNESS = WitnessKey.parse(logs.witness_key())


def write(place, *books, own):
    for book in books:
        folder = place / "sessions" / book.session_id
        folder.mkdir(parents=True)
        (folder / ".events.jsonl").write_bytes(b"".join(book.lines))
    (place / "workspace").mkdir()
    (place / "workspace" / ".events.jsonl").write_bytes(b"".join(own.lines))
    return place


def begun():
    own = ledgers.Book(logs.OWN, genesis="workspace")
    above = own.add("ledger.created", {"format": "1.1", "kernel": "0.1.0", "workspace": "w"})
    return own, logs.Log(own, above)


class Filled(Folder):
    """A state folder that knows what was written into it."""


@pytest.fixture(scope="module")
def state(tmp_path_factory):
    """Two sessions, a log of five checkpoints of which the fourth is witnessed, and a change of keys between them."""
    run, call = ledgers.run(), ledgers.call()
    own, log = begun()
    log.key()
    log.checkpoint("key")
    log.leaf(run, 5)
    log.checkpoint("events")
    log.checkpoint("session_end", run)
    log.key(logs.NEXT_SEED, ledgers.SEED)
    log.witnessed(log.checkpoint("session_end", call))
    log.checkpoint("asked")
    place = write(tmp_path_factory.mktemp("state"), run, call, own=own)
    with Filled.at(place) as folder:
        folder.run, folder.call, folder.own = run, call, own
        yield folder


@pytest.fixture(scope="module")
def some(state):
    """Return one proof of each kind."""
    return {
        "event": proving.prove_inclusion(state, state.run.session_id, 7),
        "session": proving.prove_inclusion(state, state.run.session_id),
        "consistency": proving.prove_consistency(state, "3", "newest"),
    }


def judged(proof, *keys, witnesses=(WITNESS,)):
    """Return the kernel's verdict; the second implementation says the same, for the first of *keys*."""
    assert not SCHEMAS.validator("output_proof_v1").violations(proof)
    told = judge_proof(proof, ProofTrust({VerifierKey.parse(key): "--log-key" for key in keys}, witnesses))
    assert told.proved is proofcheck.proves(proof, *keys[:1])
    assert not SCHEMAS.validator("output_verify_proof_v1").violations(told.as_json())
    return told


# --- what is proved -------------------------------------------------------------------------------------------------


def test_every_event_of_every_ledger_is_proved(state):
    for book in (state.run, state.call):
        for seq, line in enumerate(book.lines):
            proof = proving.prove_inclusion(state, book.session_id, seq)
            assert proof["event"]["line"].encode() + b"\n" == line
            assert len(proof["event"]["path"]) <= (len(book.lines) - 1).bit_length()
            told = judged(proof, KEY)
            assert told.proved, told.summary
            assert told.about["seq"] == seq
    for seq in range(10):
        assert judged(proving.prove_inclusion(state, "workspace", seq), KEY).proved


def test_every_pair_of_checkpoints_is_proved_in_one_direction(state):
    sizes = [each.size for each in proving.ProofLog(state).checkpoints]
    for old in sizes:
        for new in sizes:
            if old <= new:
                assert judged(proving.prove_consistency(state, str(old), str(new)), KEY).proved
            else:
                with pytest.raises(LedgerError, match="is no beginning"):
                    proving.prove_consistency(state, str(old), str(new))


def test_proof_leads_to_the_newest_checkpoint_that_a_witness_cosigned(state, some):
    told = judged(some["event"], KEY)
    assert told.size == 7
    assert list(told.witnessed) == [(logs.WITNESS, "2026-11-22T08:00:00Z")]
    assert told.summary.startswith("PROVED: event 7 (")
    assert told.summary.endswith(f"; witnessed by {logs.WITNESS} at 2026-11-22T08:00:00Z)")
    stranger = judged(some["event"], KEY, witnesses=())
    assert (stranger.strangers, stranger.summary.endswith("; unwitnessed)")) == (1, True)


def test_what_only_an_unwitnessed_checkpoint_covers_is_proved_up_to_that(state):
    seq = len(state.own.lines) - 3
    told = judged(proving.prove_inclusion(state, "workspace", seq), KEY)
    assert (told.proved, told.size, told.summary.endswith("; unwitnessed)")) == (True, 8, True)


def test_note_that_somebody_kept_is_the_beginning_of_the_log(state):
    kept = proving.ProofLog(state).checkpoints[1].note
    assert judged(proving.prove_consistency(state, kept, "newest"), KEY).about == {"old_size": 3}


def test_proof_says_who_vouches_for_the_key(some):
    """A key that was named, one that such a key brought in or took over from, or nobody but the proof."""
    assert judged(some["event"], NEXT).vouched == "--log-key"
    assert judged(some["event"], KEY).vouched == "--log-key, and a change of keys that the key from there signed"
    assert judged(some["consistency"], NEXT).proved
    alone = judged(some["event"])
    assert (alone.proved, alone.vouched) == (True, UNTRUSTED)
    assert "only the proof itself vouches for the key" in list(alone.lines())[1]
    other = ledgers.verifier_key(logs.ORIGIN, b"x" * 32)
    assert judged(some["event"], other).summary.startswith("NOT PROVED: none of the keys that are believed signed")


def test_key_of_another_log_vouches_for_nothing(some):
    told = judge_proof(
        some["event"], ProofTrust({VerifierKey.parse(ledgers.verifier_key("another", ledgers.SEED)): "--log-key"})
    )
    assert told.vouched == UNTRUSTED


def test_lost_key_is_followed_no_further(tmp_path):
    """Its successor signed for itself alone: whoever believes the lost one has to be told of the new one."""
    own, log = begun()
    log.key()
    log.checkpoint("key")
    log.key(logs.NEXT_SEED, ledgers.SEED, lost=True)
    log.checkpoint("key")
    with Folder.at(write(tmp_path, own=own)) as state:
        proof = proving.prove_inclusion(state, "workspace", 3)
    assert not judged(proof, KEY).proved
    assert judged(proof, NEXT).proved


def test_excised_payload_leaves_the_proof_as_it_was(tmp_path):
    run = ledgers.run()
    own, log = begun()
    log.key()
    log.checkpoint("session_end", run)
    line = json.loads(run.lines[3])
    at = run.lines[3].index(b',"payload":') + len(b',"payload":')
    run.lines[3] = run.lines[3][:at] + b'{"$excised":"%b"}}\n' % line["payload_hash"].encode()
    with Folder.at(write(tmp_path, run, own=own)) as state:
        told = judged(proving.prove_inclusion(state, run.session_id, 3), KEY)
    assert (told.proved, told.about["excised"]) == (True, True)
    assert "whose payload was taken out of its line" in told.summary


# --- what is not ----------------------------------------------------------------------------------------------------


def test_changed_proof_proves_nothing(some):
    """Every text and number in it is changed, one at a time; both implementations refuse each."""
    for proof in some.values():
        for path in places(proof):
            changed = copy.deepcopy(proof)
            into, last = changed, path[-1]
            for step in path[:-1]:
                into = into[step]
            into[last] = other(into[last])
            if path[0] == "keys" and path[1:] == (0,):
                continue  # the first statement, which the reader's own key does not need
            told = judge_proof(changed, ProofTrust({VerifierKey.parse(KEY): "--log-key"}, (WITNESS,)))
            assert not told.proved, path
            assert not proofcheck.proves(changed, KEY), path


def places(value, path=()):
    if isinstance(value, dict):
        for name in value.keys() - {"schema_version"}:
            yield from places(value[name], (*path, name))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from places(item, (*path, number))
    else:
        yield path


def other(value):
    if isinstance(value, int):
        return value + 1
    if value in ("inclusion", "consistency"):
        return {"inclusion": "consistency", "consistency": "inclusion"}[value]
    middle = len(value) // 2
    return value[:middle] + ("0" if value[middle] != "0" else "1") + value[middle + 1 :]


@given(data=st.data())
def test_random_bytes_changed_in_a_proof_never_prove_another_line(some, data):
    """Whatever a proof still proves after a change is the same line under the same root."""
    raw = bytearray(json.dumps(some["event"], ensure_ascii=False).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        changed = json.loads(raw)
    except ValueError:
        return
    if not isinstance(changed, dict) or SCHEMAS.validator("output_proof_v1").violations(changed):
        return
    if judge_proof(changed, ProofTrust({VerifierKey.parse(KEY): ""})).proved:
        assert changed.get("event", some["event"]["event"])["line"] == some["event"]["event"]["line"]
        assert changed["leaf"] == some["event"]["leaf"]


def test_proofs_of_a_fork_do_not_hold_against_a_note_that_was_kept(tmp_path, state):
    """The log is written anew with the same key: its own proofs hold, but nothing leads there from the old note."""
    kept = proving.ProofLog(state).checkpoints[1].note
    own, log = begun()
    log.key()
    for _ in range(5):
        log.checkpoint("asked")
    with Folder.at(write(tmp_path, own=own)) as forked:
        assert judged(proving.prove_inclusion(forked, "workspace", 2), KEY).proved
        with pytest.raises(LedgerError, match="written anew"):
            proving.prove_consistency(forked, kept, "newest")
        lying = proving.prove_consistency(forked, "3", "newest") | {"old": kept}
    assert judged(lying, KEY).summary.startswith("NOT PROVED: the log of 5 leaves does not go on from that of 3")


@pytest.mark.parametrize("name", ["lines cut", "line replaced", "file gone", "leaf changed", "key gone"])
def test_files_that_are_not_what_was_signed_are_said_to_be(tmp_path, name):
    run, call = ledgers.run(), ledgers.call()
    own, log = begun()
    log.key()
    log.checkpoint("session_end", run)
    if name == "lines cut":
        del run.lines[4:]
    elif name == "line replaced":
        run.lines[4] = call.lines[1]
    elif name == "leaf changed":
        own.lines = ledgers.forge(
            [
                line.replace(b'"size":%d' % len(run.lines), b'"size":4') if b"ledger.leaf" in line else line
                for line in own.lines
            ],
            genesis="workspace",
        )
    elif name == "key gone":
        own.lines = [own.lines[0], *own.lines[2:]]
    place = write(tmp_path, run, own=own)
    if name == "file gone":
        (place / "sessions" / run.session_id / ".events.jsonl").unlink()
    with Folder.at(place) as state, pytest.raises(LedgerError) as caught:
        proving.prove_inclusion(state, run.session_id, 2)
    assert caught.value.error.code == "LEDGER_UNSOUND"


def test_what_no_checkpoint_covers_cannot_be_proved_yet(tmp_path, state):
    with pytest.raises(LedgerError, match="no checkpoint covers"):
        proving.prove_inclusion(state, "f" * 32)
    for session, seq in ((state.run.session_id, 999), ("workspace", 10_000)):
        with pytest.raises(LedgerError, match=f"there is no event {seq}: there are [0-9]+, and the last is"):
            proving.prove_inclusion(state, session, seq)
    with pytest.raises(LedgerError, match=r"no checkpoint of '4' leaves; the newest have 8, 7, "):
        proving.prove_consistency(state, "4", "newest")
    own, _ = begun()
    with Folder.at(write(tmp_path, own=own)) as empty, pytest.raises(LedgerError, match="deedbook keys rotate"):
        proving.prove_inclusion(empty, "workspace")


# --- the command ----------------------------------------------------------------------------------------------------


def called(monkeypatch, capsys, *args):
    monkeypatch.setattr(sys, "argv", ["deedbook", *args])
    status = cli._status(cli.GlobalOptions())
    return status, *capsys.readouterr()


def test_proof_is_checked_by_the_command_without_a_workspace(tmp_path, some, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "proof.json").write_text(json.dumps(some["event"]))
    (tmp_path / "log.pub").write_text(f"{KEY}\n")
    status, out, _ = called(monkeypatch, capsys, "verify", "--proof", "proof.json")
    assert (status, "unwitnessed" in out, "only the proof itself vouches" in out) == (0, True, True)
    keys = ("--log-key", "log.pub", "--witness-key", str(WITNESS))
    status, out, _ = called(monkeypatch, capsys, "verify", "--proof", "proof.json", *keys)
    assert (status, "witnessed by witness.example.com/w1 at" in out, "known from --log-key" in out) == (0, True, True)
    status, out, _ = called(monkeypatch, capsys, "verify", "--proof", "proof.json", "--json", *keys)
    assert not SCHEMAS.validator("output_verify_proof_v1").violations(json.loads(out))
    (tmp_path / "proof.json").write_text(json.dumps(some["event"] | {"path": []}))
    status, out, err = called(monkeypatch, capsys, "verify", "--proof", "proof.json", *keys)
    assert (status, out, "NOT PROVED: leaf" in err) == (4, "", True)
    status, out, _ = called(monkeypatch, capsys, "verify", "--proof", "proof.json", "--json")
    assert (status, json.loads(out)["proved"]) == (4, False)


@pytest.mark.parametrize("text", ["", "{}", "[]", "no", '{"a":1,"a":2}', '{"schema_version":"v2"}', "\ud800"])
def test_what_is_no_proof_proves_nothing(tmp_path, monkeypatch, capsys, text):
    (tmp_path / "proof.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    status, _, err = called(monkeypatch, capsys, "verify", "--proof", str(tmp_path / "proof.json"))
    assert (status, "NOT PROVED: this is no proof" in err) == (4, True)


@pytest.mark.parametrize(
    "args",
    [
        ("prove",), ("prove", "x", "--consistency", "1", "2"), ("prove", "--consistency", "1", "2", "--event", "1"),
        ("verify", "--proof", "none.json"),
        ("verify", "--proof", "none.json", "--log-key", "none"),
    ],
)  # fmt: skip
def test_commands_say_how_they_are_called(monkeypatch, capsys, args):
    assert called(monkeypatch, capsys, *args)[0] == 2


def test_ledger_is_held_against_a_proof_of_its_session(tmp_path, state, some, monkeypatch, capsys):
    (tmp_path / "proof.json").write_text(json.dumps(some["session"]))
    whole = state.run.lines
    cases = {"same": whole, "more": [*whole, whole[-1]], "cut": whole[:-1]}
    cases["line changed"] = [*whole[:3], whole[3].replace(b'"seq":3', b'"seq":4'), *whole[4:]]
    cases["hash changed"] = [*whole[:3], whole[3].replace(b'"envelope_hash":"', b'"envelope_hash":"0'), *whole[4:]]
    cases["payload changed"] = [*whole[:2], whole[2].replace(b"Ada", b"Eve"), *whole[3:]]
    cases["no line"] = [*whole[:2], b"{}\n", *whole[3:]]
    assert len({b"".join(lines) for lines in cases.values()}) == len(cases)
    told = {}
    for name, lines in cases.items():
        (tmp_path / "ledger.jsonl").write_bytes(b"".join(lines))
        args = ("verify", str(tmp_path / "ledger.jsonl"), "--proof", str(tmp_path / "proof.json"), "--log-key", KEY)
        status, out, err = called(monkeypatch, capsys, *args)
        told[name] = (status, out.splitlines()[2:3] or err.partition("\n")[0])
    events = len(whole)
    assert told["same"] == (0, [f"the ledger here begins with these {events} events, and has 0 more"])
    assert told["more"] == (0, [f"the ledger here begins with these {events} events, and has 1 more"])
    why = f"error: NOT PROVED: the ledger here does not begin with the {events} events that the proof is about"
    assert {told[name] for name in cases.keys() - {"same", "more"}} == {(4, why)}


def test_keys_of_the_kernel_and_of_the_second_implementation_are_the_same():
    key = SigningKey(logs.ORIGIN, ledgers.SEED)
    assert str(key.public) == KEY
    assert proofcheck.key_of(KEY, 1)[1] == key.public.id
    assert b64encode(key.public.public).decode() in b64encode(proofcheck.key_of(KEY, 1)[2].public_bytes_raw()).decode()
