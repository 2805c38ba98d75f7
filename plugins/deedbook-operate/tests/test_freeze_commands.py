"""`deedbook freeze` and `deedbook thaw` as an operator uses them."""

import json
import shutil

import pytest
from commandline import Place


@pytest.fixture
def place(tmp_path):
    """Give a workspace in which nothing has run; it names the feature, which is needless."""
    made = Place(tmp_path / "workspace")
    abilities = {name: {"summary": "Echo.", "handler": {"tool": "echo"}} for name in ("say", "shout")}
    made.system(
        "deedbook.yaml", json.dumps({"schema_version": "v1", "features": {"freeze": {}}, "abilities": abilities})
    )
    return made


def call(place, name="say"):
    return place.here("call", name, "text=hi")


def test_freeze_before_the_first_session_denies_it(place):
    assert place.here("freeze", status=0).out == "nothing is frozen\n"
    made = place.here("freeze", "--all", "--reason", "a spill", "--json", status=0).fits("output_freeze_v1")
    denied = call(place)
    assert denied.status == 3
    assert f"deedbook thaw {made['frozen']['id']} (by feature freeze) [FROZEN]" in denied.err
    shown = place.here("freeze", "--json", status=0).fits("output_freeze_v1")
    assert shown == {"schema_version": "v1", "freezes": [made["frozen"]], "sound": True}
    assert "all calls  local" in place.here("freeze", status=0).out
    assert place.here("thaw", "--json", status=0).fits("output_freeze_v1")["lifted"] == [made["frozen"]]
    assert call(place).status == 0
    assert place.here("verify").status == 0


def test_what_init_writes_can_be_frozen(tmp_path):
    made = Place(tmp_path)
    made.here("init", status=0)
    made.here("freeze", "--all", "--reason", "a spill", status=0)
    assert made.here("call", "echo", "text=hi").status == 3
    made.here("thaw", status=0)
    assert made.here("call", "echo", "text=hi", status=0).json == {"text": "hi"}


def test_edit_of_the_settings_lifts_no_freeze(place):
    place.here("freeze", "--all", "--reason", "a spill", status=0)
    text = (place.path / ".system/deedbook.yaml").read_text()
    for edited in (text.replace('"features": {"freeze": {}}, ', ""), text.replace('{"freeze": {}}', "{}")):
        assert edited != text
        place.system("deedbook.yaml", edited)
        assert "[FROZEN]" in call(place).err


def test_deleted_state_of_a_freeze_denies_everything(place):
    place.here("freeze", "--ability", "shout", "--reason", "a spill", status=0)
    shutil.rmtree(place.path / ".deedbook" / "freeze")
    assert "it was removed, and the newest one is change 1" in call(place).err


@pytest.mark.parametrize("args", [[], ["--all"]], ids=["thaw", "thaw --all"])
def test_thaw_of_all_says_what_was_lifted(place, args):
    for name in ("say", "shout"):
        place.here("freeze", "--ability", name, "--reason", "a spill", status=0)
    lifted = place.here("thaw", *args, status=0).err.splitlines()
    assert [line.partition(" is frozen by local")[0] for line in lifted] == [
        "lifted: ability say", "lifted: ability shout",
    ]  # fmt: skip
    assert place.here("freeze").out == "nothing is frozen\n"


def test_thaw_of_one_and_of_all_is_wrong_usage_and_lifts_nothing(place):
    frozen = place.here("freeze", "--all", "--reason", "a spill", "--json", status=0).json["frozen"]
    assert "one freeze, or --all" in place.here("thaw", frozen["id"], "--all", status=2).err
    assert "a spill" in place.here("freeze").out


def test_second_reason_is_told_and_listed_and_stays_in_force_after_a_thaw_of_the_first(place):
    first = place.here("freeze", "--all", "--reason", "a spill", "--json", status=0).json["frozen"]
    told = place.here("freeze", "--all", "--reason", "an audit", status=0).err.splitlines()
    assert told[0].startswith("all calls are frozen by local since ")
    assert ": an audit (" in told[0]
    assert told[1] == f"also in force: all calls are frozen by local since {first['at']}: a spill ({first['id'][:8]})"
    assert [line.split("  ")[3] for line in place.here("freeze").out.splitlines()] == ["a spill", "an audit"]
    assert "also in force: all calls are frozen by local" in place.here("thaw", first["id"], status=0).err


def test_freeze_works_while_the_settings_are_broken(place):
    call(place)
    good = (place.path / ".system" / "deedbook.yaml").read_text()
    place.system("deedbook.yaml", "schema_version: [")
    frozen = place.here("freeze", "--ability", "say", "--reason", "a spill", status=0)
    assert "the settings could not be read" in frozen.err
    place.system("deedbook.yaml", good)
    assert [call(place, name).status for name in ("say", "shout")] == [3, 0]
    assert "FROZEN" not in place.here("doctor").out
    assert "ability say is frozen by local" in place.here("doctor").out


def test_damaged_document_is_shown_and_lifted(place):
    call(place)
    place.here("freeze", "--all", "--reason", "a spill", status=0)
    (place.path / ".deedbook" / "freeze" / "state").write_text("")
    shown = place.here("freeze")
    assert (shown.status, "every call is denied" in shown.err) == (4, True)
    assert "FAULT  freeze" in place.here("doctor").out
    place.here("thaw", status=0)
    assert place.here("freeze").out == "nothing is frozen\n"
    assert call(place).status == 0


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (["--reason", "x"], "name what to freeze"),
        (["--all", "--ability", "say", "--reason", "x"], "name one target"),
        (["--all"], "say why with --reason"),
        (["--ability", "sya", "--reason", "x"], 'did you mean "say"?'),
    ],
)
def test_incomplete_freeze_is_refused(place, given, why):
    refused = place.here("freeze", *given)
    assert refused.status in (1, 2)
    assert why in refused.err
