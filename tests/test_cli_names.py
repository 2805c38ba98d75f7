"""What commands say of a ledger that is not of the kind they are for."""

import pytest
from commandline import Place


@pytest.fixture
def desk(tmp_path):
    """Give a workspace with one tool, and one session."""
    made = Place(tmp_path / "desk")
    made.write(
        ".system/deedbook.yaml",
        """
        schema_version: v1
        abilities: {echo: {summary: Echo., handler: {tool: echo}}}
        """,
    )
    made.here("call", "echo", "--args", '{"text": "x"}', status=0)
    return made


def test_workspace_ledger_is_not_forked_and_the_refusal_says_so(desk):
    for name in ("workspace", ".deedbook/workspace"):
        refused = desk.here("fork", name, "--at", "1", status=1)
        assert "the workspace ledger is not forked" in refused.err
        assert "[FORK_REFUSED]" in refused.err


def test_sessions_that_were_imported_say_so_and_have_names_that_can_be_typed(desk):
    (session,) = desk.sessions()
    old = desk.write("old.jsonl", desk.here("export", session, status=0).out)
    desk.write("false.jsonl", old.read_text().replace('"x"', '"y"'))
    desk.here("ledger", "import", "old.jsonl", status=0)
    desk.here("ledger", "import", "false.jsonl", status=4)
    desk.here("ledger", "import", "false.jsonl", "--as-is", "evidence", status=0)
    rows = [line.split() for line in desk.here("sessions", status=0).out.splitlines()]
    names = [row[0] for row in rows]
    assert len(set(names)) == 3
    assert [name for name in names if "#" not in name] == [session]
    for name in names:
        desk.here("tree", name, status=0)
    told = desk.here("sessions", "--json", status=0)
    told.fits("output_sessions_v1")
    assert sorted(each["name"] for each in told.json["sessions"]) == sorted(names)
    assert sorted(each.get("verdict", "") for each in told.json["sessions"]) == ["", "sound", "unsound"]
    listed = desk.here("sessions", status=0).out
    assert listed.count("imported ") == 2
    assert listed.count("unsound as taken in") == 1


def test_what_is_imported_stays_as_it_is_and_the_refusal_says_so(desk):
    (session,) = desk.sessions()
    text = desk.here("export", session, status=0).out.replace(session, "an-old-one")
    desk.write("old.jsonl", text)
    desk.here("ledger", "import", "old.jsonl", "--as-is", "x", status=0)
    for asked in (
        ("prove", "an-old-one"),
        ("ledger", "amend", "an-old-one", "1", "--remove", "/x", "--reason", "x"),
        ("ledger", "excise", "an-old-one", "1", "--reason", "x"),
    ):
        assert "session an-old-one is imported" in desk.here(*asked, status=1).err


@pytest.mark.parametrize("asked", [("stats",), ("tree",), ("export", "--as", "cloudevents"), ("export",)])
def test_bytes_that_are_no_line_at_the_end_are_named(desk, asked):
    with desk.ledger().open("ab") as file:
        file.write(b"garbage")
    ran = desk.here(*asked, "last", status=4)
    assert "bytes that are no line stand at its end" in ran.err
    assert ran.out


def test_replay_of_a_broken_ledger_is_printed_and_exits_with_4(desk):
    place = desk.ledger()
    desk.here("replay", "last", status=0)
    place.write_bytes(place.read_bytes().replace(b'"text":"x"', b'"text":"y"'))
    ran = desk.here("replay", "last", status=4)
    assert ran.out.startswith("BROKEN")
    assert "echo" in ran.out
    assert desk.here("replay", "last", "--json", status=4).json["verified"] is False
    assert desk.here("replay", "last", "--html", status=4).out.startswith("<!DOCTYPE html>")
    assert "say one of them" in desk.here("replay", "last", "--html", "--json", status=2).err


def test_what_is_no_session_and_no_old_ledger_is_said_to_be_none(desk):
    assert "there is no file 'nope.jsonl'" in desk.here("ledger", "import", "nope.jsonl", status=2).err
    desk.write("README.md", "# Read me\n")
    assert "README.md: not a Deedbook ledger" in desk.here("ledger", "import", "README.md", status=4).err


def test_event_that_is_not_there_and_one_taken_out_before_are_told_apart(desk):
    (session,) = desk.sessions()
    events = desk.events(session)
    seq = next(event.seq for event in events if event.type == "tool.result")
    excise = ("ledger", "excise", session, str(seq), "--reason", "x")
    assert "is removed;" in desk.here(*excise, "--yes", status=0).err
    assert "was removed already" in desk.here(*excise, "--yes", status=0).err
    assert "is removed already" in desk.here(*excise, status=0).err


def test_usage_is_one_line_and_names_the_argument(desk):
    ran = desk.here("memory", "show", "nozone", "k", status=2)
    assert "Invalid value for 'ZONE'" in ran.err
    assert "ZONE KEY" in ran.err
    assert "\\u{" not in ran.err


@pytest.mark.parametrize("broken", ['{"a":', "[1,", '"open'])
def test_value_that_begins_like_json_and_is_none_is_not_taken_for_text(desk, broken):
    ran = desk.here("memory", "propose", "decision", "k", broken, status=2)
    assert "begins like JSON" in ran.err
