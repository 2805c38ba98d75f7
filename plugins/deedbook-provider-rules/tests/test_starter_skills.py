"""The starter's skills, loaded and played with the real tools."""

import pytest

from deedbook import Failed, FolderEntry, Skill
from deedbook.format.files import Conflict, Folder
from deedbook_author.starter import STARTER

markdown = pytest.importorskip("deedbook_skill_markdown")
tools = pytest.importorskip("deedbook_tool_standard")


class ToolHost:
    """A host on a real folder that may write."""

    def __init__(self, root):
        self.folder = Folder.at(root)
        self.open = self.folder.open

    def scan(self, path):
        above = f"{path}/" if path else ""
        return [FolderEntry(f"{above}{found.name}", found.folder, found.size) for found in self.folder.scan(path)]

    def replace(self, path, data, *, expected):
        try:
            return self.folder.replace(path, data, expected=expected)
        except Conflict as problem:
            raise Failed("WRITE_CONFLICT", str(problem)) from None


@pytest.fixture
def starter():
    """Return what gives a skill of the repository, as a request holds it."""
    loader = markdown.Markdown({"roots": ["skills"]}, ToolHost(STARTER))
    found = {skill.name: skill for skill in loader() if isinstance(skill, Skill)}
    return lambda name: {"name": name, "description": found[name].description, "metadata": dict(found[name].metadata)}


@pytest.fixture
def real_tools(tmp_path):
    from importlib.metadata import entry_points

    class Patience:
        def remaining(self):
            return float("inf")

    host = ToolHost(tmp_path)
    made = {
        entry.name: entry.load()({}, host)
        for entry in entry_points(group="deedbook.tools")
        if entry.name == "echo" or entry.name.startswith("file-")
    }
    return {name: lambda args, tool=tool: tool(args, Patience()) for name, tool in made.items()}


def test_fix_says_what_was_found_and_what_needs_a_model(model, starter, real_tools, tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "auth.ts").write_text("let a = 1\n")
    tested = {"status": 1, "stdout": "FAILED  an expired session\n", "stderr": ""}
    tools = {**real_tools, "run-tests": lambda args: tested}
    done = model.run("Fix the bug in auth.ts, please", starter("fix"), tools)
    said = done["report"]["output"]
    assert said.startswith("Nothing is fixed.")
    assert 'Files found for `auth.ts`: ["src/auth.ts"]\n\nRead: `src/auth.ts`, 10 bytes, SHA-256 ' in said
    assert "Tests: `run-tests` ended with status 1.\nFAILED  an expired session\n" in said
    assert "1. Find the cause in `auth.ts`. This needs a model or a person." in said
    assert "deedbook run --profile NAME" in said
    assert (done["report"]["steps_completed"], done["review"]["verdict"]) == (["s1", "s2", "s3"], "fail")
    assert done["review"]["feedback"] == said, "the person who decides sees the whole answer"
    assert (tmp_path / "src" / "auth.ts").read_text() == "let a = 1\n"


@pytest.mark.parametrize("code", ["TOOL_NOT_FOUND", "GATE_DENIED", "PROCESS_FAILED"])
def test_fix_says_why_there_is_no_file_and_no_test(model, starter, real_tools, code):
    def run_tests(args):
        raise Failed(code, "no")

    done = model.run("debug lib/auth.ts", starter("fix"), {**real_tools, "run-tests": run_tests})
    said = done["report"]["output"]
    assert "Files found for `lib/auth.ts`: []\n\nNo file was read: rule 1 of skill fix: step s2 needs /paths/0" in said
    assert "Tests: `run-tests` gave no result: no.\n" in said
    assert "${" not in said, "a reply has no text of a template"
    assert (done["report"]["steps_skipped"], done["review"]["verdict"]) == (["s2", "s3"], "fail")


def test_fix_without_a_file_only_runs_the_tests(model, starter, real_tools):
    tested = {"status": 0, "stdout": "ok\n", "stderr": ""}
    done = model.run("fix the bug", starter("fix"), {**real_tools, "run-tests": lambda args: tested})
    assert [call["name"] for call in done["calls"]] == ["run-tests"]
    assert "The request names no file" in done["report"]["output"]


GREETINGS = {
    "Say hello to Ada": "Hello, Ada!",
    "say hello to Ada.": "Hello, Ada!",
    "Please say hi to Ada Lovelace, please!": "Hello, Ada Lovelace!",
    "greet Зоя": "Hello, Зоя!",
    "Say hello to Seán O'Casey": "Hello, Seán O'Casey!",
    "hello": "Hello, world!",
    "Say hi!": "Hello, world!",
}


@pytest.mark.parametrize(("request_", "answer"), GREETINGS.items(), ids=GREETINGS)
def test_greet_answers(model, starter, real_tools, request_, answer):
    done = model.run(request_, starter("greet"), real_tools)
    assert (done["report"]["output"], done["review"]["verdict"]) == (answer, "pass")


@pytest.mark.parametrize("request_", ["Say hello to Ada and then delete everything; now", "hello there, what is 2+2"])
def test_greet_does_not_guess(model, starter, real_tools, request_):
    with pytest.raises(Failed) as caught:
        model.run(request_, starter("greet"), real_tools)
    assert caught.value.code == "NO_RULE"


@pytest.fixture
def docs(tmp_path):
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "a.md").write_text("one two\nthree\n")
    (folder / "b.md").write_text("four\n")
    return folder


def test_survey_writes_a_report_of_real_files(model, starter, real_tools, docs, tmp_path):
    done = model.run("Survey docs/*.md", starter("survey"), real_tools)
    assert done["report"]["output"] == "Surveyed 2 files with 4 words; the report is reports/survey.md."
    assert done["review"]["verdict"] == "pass"
    report = (tmp_path / "reports" / "survey.md").read_text()
    assert report.startswith("# Survey of `docs/*.md`\n\n| file ")
    assert "| docs/a.md | 2 | 3 | 14 |" in report


def test_survey_works_again_when_the_files_changed(model, starter, real_tools, docs, tmp_path):
    model.run("Survey docs/*.md", starter("survey"), real_tools)
    (docs / "c.md").write_text("five\n")
    done = model.run("survey docs/*.md.", starter("survey"), real_tools)
    assert done["review"]["verdict"] == "pass"
    assert "docs/c.md" in (tmp_path / "reports" / "survey.md").read_text()


def test_survey_does_not_overwrite_what_it_has_not_seen(model, starter, real_tools, docs, tmp_path):
    def hash_then_change(args):
        seen = real_tools["file-hash"](args)
        (tmp_path / "reports").mkdir()
        (tmp_path / "reports" / "survey.md").write_text("somebody's work")
        return seen

    done = model.run("Survey docs/*.md", starter("survey"), {**real_tools, "file-hash": hash_then_change})
    assert "failed with WRITE_CONFLICT" in done["report"]["output"]
    assert done["review"]["verdict"] == "fail"
    assert (tmp_path / "reports" / "survey.md").read_text() == "somebody's work"


@pytest.mark.usefixtures("docs")
def test_survey_of_nothing_says_so(model, starter, real_tools, tmp_path):
    with pytest.raises(Failed, match=r"needs /paths/0 of step s1, but its result has nothing there"):
        model.run("Survey docs/*.txt", starter("survey"), real_tools)
    assert not (tmp_path / "reports").exists()
