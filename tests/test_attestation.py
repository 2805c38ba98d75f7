"""Checkpoints and witnesses together: each is asked after a checkpoint, and what it knows outweighs the files."""

import io
import json
import shutil
import threading
from contextlib import contextmanager, redirect_stdout

import pytest
from test_checkpoints import ask, count, own, rotate

from deedbook.format.checkpoints import Checkpoint
from deedbook.format.notes import Note, VerifierKey, WitnessKey
from deedbook_audit import submission
from deedbook_audit.transparency.cosignatures import cosigned_at
from deedbook_log.witnessing.store import WitnessStore
from deedbook_log.witnessing.witness import Witness
from deedbook_log.witnessing.witness_folder import WitnessFolder
from deedbook_log.witnessing.witness_server import WitnessServer


@contextmanager
def watching(inbox):
    """Let a witness answer in a folder meanwhile."""
    stop = threading.Event()

    def work():
        while not stop.wait(0.01):
            inbox.answer_requests()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@pytest.fixture
def seen(lab, tmp_path):
    """Give a lab whose log has a key and a witness, which watches a folder while the test says so."""
    lab.tool("echo", lambda args, ctx: args)
    lab.kernel().close()
    lab.key = rotate(lab).key
    lab.store = WitnessStore.create(tmp_path / "store", "w1")
    lab.store.trust(lab.key.name, VerifierKey.parse(str(lab.key)))
    (tmp_path / "shared").mkdir()
    lab.inbox = WitnessFolder(Witness(lab.store), tmp_path / "shared", report=lambda _: None)
    lab.witness = {"key": str(lab.store.key.public), "folder": str(tmp_path / "shared")}
    lab.settings(checkpoints={"witnesses": [lab.witness]})
    lab.kernel().close()
    return lab


def witnessed(lab):
    return [line["payload"] for line in own(lab) if line["event_type"] == "ledger.witnessed"]


def kept(lab):
    return Note.parse((lab.state / "checkpoint").read_text())


def size_of(note):
    return Checkpoint.parse(note.text).size


def test_checkpoint_is_witnessed_and_the_newest_note_says_so(seen):
    with watching(seen.inbox):
        first = ask(seen)
        second = ask(seen)
    assert not first.failures
    assert not second.failures
    told = witnessed(seen)
    assert [each["size"] for each in told] == [made.coverage.checkpoints[-1].size for made in (first, second)]
    assert {each["witness"] for each in told} == {str(seen.store.key.public)}
    assert cosigned_at(seen.store.key.public, Note.parse(told[-1]["note"])) is not None
    assert cosigned_at(seen.store.key.public, kept(seen)) is not None
    assert kept(seen).is_signed_by(seen.key)


def test_end_of_a_session_is_witnessed_in_the_background(seen):
    with watching(seen.inbox):
        session = seen.session()
        session.call("echo", {})
        session.end(ok=True, reason="done")
    assert size_of(Note.parse(witnessed(seen)[-1]["note"])) == size_of(kept(seen))


def test_witness_that_does_not_answer_holds_nobody_up_and_its_answer_is_taken_later(seen, monkeypatch):
    monkeypatch.setattr(submission, "SECONDS", 0.05)
    monkeypatch.setattr(submission.FolderChannel, "__init__", shortly(submission.FolderChannel.__init__))
    (late,) = ask(seen).failures
    assert late.code == "WITNESS_UNREACHABLE"
    assert witnessed(seen) == []
    seen.inbox.answer_requests()
    ask(seen)
    assert [each["size"] for each in witnessed(seen)] == [2]
    with watching(seen.inbox):
        assert not ask(seen).failures


def shortly(made):
    return lambda self, place, seconds=0.2: made(self, place, seconds)


def test_two_witnesses_sign_the_same_note(seen, tmp_path):
    other = WitnessStore.create(tmp_path / "other", "w2")
    other.trust(seen.key.name, VerifierKey.parse(str(seen.key)))
    with WitnessServer(Witness(other), "127.0.0.1", 0, report=lambda _: None) as server, watching(seen.inbox):
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        seen.settings(checkpoints={"witnesses": [seen.witness, {"key": str(other.key.public), "url": server.url}]})
        seen.kernel().close()
        try:
            assert not ask(seen).failures
        finally:
            server.shutdown()
            thread.join()
    assert [cosigned_at(key, kept(seen)) is not None for key in (seen.store.key.public, other.key.public)] == [
        True,
        True,
    ]
    assert len(kept(seen).signatures) == 3
    assert count(seen, "ledger.witnessed") == 2


def test_workspace_that_was_rolled_back_is_refused_by_the_witness(seen, tmp_path):
    """The whole state folder is put back: inside of it nothing shows, and the witness knows."""
    with watching(seen.inbox):
        ask(seen)
        shutil.copytree(seen.state, tmp_path / "before")
        for _ in range(3):
            ask(seen)
        shutil.rmtree(seen.state)
        shutil.copytree(tmp_path / "before", seen.state)
        (why,) = ask(seen).failures
    assert why.code == "WITNESS_REFUSED"
    assert "rolled back or forked" in why.message


def test_fork_that_has_outgrown_the_witness_is_refused_by_its_proof(seen, tmp_path):
    with watching(seen.inbox):
        ask(seen)
        shutil.copytree(seen.state, tmp_path / "before")
        ask(seen)
        shutil.rmtree(seen.state)
        shutil.copytree(tmp_path / "before", seen.state)
        seen.settings(checkpoints={"witnesses": []})
        seen.kernel().close()
        for _ in range(3):
            ask(seen)
        seen.settings(checkpoints={"witnesses": [seen.witness]})
        seen.kernel().close()
        (why,) = ask(seen).failures
    assert (why.code, "does not go on from" in why.message) == ("WITNESS_REFUSED", True)
    assert len([*(seen.store.place / "logs").glob("*/refused/*")]) == 1


def test_witness_that_was_put_back_is_proved_to_from_where_it_stands(seen, tmp_path):
    with watching(seen.inbox):
        ask(seen)
        shutil.copytree(seen.store.place, tmp_path / "before")
        ask(seen)
    shutil.rmtree(seen.store.place)
    shutil.copytree(tmp_path / "before", seen.store.place)
    seen.inbox = WitnessFolder(Witness(WitnessStore(seen.store.place)), tmp_path / "shared", report=lambda _: None)
    with watching(seen.inbox):
        assert not ask(seen).failures
    assert witnessed(seen)[-1]["size"] == size_of(kept(seen))


def test_witness_that_serves_the_log_no_more_is_told_apart(seen):
    key = json.loads((seen.state / "workspace" / ".events.jsonl").read_text().splitlines()[0])["session_id"]
    assert seen.key.name == f"deedbook/{key}"
    shutil.rmtree(seen.store.place / "logs")
    (seen.store.place / "logs").mkdir()
    with watching(seen.inbox):
        (why,) = ask(seen).failures
    assert (why.code, "deedbook witness trust" in why.message) == ("WITNESS_STRANGER", True)


def test_new_key_of_the_log_is_trusted_by_what_the_old_one_signed(seen, tmp_path):
    from deedbook_log.commands.witness import _read_key

    with watching(seen.inbox):
        changed = rotate(seen)
        assert ask(seen).failures[0].code == "WITNESS_STRANGER"
        said = [line["payload"]["signed"] for line in own(seen) if line["event_type"] == "ledger.key"][-1]
        (tmp_path / "change").write_text(said)
        key, origin = _read_key(seen.store, str(tmp_path / "change"), None)
        assert key == changed.key
        seen.store.trust(origin, key)
        assert not ask(seen).failures


@pytest.mark.parametrize("key", ["w1", "w1+00000000+AAAA", str(WitnessKey("w", bytes(32)))[:-1]])
def test_key_of_a_witness_that_is_none_refuses_the_workspace(lab, key):
    from deedbook.format.errors import SourceError

    lab.settings(checkpoints={"witnesses": [{"key": key, "url": "http://w"}]})
    with pytest.raises(SourceError, match="public key cannot be read"):
        lab.kernel()


def test_key_of_a_proof_is_known_from_the_key_ring_or_the_workspace(seen, tmp_path, monkeypatch):
    from deedbook.cli.common import GlobalOptions
    from deedbook.format.files import Folder
    from deedbook_audit import proving
    from deedbook_audit.commands.proof import check_proof

    with watching(seen.inbox):
        ask(seen)
    with Folder.at(seen.state) as state:
        (tmp_path / "proof.json").write_text(json.dumps(proving.prove_inclusion(state, "workspace", 1)))

    def told(place):
        with redirect_stdout(io.StringIO()) as out:
            assert check_proof(GlobalOptions(str(place), json=True), str(tmp_path / "proof.json"), [], []) == 0
        return json.loads(out.getvalue())

    (tmp_path / "elsewhere").mkdir()
    assert told(tmp_path / "elsewhere")["vouched"] == "your own key ring"
    assert told(tmp_path / "elsewhere")["witnessed"] == []
    (seen.path / ".system" / "log.pub").write_text(f"{seen.key}\n")
    seen.settings(checkpoints={"keys": ["log.pub"]})
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "elsewhere"))
    here = told(seen.path)
    assert here["vouched"] == "checkpoints.keys of the workspace here"
    assert [each["witness"] for each in here["witnessed"]] == ["w1"]
