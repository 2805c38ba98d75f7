"""A workspace with the pipeline `small`, a repository, and agents whose answers a test gives."""

import json
import subprocess

from pipelines import NOTE, REPORT, SPEC, WORK, replace_text, write_pipeline

TASK = {"id": "task-1", "title": "Raise the limit", "request": "Raise the limit to 2.", "project": "shop"}
ABILITIES = {
    "swe/read": {"summary": "Read files.", "handler": {"tool": "swe-read"}},
    "swe/write": {"summary": "Write files.", "handler": {"tool": "swe-write"}},
    "swe/move": {"summary": "Move files.", "handler": {"tool": "swe-move"}},
    "swe/patch": {"summary": "Check a patch.", "handler": {"tool": "swe-patch"}},
    "swe/git": {"summary": "Use git.", "handler": {"tool": "swe-git"}},
    "swe/human-review": {"summary": "Ask a person.", "handler": {"tool": "swe-review"}, "tags": ["approval-gate"]},
}
USED = {
    "read": "swe/read", "write": "swe/write", "move": "swe/move", "patch": "swe/patch", "git": "swe/git",
    "ask_human": "swe/human-review",
}  # fmt: skip
FIRST, SECOND = "unit-001", "unit-002"
PATCHES = {
    FIRST: "--- a/shop.py\n+++ b/shop.py\n@@ -1 +1 @@\n-LIMIT = 1\n+LIMIT = 2\n",
    SECOND: "--- /dev/null\n+++ b/auth.py\n@@ -0,0 +1 @@\n+NAME = 'x'\n",
}


def git(folder, *args):
    """Run git in *folder* and return what it prints."""
    who = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    return subprocess.run(["git", *who, *args], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def answer(outputs, **more):
    """Return an answer of an agent with the texts of *outputs* by path."""
    rows = [{"path": path, "text": text} for path, text in outputs.items()]
    return json.dumps({"outputs": rows, "blocked": None, "notes": "", "schema_version": "v1", **more})


def outline(**more):
    """Return the answer of a good outline."""
    return answer({"tasks/task-1/outline/spec.md": SPEC, "tasks/task-1/outline/work.md": WORK}, **more)


def build(unit, patch=None, **more):
    """Return the answer of a good build of *unit*."""
    base = f"tasks/task-1/build/units/{unit}"
    texts = {
        f"{base}/patch.diff": PATCHES[unit] if patch is None else patch,
        f"{base}/note.md": NOTE.replace(FIRST, unit),
    }
    return answer({**texts, **more})


def check(report=REPORT):
    """Return the answer of a good check."""
    return answer({"tasks/task-1/check/report.md": report})


class Shop:
    """The workspace in *lab*; *answers* has what each role answers in turn: texts, or functions of the request."""

    def __init__(self, lab):
        self.lab, self.answers, self.requests, self.tested = lab, {}, [], []
        write_pipeline(lab)
        root = lab.path
        old = "{read: swe/read, write: swe/write}"
        replace_text(root / ".system/swe", "pipeline.yaml", old, json.dumps(USED))
        lab.settings(abilities=ABILITIES, files={"roots": ["."]})
        lab.model(self.respond, tier="mid")
        lab.tool("swe/tests", self.run_tests, effects="read", files="none")
        repository = root / "repos/shop"
        repository.mkdir(parents=True)
        git(repository, "init", "-q", "-b", "main")
        (repository / "shop.py").write_text("LIMIT = 1\n")
        git(repository, "add", ".")
        git(repository, "commit", "-q", "-m", "first")
        self.results = {}

    def script(self, **answers):
        """Set what the roles answer."""
        self.answers = {role: list(given) if isinstance(given, list) else [given] for role, given in answers.items()}

    def good(self):
        """Let every agent give a good answer."""
        self.script(outliner=outline(), builder=[build(FIRST), build(SECOND)], checker=check())

    def respond(self, request, ctx):
        self.requests.append(request)
        given = self.answers[request["role"]]
        found = given.pop(0) if len(given) > 1 else given[0]
        return found(request) if callable(found) else found

    def run_tests(self, args, ctx):
        self.tested.append(args)
        count = {"passed": 1, "failed": 0, "exit_code": 0}
        return {"schema_version": "v1", "unit_id": FIRST, **count, **self.results}

    def run(self, task=None, **options):
        """Run a task in a session of its own, and return what the run came to."""
        with self.lab.session("run", **options) as session:
            return session.run(json.dumps({**TASK, **(task or {})}), "swe/small")

    def events(self, prefix="swe."):
        """Return the types and payloads of the events of the task."""
        return [(each.type.removeprefix("swe."), each.payload) for each in self.lab.events() if each.type.startswith(prefix)]

    def text(self, path):
        """Return the text of a file of the workspace."""
        return (self.lab.path / path).read_text()
