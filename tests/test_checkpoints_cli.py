"""Checkpoints as people ask for them: `keys rotate`, `ledger checkpoint`, settings in YAML."""

import json

import logs
import pytest

from deedbook.charter.changes import compare
from deedbook.charter.settings import CheckpointSettings
from deedbook.format.canonical import encode
from deedbook.format.errors import SourceError
from deedbook.format.notes import SigningKey
from deedbook.workspace.workspace import read_workspace
from deedbook_audit.transparency.cosignatures import WitnessSigner

WITNESS = str(WitnessSigner("w.example/1", bytes(32)).public)
KEY = str(SigningKey("deedbook/ws-0", bytes(32)).public)


def test_key_is_made_shown_and_used_by_the_command(place):
    place.run("call", "echo", "--args", '{"text":"hi"}', status=0)
    made = place.run("keys", "rotate", "--out", ".system/log.pub", "--json", status=0).fits("output_keys_v1")
    (key,) = made["keys"]
    assert (place.path / ".system/log.pub").read_text() == f"{key['key']}\n"
    asked = place.here("ledger", "checkpoint", "--json", status=0).fits("output_ledger_checkpoint_v1")
    assert (asked["sessions"], asked["left_out"], asked["unheard"]) == (0, [], [])
    assert logs.is_signed(asked["note"], key["key"])
    assert place.here("ledger", "checkpoint", status=0).out == (place.path / ".deedbook/checkpoint").read_text()
    assert [each["why"] for each in logs.audit(place.path / ".deedbook")] == ["key", "asked", "asked"]
    again = place.here("keys", "rotate", "--out", ".system/log.pub", status=0)
    assert f"the key before, {key['id']}, has signed this and is removed" in again.err
    shown = place.here("keys", "show", status=0).out.splitlines()
    assert (place.path / ".system/log.pub").read_text().strip() in shown
    assert key["key"] not in shown


def test_checkpoint_without_a_key_says_how_to_make_one(place):
    ran = place.here("ledger", "checkpoint", status=1)
    assert "`deedbook keys rotate` makes the log's first key" in ran.err


def test_damaged_session_is_left_out_and_told_and_the_others_are_covered(place):
    for _ in range(2):
        place.here("call", "echo", "--args", '{"text":"hi"}', status=0)
    bad, good = place.sessions()
    place.ledger(bad).write_bytes(b"{}\n")
    ran = place.here("keys", "rotate", status=4)
    assert f"session {bad} is not covered" in ran.err
    state = place.path / ".deedbook"
    assert logs.covered(state).keys() >= {good}
    assert bad not in logs.covered(state)
    told = place.here("ledger", "checkpoint", "--json", status=4).fits("output_ledger_checkpoint_v1")
    assert [each["session_id"] for each in told["left_out"]] == [bad]


def test_end_that_cannot_be_covered_is_said_by_the_command(place, tmp_path, monkeypatch):
    place.here("keys", "rotate", status=0)
    assert "and the key that signs the next checkpoint is here" in place.here("doctor", status=0).out
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "other"))
    assert "calls that are irreversible are denied" in place.here("doctor", status=0).out
    ran = place.here("call", "echo", "--args", '{"text":"hi"}', status=0)
    assert "checkpoints: no checkpoint could be written" in ran.err
    assert "[CHECKPOINT_FAILED]" in ran.err


# --- settings ---------------------------------------------------------------------------------------------------------


def settings(lab, **checkpoints):
    lab.settings(checkpoints=checkpoints)
    return read_workspace(lab.path)


def test_settings_are_read_with_the_keys_that_their_files_hold(lab):
    lab.write("log.pub", f"{KEY}\n")
    lab.write("w.pub", f"{WITNESS}\n")
    told = {"key": "~/log.key", "keys": ["log.pub"], "every_events": 5, "every_seconds": 1.5, "before": ["write"]}
    witnesses = [{"key": "w.pub", "folder": "/srv/w"}, {"key": WITNESS, "url": "https://w.example/"}]
    found = settings(lab, **told, witnesses=witnesses)
    assert found.checkpoints == {
        **told, "keys": [KEY], "witnesses": [{"key": WITNESS, "folder": "/srv/w"}, witnesses[1]],
    }  # fmt: skip
    assert {".system/log.pub", ".system/w.pub"} <= found.digests.keys()
    with lab.kernel() as kernel:
        assert kernel.active_charter.charter.document["checkpoints"] == found.checkpoints
        read = CheckpointSettings.read(kernel.active_charter.charter.document["checkpoints"], kernel.site.root)
        assert (read.every_events, read.every_seconds, read.before) == (5, 1.5, {"write"})
        assert str(read.key).endswith("/log.key")


def test_settings_that_say_nothing_leave_the_charter_as_it_was(lab):
    assert settings(lab).checkpoints == {}
    with lab.kernel() as kernel:
        assert "checkpoints" not in kernel.active_charter.charter.document


@pytest.mark.parametrize(
    "said",
    [
        ({"keys": ["none.pub"]}),
        ({"key": ".system/log.key"}),
        ({"key": "x/../.system/keys/log.key"}),
        ({"every_events": 0}),
        ({"before": ["read"]}),
        ({"witnesses": [{"key": "none.pub", "url": "https://w"}]}),
        ({"witnesses": [{"key": "a+b+c", "url": "https://w"}]}),
        ({"witnesses": [{"key": WITNESS}]}),
        ({"witnesses": [{"key": WITNESS, "url": "https://w", "folder": "f"}]}),
        ({"every": 3}),
    ],
)
def test_wrong_settings_are_refused_with_their_place(lab, said):
    with pytest.raises(SourceError) as caught:
        settings(lab, **said)
    assert all(str(error.place).startswith(".system/deedbook.yaml:") for error in caught.value.errors)


@pytest.mark.parametrize(
    ("said", "way", "text"),
    [
        ({"every_events": 2000}, "looser", "every_events: 2000, was 1000"),
        ({"every_seconds": 5}, "tighter", "every_seconds: 5, was 60"),
        ({"before": []}, "looser", "before irreversible is gone"),
        ({"before": ["irreversible", "write"]}, "tighter", "before write is new"),
        ({"keys": [KEY]}, "looser", f"trusted key {KEY} is new"),
        ({"witnesses": [{"key": "k", "url": "u"}]}, "tighter", "witness"),
        ({"key": "/k"}, "other", 'key: "/k", was null'),
    ],
)
def test_changes_of_settings_are_looser_or_tighter(lab, said, way, text):
    with lab.kernel() as kernel:
        old = kernel.active_charter.charter.document
    new = json.loads(encode({**old, "checkpoints": said}))
    (found,) = getattr(compare(old, new), way)
    assert text in found
    (back,) = getattr(compare(new, old), {"looser": "tighter", "tighter": "looser", "other": "other"}[way])
    assert back.startswith("checkpoints: ")
