"""Old ledgers in a workspace: taken in as they are, kept read-only, shown by their sessions' ids."""

import json
import os
import re
import shutil
import tracemalloc
from hashlib import sha256
from pathlib import Path

import pytest
from commandline import Place, starter
from dying import deaths
from test_old_verification import complete
from test_upcasting import event_000, row_1_0, run_000
from test_verify import honest_1_0, line_1_0

from deedbook.format.errors import LedgerError
from deedbook.format.files import Folder
from deedbook.kernel import open_kernel
from deedbook.maintenance.imports import list_imports
from deedbook.maintenance.opening import open_workspace_ledger
from deedbook.workspace.site import Site
from deedbook.workspace.workspace import read_workspace
from deedbook_audit.upcasting.reader import read
from deedbook_audit.verification.imports import compare_imports
from deedbook_legacy.importer import import_ledger
from deedbook_legacy.old_file import OldFile


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Give a workspace into which two old ledgers were taken."""
    place = starter(tmp_path_factory.mktemp("old") / "workspace")
    more = [line_1_0("session.start", {"_span_id": "a"}, "other"), line_1_0("session.end", {"_span_id": "b",
            "_parent_span_id": "a"}, "other")]  # fmt: skip
    (place.path / "mixed.jsonl").write_bytes(b"".join([*honest_1_0(), *more]))
    (place.path / "audit.jsonl").write_bytes(b"".join(complete()))
    (place.path / "torn.jsonl").write_bytes(b"".join(honest_1_0()) + b'{"event_type"')
    place.here("ledger", "import", "mixed.jsonl", status=0)
    place.here("ledger", "import", "audit.jsonl", status=0)
    return place


@pytest.fixture
def place(ready: Place, tmp_path: Path) -> Place:
    """Give a copy of that workspace, to be changed."""
    shutil.copytree(ready.path, tmp_path / "workspace")
    return Place(tmp_path / "workspace")


def kept(place: Place) -> list[Path]:
    return sorted(place.path.glob(".deedbook/imported/*/events.jsonl"))


def told(place: Place) -> list[dict]:
    lines = (place.path / ".deedbook/workspace/.events.jsonl").read_bytes().splitlines()
    return [line["payload"] for line in map(json.loads, lines) if line["event_type"] == "ledger.imported"]


# --- taking in ------------------------------------------------------------------------------------------------------


def test_bytes_are_kept_as_they_were_under_their_hash_and_read_only(ready):
    for name in ("mixed.jsonl", "audit.jsonl"):
        raw = (ready.path / name).read_bytes()
        (found,) = [each for each in kept(ready) if each.read_bytes() == raw]
        assert found.parent.name == sha256(raw).hexdigest()
        assert found.stat().st_mode & 0o777 == 0o444


def test_workspace_ledger_says_what_was_taken_in_by_whom_and_what_it_was_worth(ready):
    mixed, audit = told(ready)
    raw = (ready.path / "mixed.jsonl").read_bytes()
    assert {name: mixed[name] for name in ("sha256", "size", "format", "from", "by", "verdict")} == {
        "sha256": sha256(raw).hexdigest(), "size": len(raw), "format": "1.0", "from": "mixed.jsonl", "by": "local",
        "verdict": "sound",
    }  # fmt: skip
    assert [(each["session"], each["events"], each["ended"]) for each in mixed["sessions"]] == [
        ("s", 5, True), ("other", 2, True),
    ]  # fmt: skip
    assert (audit["format"], audit["verdict"], audit["sessions"][0]["session"], audit["sessions"][0]["events"]) == (
        "seed-000", "unhashed", "sess_01", 11,
    )  # fmt: skip


def test_taking_in_once_more_changes_nothing(place):
    before = (place.path / ".deedbook/workspace/.events.jsonl").read_bytes()
    ran = place.here("ledger", "import", "mixed.jsonl", status=0)
    assert "taken in already, by local" in ran.err
    assert (place.path / ".deedbook/workspace/.events.jsonl").read_bytes() == before


def test_unsound_ledger_is_refused_unless_somebody_says_why(place):
    ran = place.here("ledger", "import", "torn.jsonl", status=4)
    assert "[IMPORT_REFUSED]" in ran.err
    assert len(kept(place)) == 2
    place.here("ledger", "import", "torn.jsonl", "--as-is", "it is all there is", status=0)
    assert (told(place)[-1]["verdict"], told(place)[-1]["as_is"]) == ("unsound", "it is all there is")
    assert place.here("verify", status=0)


@pytest.mark.parametrize(("raw", "code", "why"), [
    (b"", "NOT_A_LEDGER", "it is empty"),
    (b"hello\n", "NOT_A_LEDGER", "its first line is not a JSON object"),
    (b'{"event_type":torn\n', "IMPORT_REFUSED", "it holds no event"),
    (b'{"schema_version":"1.1"', "IMPORT_REFUSED", "one of format 1.1 is read as it is"),
])  # fmt: skip
def test_what_is_no_old_ledger_is_refused(place, raw, code, why):
    (place.path / "x").write_bytes(raw)
    ran = place.here("ledger", "import", "x", "--as-is", "x", status=4)
    assert f"[{code}]" in ran.err
    assert why in ran.err
    assert len(told(place)) == 2


def test_only_a_declared_person_takes_in(place):
    ran = place.here("ledger", "import", "torn.jsonl", "--as", "nobody", status=2)
    assert "principal 'nobody' is not declared" in ran.err


@pytest.mark.parametrize("left", ["nothing", "half", "zeros"])
def test_whoever_is_killed_half_way_is_followed_by_the_next(place, left):
    source = read_workspace(place.path)
    raw = b"".join(run_000())

    (place.path / "x").write_bytes(raw)

    def take() -> None:
        with (
            OldFile.open(place.path / "x") as old,
            Folder.at(source.state) as state,
            open_workspace_ledger(Site.of(source)) as ledger,
        ):
            import_ledger(state, ledger, old, old.verify(), by="local", as_is=None)

    died = deaths(take, again=lambda: clear(source.state, raw), left=left)
    assert died > 5
    found = [each for each in list_imports(source.state) if each.size == len(raw)]
    assert len(found) == 1
    assert found[0].place(source.state).read_bytes() == raw
    assert place.here("verify", status=0)


def test_large_ledger_is_taken_in_line_by_line(place):
    text = {"_span_id": "b", "_parent_span_id": "a", "text": "x" * 200_000}
    lines = [line_1_0("session.start", {"_span_id": "a"}), *(
        line_1_0("user.message", {**text, "_span_id": f"b{number}"}) for number in range(40)
    )]  # fmt: skip
    (place.path / "large.jsonl").write_bytes(b"".join(lines))
    size = (place.path / "large.jsonl").stat().st_size
    del lines
    tracemalloc.start()
    try:
        place.here("ledger", "import", "large.jsonl", status=0)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < size // 2
    assert told(place)[-1]["size"] == size
    assert (place.path / "large.jsonl").read_bytes() in [each.read_bytes() for each in kept(place)]


def test_file_that_changes_while_it_is_read_is_not_taken_in(place, monkeypatch):
    (place.path / "busy.jsonl").write_bytes(b"".join(honest_1_0()[:-1]))
    real = OldFile.sessions

    def grown(old, *, lenient):
        found = real(old, lenient=lenient)
        with (place.path / "busy.jsonl").open("ab") as file:
            file.write(honest_1_0()[-1])
        return found

    monkeypatch.setattr(OldFile, "sessions", grown)
    ran = place.here("ledger", "import", "busy.jsonl", status=4)
    assert "the file was changed while it was read; nothing was imported" in ran.err
    assert (len(kept(place)), len(told(place))) == (2, 2)
    assert not list((place.path / ".deedbook/imported").rglob(".*"))


def test_more_sessions_than_an_event_can_hold_are_refused_before_anything_is_kept(place, monkeypatch):
    monkeypatch.setattr("deedbook.format.canonical.PAYLOAD_NODES", 60)
    lines = [line_1_0("session.start", {"_span_id": "a"}, f"s{number}") for number in range(30)]
    (place.path / "many.jsonl").write_bytes(b"".join(lines))
    ran = place.here("ledger", "import", "many.jsonl", status=4)
    assert "it holds 30 sessions, too many for one event" in ran.err
    assert (len(kept(place)), len(told(place))) == (2, 2)
    assert len(list((place.path / ".deedbook/imported").iterdir())) == 2


def clear(state: Path, raw: bytes) -> None:
    """See that nothing half-done is shown: the file is whole or is not there."""
    place = state / "imported" / sha256(raw).hexdigest() / "events.jsonl"
    assert not place.exists() or place.read_bytes() == raw
    assert not list(compare_imports(state)), "an import that was killed is no fault"


def test_import_that_was_killed_after_it_was_recorded_is_read_and_finished_by_recovery(place):
    (place.path / "x").write_bytes(b"".join(run_000()))
    place.here("ledger", "import", "x", status=0)
    digest = sha256(b"".join(run_000())).hexdigest()
    kept = place.path / ".deedbook/imported" / digest / "events.jsonl"
    pending = kept.rename(kept.with_name("events.jsonl.pending"))
    place.here("replay", f"{digest[:12]}#sess_01", status=0)
    place.here("verify", status=0)
    with open_kernel(place.path) as kernel:
        kernel.recover()
    assert kept.exists()
    assert not pending.exists()


def test_import_that_was_killed_before_it_was_recorded_is_made_again(place):
    raw = b"".join(run_000())
    folder = place.path / ".deedbook/imported" / sha256(raw).hexdigest()
    folder.mkdir(parents=True)
    (folder / "events.jsonl.pending").write_bytes(raw[:-5])
    (place.path / "x").write_bytes(raw)
    place.here("verify", status=0)
    place.here("ledger", "import", "x", status=0)
    assert [each.name for each in folder.iterdir()] == ["events.jsonl"]
    assert (folder / "events.jsonl").read_bytes() == raw


# --- being read -----------------------------------------------------------------------------------------------------


def test_sessions_of_old_ledgers_are_listed_among_the_others(ready):
    rows = {row["id"]: row for row in ready.here("sessions", "--json", status=0).fits("output_sessions_v1")["sessions"]}
    assert {name: (rows[name]["state"], rows[name]["events"], rows[name]["format"]) for name in rows} == {
        "s": ("ended", 5, "1.0"), "other": ("ended", 2, "1.0"), "sess_01": ("ended", 11, "seed-000"),
    }  # fmt: skip
    assert "imported " in ready.here("sessions", status=0).out


def test_session_that_was_taken_in_without_its_end_is_not_ended_here(place):
    line = line_1_0("session.start", {"_span_id": "a"}, "unended")
    (place.path / "unended.jsonl").write_bytes(line)
    place.here("ledger", "import", "unended.jsonl", status=0)
    before = sorted(file.read_bytes() for file in kept(place))
    refused = place.here("sessions", "close", "unended", status=1).err
    assert "came with an old ledger, whose bytes stay as they are" in refused
    assert "[SESSION_ENDED]" in refused
    assert "[SESSION_NOT_FOUND]" in place.here("sessions", "close", "nobody", status=2).err
    assert sorted(file.read_bytes() for file in kept(place)) == before


@pytest.mark.parametrize("name", ["sess_01", "sess", "audit.jsonl", "audit.jsonl#sess_01"])
def test_every_reading_command_shows_an_old_session_by_its_id_and_by_its_file(ready, name):
    snapshot = ready.here("replay", name, "--json", status=0).fits("output_replay_v1")
    assert (snapshot["closed"], snapshot["output"], snapshot["prompt"]) == (True, "hello", "say hello")
    assert "worker.report: hello" in ready.here("replay", name, status=0).out
    assert "spans: 11" in ready.here("tree", name, status=0).out
    assert "format seed-000, 11 events, ended" in ready.here("verify", name, status=4).out


def test_one_of_several_sessions_is_named_by_id_hash_and_file(ready):
    sha = told(ready)[0]["sha256"]
    for name in ("other", "mixed.jsonl#other", f"{sha[:8]}#other", f".deedbook/imported/{sha}/events.jsonl#other"):
        assert "spans: 2," in ready.here("tree", name, status=0).out, name
    ran = ready.here("tree", "mixed.jsonl", status=2)
    assert "it holds 2 sessions; name one: mixed.jsonl#s, mixed.jsonl#other" in ran.err
    assert ready.here("tree", "mixed.jsonl#nobody", status=2)


def test_name_that_two_old_ledgers_have_is_asked_about(place):
    (place.path / "longer.jsonl").write_bytes(b"".join([*honest_1_0()[:4]]))
    place.here("ledger", "import", "longer.jsonl", status=0)
    ran = place.here("tree", "s", status=2)
    assert "2 imported sessions begin with 's'; name one:" in ran.err


def test_old_sessions_are_counted_with_the_others(ready):
    every = ready.here("stats", "--json", status=0).fits("output_stats_v1")
    old = [ready.here("stats", name, "--json", status=0).fits("output_stats_v1") for name in ("s", "other")]
    assert sum(one["events"] for one in old) < every["events"]
    assert every["ledgers"] == 1 + sum(len(each["sessions"]) for each in told(ready))


def test_old_session_is_exported_as_cloudevents(ready):
    lines = list(map(json.loads, ready.here("export", "s", "--as", "cloudevents", status=0).out.splitlines()))
    assert {line["deedbooksession"] for line in lines} == {"s"}
    assert len({line["traceparent"] for line in lines}) == len(lines)
    assert all(re.fullmatch("00-[0-9a-f]{32}-[0-9a-f]{16}-01", line["traceparent"]) for line in lines)


def test_old_session_is_exported_in_the_form_of_seed_002(ready):
    lines = ready.here("export", "s", "--as", "seed-002", status=0).out.splitlines()
    assert [json.loads(line)["trace_id"] for line in lines] == ["t"] * 6


def test_session_whose_end_does_not_say_how_is_not_counted_as_failed(ready):
    for name, state in (("s", "ended"), ("other", "ended"), ("sess_01", "ok")):
        assert ready.here("stats", name, "--json", status=0).fits("output_stats_v1")["sessions"] == {state: 1}
    assert 'deedbook_sessions{state="ended"} 1.0' in ready.here("stats", "s", "--prometheus", status=0).out
    assert ready.here("stats", "mixed.jsonl", "--json", status=0).json["sessions"] == {"ended": 2}
    page = ready.here("replay", "s", "--html", status=0).out
    assert "ended" in page
    assert "not ok" not in page


# --- verification of the workspace ----------------------------------------------------------------------------------


def test_workspace_is_verified_with_what_was_taken_in(place):
    assert place.here("verify", status=0)
    first = kept(place)[0]
    first.chmod(0o644)
    first.write_bytes(first.read_bytes() + b"\n")
    ran = place.here("verify", "--json", status=4).json
    (gap,) = ran["missing"]
    assert (gap["check"], gap["expected"]) == ("sha256", first.parent.name)
    assert gap["found"] == sha256(first.read_bytes()).hexdigest()
    ran = place.here("verify", status=4)
    about = f"imported {first.parent.name[:12]}: sha256: expected {first.parent.name}, found {gap['found']}"
    assert ran.out.splitlines()[0] == f"BROKEN in imported {first.parent.name[:12]}: {about}"
    assert f"differs  {about}" in ran.out.splitlines()
    assert "error: 1 thing is NOT what the workspace ledger recorded" in ran.err


def test_old_ledger_that_is_gone_or_that_nothing_tells_of_is_found(place):
    shutil.rmtree(kept(place)[0].parent)
    stray = place.path / ".deedbook/imported" / ("0" * 64)
    stray.mkdir()
    (stray / "events.jsonl").write_bytes(row_1_0("p", "a"))
    found = {gap["check"]: gap["found"] for gap in place.here("verify", "--json", status=4).json["missing"]}
    assert found == {"sha256": "none", "record": "none"}


def test_other_bytes_under_the_hash_are_not_taken_for_the_ledger(place):
    raw = b"".join(run_000())
    folder = place.path / ".deedbook/imported" / sha256(raw).hexdigest()
    folder.mkdir()
    (folder / "events.jsonl").write_bytes(b"x")
    (place.path / "x.jsonl").write_bytes(raw)
    ran = place.here("ledger", "import", "x.jsonl", status=4)
    assert "other bytes are kept there than their name says" in ran.err


def test_link_is_not_followed(place):
    os.symlink("audit.jsonl", place.path / "link")
    assert place.here("ledger", "import", "link").status != 0


def test_reading_what_is_no_line_of_the_form_says_where(tmp_path):
    place = tmp_path / "x.jsonl"
    place.write_bytes(event_000("a.b", {}) + b"garbage\n")
    with pytest.raises(LedgerError, match="not a line of seed 000's events"):
        list(read(place))
