"""verify holds ledgers against the log, and that against whoever knows more: each attack in its own words."""

import json
import os
import re
import shutil
from hashlib import sha256
from pathlib import Path

import ledgers
import pytest
from agreeing import javascript
from commandline import Place

from deedbook.format.checkpoints import Checkpoint
from deedbook.format.notes import Note, SigningKey
from deedbook_audit.transparency.cosignatures import WitnessSigner

SETTINGS = """schema_version: v1
abilities: {echo: {summary: Echo a text back., handler: {tool: echo}}}
policies: {baseline: {kind: rules, rules: [{match: {effects: [none]}, then: allow}], default: deny}}
"""


def workspace(folder):
    made = Place(folder)
    (folder / ".system").mkdir(parents=True)
    (folder / ".system" / "deedbook.yaml").write_text(SETTINGS)
    key = made.here("keys", "rotate", status=0).out.strip()
    for text in ("one", "two"):
        made.here("call", "echo", "--args", json.dumps({"text": text}), status=0)
    return made, key


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    """Give a workspace with a log, its first key, and what its state and its checkpoint were one session before."""
    made, key = workspace(tmp_path_factory.mktemp("log") / "w")
    older = made.path.parent / "older"
    shutil.copytree(made.path / ".deedbook", older)
    made.here("call", "echo", "--args", '{"text":"three"}', status=0)
    return made, key, older


@pytest.fixture
def case(honest, tmp_path):
    """Give a copy that may be attacked, and the ids of its sessions."""
    made = Place(tmp_path / "w")
    shutil.copytree(honest[0].path, made.path)
    return made, sorted(place.name for place in (made.path / ".deedbook" / "sessions").iterdir())


def ledger(place, name):
    folder = place.path / ".deedbook"
    return (folder / "workspace" if name == "workspace" else folder / "sessions" / name) / ".events.jsonl"


def verdict(place, *args):
    """Return the verdict, which is the first line that verify prints; its exit status says the same."""
    told = place.here("verify", "--json", *args)
    found = told.fits("output_verify_v1")
    assert (told.status == 0) == found["sound"] == (found["verdict"]["kind"] in ("checkpointed", "unwitnessed"))
    return found["verdict"]["said"]


def rewrite(file, before, after):
    """Change a ledger and compute all hashes anew, as whoever can write the file may do."""
    lines = [line.replace(before, after) for line in file.read_bytes().splitlines(keepends=True)]
    file.write_bytes(b"".join(ledgers.forge(lines, genesis="workspace" if "workspace" in str(file) else "session")))


# --- honest -----------------------------------------------------------------------------------------------------------


def test_honest_workspace_is_complete_up_to_its_newest_checkpoint(honest):
    place, key, _ = honest
    said = verdict(place)
    assert said.startswith("sound and complete up to checkpoint 7 (")
    assert f"key {key.split('+')[1]}, trusted; unwitnessed), and 1 event after it" in said
    told = place.here("verify", "--json", status=0).fits("output_verify_v1")
    assert sorted(told["verdict"]["ledgers"].values()) == [0, 0, 0, 1]
    assert (told["log"]["leaves"], told["log"]["failed"]) == (7, 0)
    assert verdict(place, "last").endswith("and 0 events after it")
    lines = place.here("verify", status=0).out.splitlines()
    assert (lines[0], lines[-1]) == (said, "all 4 sound")


def test_key_that_only_the_ledger_vouches_for_is_called_so(honest, tmp_path, monkeypatch):
    place, key, _ = honest
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert "which only the ledger itself vouches for; unwitnessed" in verdict(place)
    assert ", trusted; unwitnessed" in verdict(place, "--log-key", key)
    (place.path.parent / "log.pub").write_text(key)
    assert ", trusted; " in verdict(place, "--log-key", str(place.path.parent / "log.pub"))


def test_key_that_was_handed_over_is_believed_and_one_after_a_lost_key_is_not(case, honest, tmp_path, monkeypatch):
    place, _ = case
    shutil.copytree(os.environ["XDG_CONFIG_HOME"], tmp_path / "ring")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "ring"))
    place.here("keys", "rotate", status=0)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "nobody"))
    assert "handed over to by a trusted one" in verdict(place, "--log-key", honest[1])
    place.here("keys", "rotate", "--lost", status=0)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "auditor"))
    said = verdict(place, "--log-key", honest[1])
    assert said.startswith("BROKEN at or before event ")
    assert said.endswith(f"for which none of the trusted keys ({honest[1].split('+')[1]}) vouches")


# --- attacks ----------------------------------------------------------------------------------------------------------


def cut_tail(place, sessions):
    file = ledger(place, sessions[0])
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:-1]))
    return f"ROLLED BACK: session {sessions[0]} has 4 events, and a checkpoint covers 5"


def delete(place, sessions):
    shutil.rmtree(ledger(place, sessions[0]).parent)
    return f"ROLLED BACK: session {sessions[0]} has 0 events, and a checkpoint covers 5"


def swap(place, sessions):
    shutil.copyfile(ledger(place, sessions[1]), ledger(place, sessions[0]))
    return f"BROKEN at or before event 0 of session {sessions[0]}: in its place lies the ledger of {sessions[1]}"


def rewrite_session(place, sessions):
    for text in (b'"one"', b'"two"', b'"three"'):
        rewrite(ledger(place, sessions[0]), text, b'"none"')
    return f"BROKEN at or before event 4 of session {sessions[0]}: its first 5 events are not those that a checkpoint"


def change_byte(place, sessions):
    file = ledger(place, sessions[0])
    file.write_bytes(file.read_bytes().replace(b'"purpose":"call"', b'"purpose":"cull"'))
    return f"BROKEN at event 0 of session {sessions[0]}: payload_hash: expected "


def cut_workspace(place, _):
    file = ledger(place, "workspace")
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:12]))
    return "ROLLED BACK: the log has "


def cut_checkpoint(place, _):
    """Cut the newest checkpoint's line and all after it; its leaves stay."""
    file = ledger(place, "workspace")
    lines = file.read_bytes().splitlines(keepends=True)
    last = max(seq for seq, line in enumerate(lines) if b'"event_type":"ledger.checkpoint"' in line)
    file.write_bytes(b"".join(lines[:last]))
    return "ROLLED BACK: the newest ledger.checkpoint has 5 leaves, and the checkpoint of 7 leaves in "


def rewrite_workspace(place, _):
    rewrite(ledger(place, "workspace"), b'"kernel":"0.', b'"kernel":"1.')
    return "BROKEN at or before event "


def delete_log(place, _):
    ledger(place, "workspace").unlink()
    return "ROLLED BACK: the workspace has no log, and a checkpoint of 7 leaves in "


def tear(place, _):
    with ledger(place, "workspace").open("ab") as file:
        file.write(b'{"schema')
    return "torn after event "


@pytest.mark.parametrize(
    "attack",
    [
        cut_tail,
        delete,
        swap,
        rewrite_session,
        change_byte,
        cut_workspace,
        cut_checkpoint,
        rewrite_workspace,
        delete_log,
        tear,
    ],
)
def test_attack_is_found_in_its_own_words(case, attack):
    place, sessions = case
    wanted = attack(place, sessions)
    assert verdict(place).startswith(wanted)
    if attack in (cut_tail, rewrite_session):
        assert verdict(place, sessions[0]).startswith(wanted)
        assert verdict(place, sessions[1]).startswith("sound and complete up to checkpoint 7")


@pytest.mark.parametrize("attack", [cut_workspace, cut_checkpoint, delete_log])
def test_log_that_was_cut_is_a_fault_for_doctor_and_for_the_reader_in_javascript(case, attack):
    place, sessions = case
    attack(place, sessions)
    found = place.here("doctor", "--json").fits("output_doctor_v1")["checks"]
    assert [each["level"] for each in found if each["name"] == "log"] == ["fault"]
    assert not javascript("--state", place.path / ".deedbook")[0].startswith("sound")


def test_missing_file_of_the_newest_checkpoint_is_a_note_and_no_fault(case):
    place, _ = case
    file = place.path / ".deedbook" / "checkpoint"
    assert str(file) not in place.here("verify", status=0).out
    file.unlink()
    first, note, *_ = place.here("verify", status=0).out.splitlines()
    assert first.startswith("sound and complete up to checkpoint 7")
    assert note.startswith(f"{file} is missing: ")


# --- everything put back, everything written anew ---------------------------------------------------------------------


def roll_back(place, older):
    shutil.rmtree(place.path / ".deedbook")
    shutil.copytree(older, place.path / ".deedbook")


def test_whole_state_that_was_put_back_is_found_by_whoever_holds_a_newer_checkpoint(case, honest):
    place, _ = case
    kept = place.path / "kept"
    shutil.copyfile(place.path / ".deedbook" / "checkpoint", kept)
    assert verdict(place, "--checkpoint", str(kept)).startswith("sound and complete up to checkpoint 7")
    roll_back(place, honest[2])
    assert verdict(place).startswith("sound and complete up to checkpoint 5"), "nobody here can know better"
    wanted = f"ROLLED BACK: the log has 5 leaves, and the checkpoint of 7 leaves in {kept} is signed"
    assert verdict(place, "--checkpoint", str(kept)) == wanted


def test_whole_state_that_was_written_anew_is_found_by_its_key_and_by_an_older_checkpoint(
    honest, tmp_path, monkeypatch
):
    _, key, older = honest
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "attacker"))
    forged, _ = workspace(tmp_path / "forged")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "auditor"))
    assert verdict(forged).startswith("sound and complete up to checkpoint 5"), "it is sound by itself"
    said = verdict(forged, "--log-key", key)
    assert said.startswith(f"ROLLED BACK: the key {'+'.join(key.split('+')[:2])} names the log of another workspace")
    said = verdict(forged, "--checkpoint", str(older / "checkpoint"))
    assert said.startswith("BROKEN in ws-")
    assert said.endswith(f"is of {key.split('+')[0]}, and not of this log")
    shutil.copyfile(older / "checkpoint", forged.path / ".deedbook" / "checkpoint")
    assert verdict(forged).startswith("BROKEN in ws-"), "the newest checkpoint's file outlives the ledger"


# --- witnesses --------------------------------------------------------------------------------------------------------


@pytest.fixture
def witness(case, honest):
    """Give a folder in which a witness shows its newest checkpoint, and the witness's key."""
    place, _ = case
    signer = WitnessSigner.generate("witness.example.com/w1")
    folder = place.path / "shared"
    (folder / "checkpoints").mkdir(parents=True)
    note = Note.parse((place.path / ".deedbook" / "checkpoint").read_text())
    seen = Note(note.text, (*note.signatures, signer.cosign(note.text, 1_800_000_000)))
    origin = Checkpoint.parse(note.text).origin
    (folder / "checkpoints" / sha256(origin.encode()).hexdigest()).write_text(str(seen))
    return folder, str(signer.public)


def test_witness_is_named_with_what_it_saw_and_when_if_it_is_believed(case, witness):
    place, _ = case
    said = verdict(place, "--witness", str(witness[0]), "--witness-key", witness[1])
    assert "; witnessed by witness.example.com/w1 at 2027-01-15T08:00:00.000Z), and 1 event after it" in said
    assert "; unwitnessed), " in verdict(place, "--witness", str(witness[0])), "nobody believes it"


def test_witness_remembers_what_was_rolled_back(case, witness, honest):
    place, _ = case
    roll_back(place, honest[2])
    said = verdict(place, "--witness", str(witness[0]), "--witness-key", witness[1])
    assert (
        said
        == f"ROLLED BACK: the log has 5 leaves, and the checkpoint of 7 leaves in the witness at {witness[0]} is signed"
    )


@pytest.mark.parametrize(
    "given", [["--witness", "nowhere"], ["--witness", "ftp://a/w"], ["--checkpoint", ".system/deedbook.yaml"]]
)
def test_evidence_that_is_none_is_refused(case, given):
    case[0].here("verify", *given, status=2)


def test_witness_that_cannot_be_reached_is_no_sound_verdict(case):
    said = verdict(case[0], "--witness", "http://127.0.0.1:1/w")
    assert said.startswith("UNSEEN: the witness at http://127.0.0.1:1/w could not be asked: ")


@pytest.mark.parametrize("begun", ["a log under another key", "no log", "nothing"])
def test_named_witness_that_does_not_know_the_log_is_no_sound_verdict(case, witness, begun, tmp_path, monkeypatch):
    """Whoever begins state and log anew has a log that nobody else ever saw; without the witness that does not show."""
    place, _ = case
    shutil.rmtree(place.path / ".deedbook")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "ring"))
    if begun == "a log under another key":
        place.here("keys", "rotate", status=0)
    if begun != "nothing":
        place.here("call", "echo", "--args", '{"text":"forged"}', status=0)
        assert place.here("verify", status=0).out.startswith(("sound and complete", "unwitnessed"))
    told = place.here("verify", "--witness", str(witness[0]), status=4).out
    assert told.startswith(f"UNSEEN: the witness at {witness[0]} has no checkpoint of this log: ")
    told = place.here("verify", "--json", "--witness", str(witness[0]), status=4).fits("output_verify_v1")
    assert (told["sound"], told["verdict"]["kind"]) == (False, "unseen")


def test_proof_takes_no_evidence_that_would_not_be_looked_at(case, witness):
    for given in (("--witness", str(witness[0])), ("--checkpoint", "x")):
        case[0].here("verify", "--proof", "x", *given, status=2)


def test_witness_of_the_settings_that_is_gone_is_said(case):
    settings = case[0].path / ".system" / "deedbook.yaml"
    key = WitnessSigner.generate("witness.example.com/w1").public
    settings.write_text(f"{SETTINGS}checkpoints: {{witnesses: [{{key: '{key}', folder: gone}}]}}\n")
    assert "gone could not be asked: there is no such folder" in case[0].here("verify", status=0).out.splitlines()[1]


def test_evidence_that_a_file_is_not_held_against_is_refused(case, tmp_path):
    place, sessions = case
    shutil.copyfile(ledger(place, sessions[0]), tmp_path / "events.jsonl")
    kept = str(place.path / ".deedbook" / "checkpoint")
    place.here("verify", str(tmp_path / "events.jsonl"), "--checkpoint", kept, status=2)


def test_newest_checkpoint_that_is_none_is_broken_for_readers_as_for_writers(case):
    place, _ = case
    (place.path / ".deedbook" / "checkpoint").write_text("what?")
    assert verdict(place).startswith("BROKEN in checkpoint: it is no signed checkpoint: ")


@pytest.mark.parametrize("gone", ["begun anew", "wiped"])
@pytest.mark.parametrize("ring", [True, False])
def test_state_that_was_begun_anew_without_a_log_shows_to_who_names_a_key(
    case, honest, gone, ring, tmp_path, monkeypatch
):
    place, _ = case
    settings, key = place.path / ".system" / "deedbook.yaml", honest[1]
    shutil.rmtree(place.path / ".deedbook")
    if not ring:
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    if gone == "begun anew":
        place.here("call", "echo", "--args", '{"text":"four"}', status=0)
    wanted = f"ROLLED BACK: the key {'+'.join(key.split('+')[:2])} names the log of another workspace ledger; "
    assert verdict(place, "--log-key", key).startswith(wanted)
    (place.path / ".system" / "log.pub").write_text(key)
    settings.write_text(f"{SETTINGS}checkpoints: {{keys: [log.pub]}}\n")
    assert verdict(place).startswith(wanted)
    if gone == "begun anew":
        assert javascript("--state", place.path / ".deedbook", key)[0].startswith("ROLLED BACK")


def test_settings_may_name_the_keys_of_several_logs(case, honest, tmp_path, monkeypatch):
    place, _ = case
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    other = SigningKey.generate(f"deedbook/ws-{'0' * 32}").public
    (place.path / ".system" / "log.pub").write_text(honest[1])
    (place.path / ".system" / "other.pub").write_text(f"{other}\n")
    (place.path / ".system" / "deedbook.yaml").write_text(f"{SETTINGS}checkpoints: {{keys: [other.pub, log.pub]}}\n")
    assert verdict(place).startswith("sound and complete up to checkpoint")
    assert verdict(place, "--log-key", str(other)).startswith("ROLLED BACK"), "what a reader names is meant"


def test_witness_is_asked_about_the_log_whose_key_is_named(case, witness, honest):
    place, _ = case
    shutil.rmtree(place.path / ".deedbook")
    told = place.here("verify", "--json", "--log-key", honest[1], "--witness", str(witness[0]), status=4)
    assert not told.fits("output_verify_v1")["notes"]


def test_own_key_ring_vouches_for_nothing_where_keys_are_named(case, honest, tmp_path, monkeypatch):
    place, _ = case
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "ring"))
    place.here("keys", "rotate", "--lost", status=0)
    assert ", trusted; " in verdict(place)
    assert verdict(place, "--log-key", honest[1]).startswith("BROKEN at or before event ")


def test_session_of_an_older_file_is_checked_with_all_of_it(case):
    golden = Path(__file__).parent / "data" / "golden" / "seed-000" / "run" / "events.jsonl"
    out = case[0].here("verify", f"{golden}#sess_01", status=4).out
    assert out.startswith("nothing to verify: this form has no hashes")
    assert "format seed-000, 11 events, ended" in out


def test_log_that_was_taken_away_shows_to_who_trusts_its_key(case, honest):
    place, _ = case
    file = ledger(place, "workspace")
    kept = [line for line in file.read_bytes().splitlines(keepends=True) if b'"event_type":"ledger.' not in line[:400]
            or b'"event_type":"ledger.created"' in line or b'"event_type":"ledger.session"' in line]  # fmt: skip
    kept = [re.sub(rb'"seq":\d+,', b'"seq":%d,' % seq, line, count=1) for seq, line in enumerate(kept)]
    file.write_bytes(b"".join(ledgers.forge(kept, genesis="workspace")))
    (place.path / ".deedbook" / "checkpoint").unlink()
    said = verdict(place, "--log-key", honest[1])
    assert said.startswith("ROLLED BACK: the workspace has no checkpoint that holds, and its log is trusted")


@pytest.mark.parametrize("size", [b'"five"', b"null", b"1.5", b"[]"])
def test_leaf_that_names_no_number_of_lines_is_a_failure_and_no_crash(case, size):
    place, _ = case
    file = ledger(place, "workspace")
    lines = file.read_bytes().splitlines(keepends=True)
    at = max(number for number, line in enumerate(lines) if b'"event_type":"ledger.leaf"' in line[:400])
    said = json.loads(lines[at])["payload"]["size"]
    lines[at] = lines[at].replace(b'"size":%d}' % said, b'"size":%b}' % size)
    file.write_bytes(b"".join(ledgers.forge(lines, genesis="workspace")))
    assert verdict(place).startswith("BROKEN")


def test_pipe_in_the_place_of_a_covered_session_is_told_and_hides_no_other(case):
    place, sessions = case
    ledger(place, sessions[0]).unlink()
    os.mkfifo(ledger(place, sessions[0]))
    assert verdict(place).startswith("BROKEN in ")
    assert place.here("verify", status=4).out.count("\nsound  ") == 3


# --- without settings -------------------------------------------------------------------------------------------------


def test_fault_in_the_settings_does_not_stop_the_audit(case):
    place, sessions = case
    (place.path / ".system" / "deedbook.yaml").write_text("abilities: [")
    for args in ([], [sessions[0]], ["--jobs", "2"]):
        told = place.here("verify", "--json", *args, status=0).fits("output_verify_v1")
        assert told["verdict"]["kind"] == "checkpointed"
        assert told["notes"][0].startswith("the settings could not be read, so their keys and witnesses are unknown: ")
        assert ".system/deedbook.yaml" in told["notes"][0]
    assert sessions[0] in place.here("sessions", status=0).out
    assert place.here("replay", sessions[0], status=0).out.startswith("sound and complete up to checkpoint ")
    wanted = cut_tail(place, sessions)
    assert verdict(place).startswith(wanted)
    assert verdict(place, sessions[0]).startswith(wanted)


def test_state_folder_is_verified_without_a_workspace(case, honest, tmp_path):
    place, sessions = case
    alone = Place(tmp_path / "alone")
    shutil.copytree(place.path / ".deedbook", alone.path / "state")
    assert verdict(alone, "state", "--log-key", honest[1]).startswith("sound and complete up to checkpoint 7 (")
    shutil.rmtree(alone.path / "state" / "sessions" / sessions[0])
    assert verdict(alone, "state").startswith(f"ROLLED BACK: session {sessions[0]} has 0 events")
