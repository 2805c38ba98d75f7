"""``deedbook memory`` as people type it."""

import json

import pytest
from commandline import Place
from remembering import ABILITIES, ALLOW

OLD = {"schema_version": "1.0", "world": {"City": "Rome"}}


@pytest.fixture
def desk(tmp_path):
    """Give a workspace that remembers, of a persona."""
    made = Place(tmp_path / "desk")
    said = {
        "schema_version": "v1",
        "memory": {"verified_by": ["echo"], "zones": {"decision": {"read": [{"actors": ["user"]}]}}},
        "abilities": {**ABILITIES, "echo": {"summary": "Echo.", "handler": {"tool": "echo"}}},
        "policies": {"remember": ALLOW},
        "agents": {"helper": {"expose": {"kind": "memory"}}},
    }
    made.write(".system/deedbook.yaml", json.dumps(said))
    made.write(".system/persona.json", json.dumps({"schema_version": "v1", "id": "p-1", "version": 3, "name": "Ada"}))
    return made


def test_what_is_proposed_is_listed_shown_told_and_taken_back(desk):
    assert desk.here("memory", "list", status=0).out == "nothing is remembered\n"
    assert not (desk.path / ".deedbook").exists(), "who only reads writes nothing"
    desk.here("memory", "show", "decision", "a", status=2)
    made = desk.here("memory", "propose", "world_state", "user/city", "Oslo", "--json", status=0)
    made.fits("output_call_v1")
    assert made.json["result"]["version"] == 1
    desk.here("memory", "propose", "decision", "size", '{"n": 3}', "--reason", "it fits", status=0)
    listed = desk.here("memory", "list", "--json", status=0)
    listed.fits("output_memory_v1")
    assert [(e["zone"], e["key"], e["value"]) for e in listed.json["entries"]] == [
        ("world_state", "user/city", "Oslo"),
        ("decision", "size", {"n": 3}),
    ]
    shown = desk.here("memory", "show", "world_state", "user/city", "--json", status=0)
    shown.fits("output_memory_v1")
    (entry,) = shown.json["entries"]
    assert entry["provenance"]["kind"] == "user_declared"
    assert desk.payloads("user.message", entry["session"])[0]["text"] == "user/city = Oslo"
    assert "user_declared" in desk.here("memory", "show", "world_state", "user/city", status=0).out
    refused = desk.here("memory", "propose", "decision", "size", "4", "--expected", "0", status=1)
    assert "MEMORY_CONFLICT" in refused.err
    desk.here("memory", "retract", "decision", "size", "--reason", "too small", status=0)
    told = desk.here("memory", "history", "--json", status=0)
    told.fits("output_memory_history_v1")
    assert [each["what"] for each in told.json["changes"]] == ["committed", "committed", "refused", "retracted"]
    assert desk.here("memory", "history", "decision", "size", status=0).out.count("\n") == 3
    assert desk.here("memory", "list", "--persona", "-", status=0).out == "nothing is remembered\n"


def test_result_of_a_tool_is_named_by_session_and_event(desk):
    session = desk.here("call", "echo", "--args", '{"text": "seven"}', "--json", status=0).json["session"]
    (result,) = (event for event in desk.events(session) if event.type == "tool.result")
    name = f"{session[:8]}:{result.seq}"
    propose = ("memory", "propose", "world_state", "word")
    desk.here(*propose, "seven", "--result", name, "--pointer", "/text", status=0)
    assert "MEMORY_UNPROVEN" in desk.here(*propose, "eight", "--result", name, "--pointer", "/text", status=3).err
    assert "no event" in desk.here(*propose, "seven", "--result", f"{session}:99", status=2).err
    assert "MEMORY_UNPROVEN" in desk.here(*propose, "seven", "--approved", status=3).err
    assert "give one" in desk.here(*propose, "seven", "--approved", "--say", "x", status=2).err


def test_client_is_denied_what_is_not_its_zone_and_told_what_to_edit(desk):
    denied = desk.here("memory", "propose", "world_state", "a", "1", "--as", "agent:helper", status=3)
    assert "which agent agent:helper may not propose to" in denied.err
    args = json.dumps({"zone": "decision"})
    said = desk.here("explain", "memory/read", "--as", "agent:helper", "--args", args, status=3)
    assert "memory.zones in .system/deedbook.yaml" in said.out


def test_explain_says_that_memory_wants_a_policy(desk):
    desk.configure('"kind": "memory"}, "rules"', '"kind": "tool"}, "rules"')
    said = desk.here("explain", "memory/read", "--args", '{"zone": "decision"}', status=3)
    assert "add a policy with match: {kind: memory}" in said.out


def test_store_is_rebuilt_and_an_old_one_taken_over(desk):
    assert "no ledger yet" in desk.here("memory", "rebuild", status=2).err
    old = desk.write("old.json", json.dumps(OLD))
    taken = desk.here("memory", "import", str(old), "--json", status=0)
    taken.fits("output_memory_import_v1")
    assert (taken.json["entries"], taken.json["form"], taken.json["again"]) == (1, "v0", False)
    assert "taken over before" in desk.here("memory", "import", str(old), status=0).err
    assert "Rome" in desk.here("memory", "list", "--zone", "legacy", status=0).out
    store = desk.path / ".deedbook/memory/memory_store.json"
    store.write_text("broken")
    rebuilt = desk.here("memory", "rebuild", "--json", status=0)
    rebuilt.fits("output_memory_rebuild_v1")
    assert rebuilt.json["found"] == "damaged"
    store.write_text(json.dumps({"mood": "fine"}))
    rebuilt = desk.here("memory", "rebuild", "--json", status=0)
    rebuilt.fits("output_memory_rebuild_v1")
    assert (rebuilt.json["found"], rebuilt.json["taken_over"]["entries"]) == ("old", 1)
    store.write_text(json.dumps({"schema": "memory_store", "schema_version": "v2"}))
    assert "MEMORY_FUTURE" in desk.here("memory", "rebuild", status=1).err
    assert "v2" in store.read_text()
    desk.here("memory", "import", str(desk.write("no.json", "no")), status=1)


@pytest.mark.parametrize("asked", [("list",), ("show", "decision", "city"), ("history",)])
def test_reading_checks_every_line_of_the_ledger_and_not_the_store(desk, asked):
    desk.here("memory", "propose", "decision", "city", "Oslo", status=0)
    desk.here("memory", "propose", "decision", "size", "3", status=0)
    desk.here("memory", *asked, status=0)
    own = desk.path / ".deedbook/workspace/.events.jsonl"
    whole = own.read_bytes()
    own.write_bytes(whole.replace(b"Oslo", b"Rome"))
    assert "[LEDGER_UNSOUND]" in desk.here("memory", *asked, status=4).err
    lines = whole.splitlines(keepends=True)
    own.write_bytes(b"".join(lines[1:]))
    assert "[LEDGER_UNSOUND]" in desk.here("memory", *asked, status=4).err
    own.write_bytes(whole)
    desk.here("memory", *asked, status=0)
