"""The commands that read: abilities, sessions, verify, replay, tree, export. They import no plugin, repair nothing."""

import json
import os
import re
import shutil
from hashlib import sha256
from pathlib import Path

import pytest
from commandline import SCHEMAS, Place
from ledgers import forge

from deedbook_audit.report import Report
from deedbook_audit.verify import verify_file

READING = [
    ["abilities"],
    ["sessions"],
    ["verify"],
    ["replay", "RUN"],
    ["tree", "RUN"],
    ["stats"],
    ["export", "RUN", "--as", "seed-002"],
]
BROKEN = "raise RuntimeError('nobody may import me')\n"


@pytest.fixture
def run(told: Place) -> str:
    """Give the id of the run."""
    return next(each["id"] for each in told.here("sessions", "--json").json["sessions"] if each["events"] > 10)


@pytest.fixture
def copy(told: Place, tmp_path: Path) -> Place:
    """Give a copy of the workspace with two sessions, to be damaged."""
    shutil.copytree(told.path, tmp_path / "copy")
    return Place(tmp_path / "copy")


def filled(command: list[str], run: str) -> list[str]:
    return [run if arg == "RUN" else arg for arg in command]


# --- what they print --------------------------------------------------------------------------------------------------


def test_abilities_lists_what_is_declared_and_the_models_of_the_profile(told: Place):
    lines = told.here("abilities", status=0).out.splitlines()
    listed = {line.split()[0]: line for line in lines}
    assert {"echo", "file-write", "review", "model/standard"} <= set(listed)
    assert listed["file-write"].split()[1:4] == ["tool", "file-write", "write"]
    declared = told.here("abilities", "--json", status=0).fits("output_abilities_v1")["abilities"]
    assert [each["id"] for each in declared] == list(listed)
    assert declared[0]["place"].startswith(".system/registry/low-level/echo.yaml")


def test_abilities_of_an_empty_workspace_says_where_they_go(tmp_path: Path):
    place = Place(tmp_path)
    place.system("deedbook.yaml", "schema_version: v1\n")
    assert "no abilities are declared" in place.here("abilities", status=0).out
    assert place.here("abilities", "--json", status=0).fits("output_abilities_v1")["abilities"] == []


def test_sessions_are_listed_oldest_first(told: Place):
    lines = told.here("sessions", status=0).out.splitlines()
    assert [line.split()[1] for line in lines] == ["ended", "ended"]
    listed = told.here("sessions", "--json", status=0).fits("output_sessions_v1")["sessions"]
    assert [each["id"] for each in listed] == [line.split()[0] for line in lines]
    assert [each["events"] for each in listed] == [len(told.events(each["id"])) for each in listed]
    assert listed[0]["started"] < listed[1]["started"]


def test_reading_a_workspace_in_which_nothing_happened_creates_nothing(place: Place):
    assert place.here("sessions", status=0).out == "no sessions yet\n"
    assert place.here("sessions", "--json", status=0).fits("output_sessions_v1")["sessions"] == []
    assert place.here("verify", status=0).out == "no ledgers yet\n"
    assert place.here("verify", "--json", status=0).fits("output_verify_v1") == {
        "schema_version": "v1", "sound": True, "reports": [], "missing": [], "empty": [], "log": None, "notes": [],
        "verdict": {
            "kind": "unwitnessed", "said": "no ledgers yet", "checkpoint": None, "after": None, "ledgers": {},
            "unchecked": [],
        },
    }  # fmt: skip
    place.here("abilities", status=0)
    assert not (place.path / ".deedbook").exists()


def test_verify_says_first_what_no_file_alone_can_prove(told: Place, run: str):
    one = told.here("verify", run, status=0).out.splitlines()
    assert one[0].startswith("unwitnessed: ")
    assert one[-1] == "sound"
    every = told.here("verify", status=0).out.splitlines()
    assert every[0].startswith("unwitnessed: ")
    assert [line.startswith("sound  ") for line in every[1:-2]] == [True] * 3
    assert every[-2].startswith("decisions: ")
    assert every[-1] == "all 3 sound"
    assert every.count(every[0]) == 1


def test_verify_as_json_tells_bytes_and_structure_apart(told: Place):
    answer = told.here("verify", "--json", status=0).fits("output_verify_v1")
    assert answer["sound"] is True
    assert len(answer["reports"]) == 3
    assert all(each["bytes"]["checked"] == each["structure"]["checked"] == each["events"] for each in answer["reports"])


@pytest.mark.parametrize("spelling", ["id", "beginning", "file", "folder", "absolute"])
def test_session_is_found_by_id_its_beginning_or_its_file(told: Place, run: str, spelling: str):
    folder = f".deedbook/sessions/{run}"
    names = {"id": run, "beginning": run[:12], "file": f"{folder}/.events.jsonl", "folder": f"./{folder}"}
    name = names.get(spelling, str(told.path / folder / ".events.jsonl"))
    assert told.here("verify", name, status=0).out.endswith("sound\n")
    assert "roots: 1, orphans: 0" in told.here("tree", name, status=0).out


def test_ledger_is_verified_without_any_workspace(told: Place, run: str, tmp_path: Path):
    shutil.copyfile(told.ledger(run), tmp_path / "sent.jsonl")
    elsewhere = Place(tmp_path)
    assert elsewhere.here("verify", "./sent.jsonl", status=0).out.endswith("sound\n")
    alone, inside = (
        where.here("replay", name, status=0).out for where, name in ((elsewhere, "./sent.jsonl"), (told, run))
    )
    assert alone.partition("\n")[2] == inside.partition("\n")[2]
    assert alone.partition("\n")[0].endswith("decisions not checked: the charter that the session names is not at hand")


def test_workspace_ledger_is_named_workspace(told: Place):
    assert "ledger.created" in told.here("tree", "workspace", status=0).out
    assert told.here("verify", "workspace", status=0).out.endswith("sound\n")


def test_replay_tells_the_story_and_calls_nothing_again(told: Place, run: str):
    before = {path: path.stat().st_mtime_ns for path in told.path.rglob("*") if path.is_file()}
    story = told.here("replay", run, status=0).out
    told.here("replay", run, "--json", status=0)
    assert "user: Say hello to Ada" in story
    assert 'tool.call: echo {"text":"Hello, Ada!"}' in story
    assert "agent: Hello, Ada!" in story
    assert before == {path: path.stat().st_mtime_ns for path in told.path.rglob("*") if path.is_file()}


def test_replay_as_json_is_the_snapshot(told: Place, run: str):
    snapshot = told.here("replay", run, "--json", status=0).fits("output_replay_v1")
    assert snapshot["closed"] is snapshot["ok"] is True
    assert snapshot["output"] == snapshot["reply"] == "Hello, Ada!"
    assert snapshot["roles"] == ["lead", "planner", "worker", "reviewer"]
    assert snapshot["tools_invoked"] == [{"args": {"text": "Hello, Ada!"}, "tool_name": "echo"}]
    assert snapshot["calls"]["echo"] == 1


def test_tree_counts_roots_and_orphans(told: Place, run: str):
    lines = told.here("tree", run, status=0).out.splitlines()
    events = told.events(run)
    assert lines[0] == f"spans: {len(events)}, roots: 1, orphans: 0"
    assert len(lines) == 1 + len(events)
    tree = told.here("tree", run, "--json", status=0).fits("output_tree_v1")
    assert (len(tree["events"]), len(tree["roots"]), tree["orphans"]) == (len(events), 1, [])


def test_export_is_verified_as_the_other_form(told: Place, run: str, tmp_path: Path):
    file = tmp_path / "exported.jsonl"
    file.write_text(told.here("export", run, "--as", "seed-002", status=0).out, encoding="utf-8")
    report = verify_file(file, schemas=SCHEMAS)
    assert report.sound
    assert report.format == "1.0"
    assert told.here("verify", str(file), status=0).out.endswith("sound\n")


def test_export_of_a_session_that_has_not_ended_says_how_to_end_it(copy: Place, run: str):
    lines = copy.ledger(run).read_bytes().splitlines(keepends=True)
    copy.ledger(run).write_bytes(b"".join(lines[:-1]))
    ran = copy.here("export", run, "--as", "seed-002", status=2)
    assert f"deedbook sessions close {run}" in ran.err
    assert ran.out == ""


# --- plugins do not matter --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", READING, ids=lambda command: command[0])
def test_reading_does_not_care_about_a_broken_plugin(told: Place, run: str, copy: Place, command: list[str]):
    copy.offer("tools", "echo-two", BROKEN)
    copy.system(
        "registry/low-level/broken.yaml",
        """\
        schema_version: v1
        id: broken
        summary: Behind it stands what cannot be imported.
        handler: {tool: echo-two}
        """,
    )
    ran = copy.here(*filled(command, run), status=0)
    assert ran.err == ""
    assert "[PLUGIN_BROKEN]" in copy.here("run", "hello", status=1).err


@pytest.mark.parametrize("command", READING[1:], ids=lambda command: command[0])
def test_reading_needs_no_plugin_at_all(told: Place, run: str, copy: Place, command: list[str]):
    copy.system(
        "registry/low-level/absent.yaml",
        """\
        schema_version: v1
        id: absent
        summary: Behind it stands nothing.
        handler: {tool: never-written}
        """,
    )
    assert copy.here(*filled(command, run), status=0).err == ""
    assert 'tool "never-written" is not installed' in copy.here("run", "hello", status=1).err.replace("'", '"')


# --- damage -----------------------------------------------------------------------------------------------------------


def regions(line: bytes) -> dict[str, int]:
    """Return a byte of each field of a line, by the field's name."""
    names = ["schema_version", "session_id", "trace_id", "seq", "ts", "event_type", "actor", "principal", "span_id",
             "parent_span_id", "payload_hash", "prev_envelope_hash", "envelope_hash", "payload"]  # fmt: skip
    found = {name: line.index(b'"%b":' % name.encode()) + len(name) + 4 for name in names}
    return {**found, "key": line.index(b"trace_id"), "brace": len(line) - 2}


def test_any_changed_byte_is_found_and_named(copy: Place, run: str):
    lines = copy.ledger(run).read_bytes().splitlines(keepends=True)
    number = next(index for index, line in enumerate(lines) if b'"tool.call"' in line)
    for name, at in regions(lines[number]).items():
        changed = bytearray(lines[number])
        changed[at] ^= 1
        copy.ledger(run).write_bytes(b"".join([*lines[:number], bytes(changed), *lines[number + 1 :]]))
        report = verify_file(copy.ledger(run), schemas=SCHEMAS)
        assert not report.sound, name
        failures = [*report.bytes.failures, *report.structure.failures]
        assert failures[0].line in (number + 1, number + 2), (name, failures)


@pytest.mark.parametrize("name", ["payload", "payload_hash", "envelope_hash", "ts", "session_id"])
def test_verify_of_a_changed_ledger_names_line_check_expected_and_found(copy: Place, run: str, name: str):
    path = copy.ledger(run)
    lines = path.read_bytes().splitlines(keepends=True)
    at = len(b"".join(lines[:2])) + regions(lines[2])[name]
    raw = bytearray(path.read_bytes())
    raw[at] ^= 1
    path.write_bytes(bytes(raw))
    one = copy.here("verify", run, status=4)
    assert "NOT SOUND" in one.out
    assert "line 3: " in one.out
    failure = next(line for line in one.out.splitlines() if line.startswith("  line 3: "))
    assert ": expected " in failure
    assert ", found " in failure
    report = copy.here("verify", run, "--json", status=4).fits("output_verify_v1")["reports"][0]
    assert report["bytes"]["failures"][0]["line"] == 3
    every = copy.here("verify", status=4)
    assert failure in every.out
    assert "error: NOT SOUND: 1 of 3 ledgers" in every.err


def test_verify_finds_a_payload_that_was_changed_together_with_its_own_hash(copy: Place, run: str):
    path = copy.ledger(run)
    lines = path.read_bytes().splitlines(keepends=True)
    line = next(line for line in lines if b'"user.message"' in line)
    head, _, payload = line.partition(b'"payload":')
    forged = payload[:-2].replace(b"Ada", b"Eve")
    old, new = (sha256(raw).hexdigest().encode() for raw in (payload[:-2], forged))
    path.write_bytes(b"".join(lines).replace(line, head.replace(old, new) + b'"payload":' + forged + b"}\n"))
    assert "envelope_hash: expected" in copy.here("verify", run, status=4).out


def test_verify_finds_whole_lines_that_were_cut_or_swapped(copy: Place, run: str):
    path = copy.ledger(run)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:4], *lines[5:]]))
    assert "line 5: " in copy.here("verify", run, status=4).out
    path.write_bytes(b"".join([*lines[:4], lines[5], lines[4], *lines[6:]]))
    assert "line 5: " in copy.here("verify", run, status=4).out


def alone(path: Path, folder: Path) -> Report:
    """Verify a copy of a ledger outside its state folder."""
    shutil.copyfile(path, folder / "alone.jsonl")
    return verify_file(folder / "alone.jsonl", schemas=SCHEMAS)


def test_end_that_was_cut_off_is_known_to_the_workspace_ledger(copy: Place, run: str, tmp_path: Path):
    path = copy.ledger(run)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-3]))
    assert alone(path, tmp_path).sound, "the file alone cannot tell"
    one = copy.here("verify", run, status=4)
    assert one.out.splitlines()[-2] == "sound, taken by itself"
    ran = copy.here("verify", status=4)
    assert f"missing  session {run}: events: expected at least {len(lines)}, found {len(lines) - 3}" in ran.out
    assert "error: 1 session is NOT what the workspace ledger recorded" in ran.err == one.err
    answer = copy.here("verify", "--json", status=4).fits("output_verify_v1")
    assert (answer["sound"], [each["session"] for each in answer["missing"]]) == (False, [run])


def test_session_that_was_removed_is_known_to_the_workspace_ledger(copy: Place, run: str):
    events = len(copy.events(run))
    shutil.rmtree(copy.ledger(run).parent)
    ran = copy.here("verify", status=4)
    assert f"missing  session {run}: file: expected a ledger of {events} events, ended, found none" in ran.out
    assert run not in copy.here("sessions", status=0).out


def test_session_that_was_written_anew_is_known_to_the_workspace_ledger(copy: Place, run: str, tmp_path: Path):
    path = copy.ledger(run)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(forge([line.replace(b"Hello, Ada!", b"Hello, Eve!") for line in lines])))
    assert alone(path, tmp_path).sound, "the file alone cannot tell"
    ran = copy.here("verify", status=4)
    assert f"differs  session {run}: envelope_hash of line {len(lines)}: expected " in ran.out


def test_torn_last_line_is_told_and_left_alone(copy: Place, run: str):
    path = copy.ledger(run)
    torn = path.read_bytes()[:-30]
    path.write_bytes(torn)
    ran = copy.here("verify", run, status=4)
    assert "torn: " in ran.out
    assert path.read_bytes() == torn
    assert "session.end" not in copy.here("replay", run, status=4).out, "readers stop at the last line break"


@pytest.mark.parametrize("command", ["replay", "tree"])
def test_damaged_line_ends_the_story_with_exit_4(copy: Place, run: str, command: str):
    path = copy.ledger(run)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:5], b"\x00garbage\x1b[31m\n", *lines[6:]]))
    ran = copy.here(command, run, status=4)
    assert "verify" in ran.err
    assert "\x1b" not in ran.err + ran.out
    assert copy.here("sessions", status=0).out


@pytest.mark.parametrize("what", ["link", "fifo", "folder", "empty", "binary"])
def test_what_is_no_ledger_is_refused_and_never_waited_for(copy: Place, run: str, tmp_path: Path, what: str):
    path = copy.ledger(run)
    content = path.read_bytes()
    path.unlink()
    if what == "link":
        (tmp_path / "elsewhere").write_bytes(content)
        path.symlink_to(tmp_path / "elsewhere")
    elif what == "fifo":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    else:
        path.write_bytes(b"" if what == "empty" else os.urandom(4096))
    ran = copy.here("verify", run)
    assert ran.status in (1, 4)
    listed = {each["id"]: each["state"] for each in copy.here("sessions", "--json", status=0).json["sessions"]}
    assert listed[run] in ("damaged", "interrupted", "empty")
    assert copy.here("verify").status in (1, 4)


# --- parts of a tree --------------------------------------------------------------------------------------------------


def first_call(told):
    events = told.here("tree", "last", "--json", status=0).json["events"]
    return next(event for event in events if event["type"] == "tool.call")


def test_tree_of_an_event_holds_it_and_what_it_caused(told):
    call = first_call(told)
    by_span, by_seq = (told.here("tree", "last", "--span", str(call[key]), status=0).out for key in ("span", "seq"))
    assert by_span == by_seq
    assert [line.split()[0] for line in by_span.splitlines()][:2] == ["spans:", "tool.call"]
    assert "└─ tool.result" in by_span
    assert told.here("tree", "last", "--span", call["span"], "--json", status=0).json["roots"] == [call["span"]]


def test_tree_is_cut_below_a_depth_and_counts_what_is_left_out(told):
    whole = told.here("tree", "last", status=0).out.splitlines()
    cut = told.here("tree", "last", "--max-depth", "0", status=0).out.splitlines()
    assert cut == [*whole[:2], f"└─ … {len(whole) - 2} more"]
    assert told.here("tree", "last", "--max-depth", "99", status=0).out.splitlines() == whole


def test_tree_without_payloads_shows_types_alone(told):
    for line in told.here("tree", "last", "--no-payload", status=0).out.splitlines()[1:]:
        assert len(line.lstrip("│├└─ ").split()) == 1


def test_tree_with_ids_shows_seq_span_actor_and_time_of_each_event(told: Place):
    nodes = told.here("tree", "last", "--json", status=0).json["events"]
    lines = told.here("tree", "last", "--ids", "--no-payload", status=0).out.splitlines()[1:]
    shown = [re.search(r"(\S+)  \[(\d+) (\S+) (\S+) \d{4}-\d\d-\d\dT[\d:.]+Z\]$", line) for line in lines]
    found = {(match[1], int(match[2]), match[3], match[4]) for match in shown if match}
    assert len(shown) == len(found)
    assert found == {(node["type"], node["seq"], node["span"], node["actor"]) for node in nodes}


def test_tree_finds_a_session_by_its_trace(told):
    first = told.ledger(told.sessions()[-1]).read_bytes().split(b"\n")[0]
    trace = json.loads(first)["trace_id"]
    session = json.loads(first)["session_id"]
    assert told.here("tree", "--trace", trace, status=0).out == told.here("tree", session, status=0).out
    assert "[SESSION_NOT_FOUND]" in told.here("tree", "--trace", "0" * 32, status=2).err
    assert "name one session: SESSION (last is the newest), or --trace ID" in told.here("tree", status=2).err
    assert (
        "name one session: SESSION (last is the newest), or --trace ID"
        in told.here("tree", "last", "--trace", trace, status=2).err
    )


def test_replay_of_an_event_tells_it_and_what_it_caused(told):
    lines = told.here("replay", "last", "--span", first_call(told)["span"], status=0).out.splitlines()
    assert [line.split()[1] for line in lines[1:]] == ["tool.call:", "tool.result:"]
    assert "--span is for the story" in told.here("replay", "last", "--span", "0", "--json", status=2).err


@pytest.mark.parametrize("command", ["tree", "replay"])
def test_event_that_is_not_there_is_refused(told, command):
    assert "[EVENT_NOT_FOUND]" in told.here(command, "last", "--span", "99999", status=2).err
