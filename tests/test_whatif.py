"""`deedbook whatif`: recorded calls judged again under another workspace's charter, and nothing touched."""

import shutil
from pathlib import Path

import pytest
from commandline import Place, starter

WRITING = '{"path":"reports/a.md","text":"hi","expected_hash":"","who":"ada","why":"to try"}'


@pytest.fixture(scope="module")
def worked(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Give a workspace with a run, an allowed call, a denied call and a call of what is not there; only read it."""
    made = starter(tmp_path_factory.mktemp("worked") / "workspace")
    made.here("run", "Say hello to Ada", status=0)
    made.here("call", "file-write", "--args", WRITING, status=0)
    made.here("call", "file-write", "--args", WRITING.replace("reports/", "src/"), status=3)
    made.here("call", "ecko", status=3)
    return made


@pytest.fixture
def other(worked: Place, tmp_path: Path) -> Place:
    """Give a copy of its system folder, to be changed."""
    shutil.copytree(worked.path / ".system", tmp_path / "other/.system")
    return Place(tmp_path / "other")


def baseline(other: Place, old: str, new: str) -> None:
    place = other.path / ".system/policies/baseline.yaml"
    text = place.read_text()
    assert old in text
    place.write_text(text.replace(old, new))


def test_whatif_under_the_same_charter_changes_nothing(worked: Place, other: Place) -> None:
    told = worked.here("whatif", "--all", "--system", str(other.path), "--json", status=0).fits("output_whatif_v1")
    assert (told["changed"], told["undetermined"], told["changes"]) == (0, [], [])
    assert told["totals"]["same"] == 10


def test_whatif_names_what_is_newly_denied_and_by_which_rule(worked: Place, other: Place) -> None:
    baseline(other, "under: [reports]", "under: [notes]")
    ran = worked.here("whatif", "--all", "--system", str(other.path), status=1)
    line = ran.out.splitlines()[0]
    assert line.startswith(
        "tighter file-write for local: allow → deny (policy baseline, .system/policies/baseline.yaml:2"
    )
    assert "charter looser: policy baseline: rule " in ran.err
    assert ran.out.endswith("10 calls of 4 sessions judged again: 0 looser, 1 tighter\n")
    assert worked.here("whatif", "--all", "--system", str(other.path), "--exit-zero", status=0).out == ran.out


def test_whatif_lists_the_weightiest_first_and_at_most_as_many_as_asked(worked: Place, other: Place) -> None:
    baseline(other, "effects: [none, read]", "effects: [none]")
    baseline(other, "under: [reports]", "under: [src]")
    told = worked.here("whatif", "--all", "--system", str(other.path), "--json", status=1).fits("output_whatif_v1")
    assert [(each["change"], each["way"], each["ability"]) for each in told["changes"]][:2] == [
        ("allowed", "looser", "file-write"),
        ("denied", "tighter", "file-write"),
    ]
    assert told["changes"][0]["now"]["by"]["rule"] == ".system/policies/baseline.yaml:10"
    assert told["changed"] == told["looser"] + told["tighter"] == len(told["changes"])
    some = worked.here("whatif", "--all", "--system", str(other.path), "--limit", "1", status=1).out
    assert some.splitlines()[0].startswith("looser  file-write for local: deny → allow")
    assert f"and {told['changed'] - 1} more; --limit 0 lists all" in some


def test_whatif_counts_abilities_that_are_gone_apart(worked: Place, other: Place) -> None:
    shutil.rmtree(other.path / ".system/skills/survey")  # it allows the ability
    (other.path / ".system/registry/low-level/file-write.yaml").unlink()
    baseline(other, "abilities: [file-write]", "abilities: [echo]")
    told = worked.here("whatif", "--all", "--system", str(other.path), "--json", status=1).fits("output_whatif_v1")
    assert (told["totals"]["missing"], told["totals"]["denied"]) == (1, 0)
    assert told["changes"][0]["now"]["code"] == "TOOL_NOT_FOUND"
    assert told["changes"][0]["effects"] is None


def test_whatif_takes_sessions_by_id_beginning_file_and_last_each_once(worked: Place, other: Place) -> None:
    first = worked.sessions()[0]
    names = (first, first[:12], str(worked.ledger(first)))
    told = worked.here("whatif", *names, "--system", str(other.path), "--json", status=0)
    assert told.fits("output_whatif_v1")["sessions"] == 1
    last = worked.here("whatif", "last", "--system", str(other.path / ".system"), "--json", status=0)
    assert last.fits("output_whatif_v1")["totals"]["same"] == 1


@pytest.mark.parametrize(
    ("args", "why"),
    [
        ([], "name the sessions, or say --all"),
        (["--all", "last"], "name the sessions, or say --all"),
        (["nobody"], "there is no session 'nobody'"),
    ],
)
def test_whatif_says_what_is_missing(worked: Place, other: Place, args: list[str], why: str) -> None:
    assert why in worked.here("whatif", *args, "--system", str(other.path), status=2).err


def test_whatif_does_not_look_for_a_workspace_above(worked: Place, other: Place) -> None:
    inside = other.path / "docs"
    inside.mkdir()
    assert "holds no .system" in worked.here("whatif", "--all", "--system", str(inside), status=2).err


def test_whatif_says_what_is_wrong_with_the_other_charter(worked: Place, other: Place) -> None:
    baseline(other, "then: allow", "then: alow")
    ran = worked.here("whatif", "--all", "--system", str(other.path), status=1)
    assert ".system/policies/baseline.yaml:" in ran.err
    assert ran.out == ""


def test_whatif_names_a_script_that_was_not_copied_and_says_nothing_of_the_charter(worked: Place, other: Place) -> None:
    other.system(
        "hooks/guard.yaml",
        "schema_version: v1\nid: guard\nevent_type: PreToolUse\nmatch: {}\nhandler: {script: [sh, scripts/guard.sh]}\n",
    )
    ran = worked.here("whatif", "--all", "--system", str(other.path), status=1)
    assert ".system/hooks/guard.yaml:5:24" in ran.err
    assert 'there is no "scripts/guard.sh" in the workspace; restore it, or correct the path' in ran.err
    assert "charter " not in ran.err
    other.write("scripts/guard.sh", """echo '{"decision": "allow"}'\n""")
    assert "charter tighter: hook guard is new" in worked.here("whatif", "--all", "--system", str(other.path)).err


def test_whatif_of_a_ledger_that_is_not_sound_says_where(worked: Place, other: Place, tmp_path: Path) -> None:
    lines = worked.ledger(worked.sessions()[0]).read_bytes().splitlines(keepends=True)
    place = tmp_path / "cut.jsonl"
    place.write_bytes(b"".join([*lines[:2], b"{}\n", *lines[2:]]))
    ran = worked.here("whatif", str(place), "--system", str(other.path), status=4)
    assert f"{place}:3" in ran.err


def test_whatif_touches_neither_workspace(worked: Place, other: Place) -> None:
    def seen() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for root in (worked, other) for path in root.path.rglob("*")}

    before = seen()
    baseline(other, "default: deny", "default: ask")
    changed = other.path / ".system/policies/baseline.yaml"
    before[changed] = changed.stat().st_mtime_ns
    worked.here("whatif", "--all", "--system", str(other.path), status=1)
    assert seen() == before
    assert not (other.path / ".deedbook").exists()
