"""The survey skill on real files: find, read, count, and a protected write, with somebody else writing meanwhile."""

from hashlib import sha256
from pathlib import Path

import pytest
from commandline import Place

REPORT = "reports/survey.md"
MEDDLER = """
    from pathlib import Path

    from deedbook import GateSpec, allow, hookimpl


    class Plugin:
        # Stands for another process: changes the report just before it is written, as often as it is told to.
        spec = GateSpec(settings={"type": "object", "properties": {"times": {"type": "integer"}}})

        def __init__(self, settings, host):
            self.left = settings["times"]

        @hookimpl
        def pre_tool_use(self, call):
            if self.left:
                self.left -= 1
                Path("reports").mkdir(exist_ok=True)
                Path("reports/survey.md").write_text(f"somebody else's work, {self.left} to come")
            return allow()
"""


@pytest.fixture
def library(place: Place) -> Place:
    """Give a workspace with three Markdown files."""
    place.write("docs/a.md", "# One\n\nalpha beta\n")
    place.write("docs/b.md", "gamma\n")
    place.write("docs/deep/c.md", "delta\n")
    return place


def with_meddler(place: Place, times: int) -> Place:
    place.offer("hooks", "meddle", MEDDLER)
    place.system(
        "hooks/meddle.yaml",
        f"""\
        schema_version: v1
        id: meddle
        event_type: PreToolUse
        handler: {{hook: meddle}}
        with: {{times: {times}}}
        match: {{abilities: [file-write]}}
        """,
    )
    return place


def report(place: Place) -> str:
    return (place.path / REPORT).read_text(encoding="utf-8")


def test_survey_reads_real_files_and_writes_its_report(library: Place):
    ran = library.here("run", "Survey docs/*.md", status=0)
    assert ran.out == f"Surveyed 2 files with 5 words; the report is {REPORT}.\n"
    text = report(library)
    assert "docs/a.md" in text
    assert "docs/b.md" in text
    assert "docs/deep/c.md" not in text
    first = sha256((library.path / "docs/a.md").read_bytes()).hexdigest()
    assert f"The first is `docs/a.md`, with SHA-256 `{first}`." in text
    used = [payload["tool_name"] for payload in library.payloads("tool.call", ran.session)]
    assert used == ["file-find", "file-read", "file-count", "file-hash", "file-write"]
    written = library.payloads("tool.result", ran.session)[-1]["result"]
    assert written["hash"] == sha256((library.path / REPORT).read_bytes()).hexdigest()


def test_survey_replaces_its_own_report_when_the_files_have_changed(library: Place):
    library.here("run", "Survey docs/*.md", status=0)
    library.write("docs/new.md", "one more\n")
    ran = library.here("run", "Survey docs/*.md", status=0)
    assert "Surveyed 3 files with 7 words" in ran.out
    assert "docs/new.md" in report(library)
    (claim,) = (
        call["args"] for call in library.payloads("tool.call", ran.session) if call["tool_name"] == "file-write"
    )
    assert (claim["who"], claim["why"]) == ("worker", "the user asked for a survey of docs/*.md")
    assert len(claim["expected_hash"]) == 64


def test_survey_keeps_the_mode_and_leaves_no_temporary_file(library: Place):
    library.here("run", "Survey docs/*.md", status=0)
    library.here("run", "Survey docs/*.md", status=0)
    assert [path.name for path in (library.path / "reports").iterdir()] == ["survey.md"]


def test_report_that_changed_meanwhile_is_not_overwritten_unseen_and_the_work_is_done_again(library: Place):
    with_meddler(library, 1)
    ran = library.here("run", "Survey docs/*.md", status=0)
    codes = [error["code"] for error in library.payloads("tool.error", ran.session)]
    assert codes == ["WRITE_CONFLICT"]
    verdicts = [payload["data"]["verdict"] for payload in library.payloads("context.noted", ran.session)]
    assert verdicts == ["fail"]
    assert [payload["attempt"] for payload in library.payloads("context.executing", ran.session)] == [1, 2]
    reports = library.payloads("worker.report", ran.session)
    assert "WRITE_CONFLICT" in reports[0]["output"]
    assert "Surveyed 2 files" in reports[1]["output"]
    assert "# Survey of `docs/*.md`" in report(library)


def test_report_that_somebody_keeps_changing_is_left_to_a_person(library: Place):
    with_meddler(library, 99)
    ran = library.here("run", "Survey docs/*.md", status=3)
    assert "No report passed the review in 3 attempts" in ran.out
    assert "the run ended NEEDS_HUMAN" in ran.err
    assert report(library).startswith("somebody else's work")
    assert [error["code"] for error in library.payloads("tool.error", ran.session)] == ["WRITE_CONFLICT"] * 3
    assert library.types(ran.session)[-1] == "session.end"
    assert library.payloads("skill.complete", ran.session)[0]["ok"] is False
    snapshot = library.here("replay", ran.session, "--json", status=0).json
    assert (snapshot["context"], snapshot["attempts"]) == ("NEEDS_HUMAN", 3)


def test_report_elsewhere_is_denied_by_policy_and_named(library: Place):
    skill = library.path / ".system/skills/survey/SKILL.md"
    skill.write_text(skill.read_text(encoding="utf-8").replace("path: reports/survey.md", "path: docs/survey.md"))
    ran = library.here("run", "Survey docs/*.md", status=3)
    assert "denied: file-write: no rule matches; the default is deny (by policy baseline" in ran.err
    assert ".system/policies/baseline.yaml" in ran.err
    assert not (library.path / "docs/survey.md").exists()
    assert {denied["name"] for denied in library.payloads("tool.denied", ran.session)} == {"file-write"}


@pytest.mark.parametrize("path", ["reports/../docs/a.md", "/etc/hosts", "../outside.md", "Reports/x.md"])
def test_path_that_only_looks_like_reports_is_denied(library: Place, path: str):
    skill = library.path / ".system/skills/survey/SKILL.md"
    skill.write_text(skill.read_text(encoding="utf-8").replace("path: reports/survey.md", f"path: {path}"))
    before = {file: file.read_bytes() for file in library.path.rglob("*.md")}
    ran = library.here("run", "Survey docs/*.md", status=3)
    assert library.types(ran.session)[-1] == "session.end"
    assert "file-write" not in {call["tool_name"] for call in library.payloads("tool.call", ran.session)}
    assert before == {file: file.read_bytes() for file in library.path.rglob("*.md")}
    assert not (library.path.parent / "outside.md").exists()


def test_link_out_of_the_workspace_is_not_followed(library: Place, tmp_path: Path):
    (tmp_path / "outside").mkdir()
    (library.path / "reports").symlink_to(tmp_path / "outside")
    ran = library.here("run", "Survey docs/*.md", status=3)
    assert "PATH_REFUSED" in {error["code"] for error in library.payloads("tool.error", ran.session)}
    assert list((tmp_path / "outside").iterdir()) == []


@pytest.mark.parametrize("request_", ["Survey nothing/*.md", "Survey ../*.md", "Survey /etc/*", "Survey .env"])
def test_survey_of_nothing_writes_nothing_and_fails(library: Place, request_: str):
    library.write(".env", "TOKEN=hidden\n")
    ran = library.here("run", request_)
    assert ran.status in (1, 3)
    assert not (library.path / REPORT).exists()
    assert "hidden" not in library.ledger(ran.session).read_text(encoding="utf-8")
    assert library.types(ran.session)[-1] == "session.end"


def test_survey_of_a_file_that_is_no_text_fails_and_says_which(library: Place):
    (library.path / "docs/a.md").write_bytes(b"\xff\xfe\x00")
    ran = library.here("run", "Survey docs/*.md", status=3)
    assert "docs/a.md" in ran.out
    assert not (library.path / REPORT).exists()
