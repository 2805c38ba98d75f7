"""A workspace with the pipeline `small`, a repository, and agents whose answers a test gives."""

import hashlib
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


def build(unit, patch=None, more=None):
    """Return the answer of a good build of *unit*, with the files *more*."""
    base = f"tasks/task-1/build/units/{unit}"
    texts = {
        f"{base}/patch.diff": PATCHES[unit] if patch is None else patch,
        f"{base}/note.md": NOTE.replace(FIRST, unit),
    }
    return answer({**texts, **(more or {})})


def check(*findings):
    """Return the answer of a check with *findings*, each a severity, a rule and a place."""
    rows = [dict(zip(("severity", "rule", "place"), each, strict=True)) for each in findings]
    report = REPORT.replace("findings: []", f"findings: {json.dumps(rows)}")
    return answer({"tasks/task-1/check/report.md": report})


class Shop:
    """The workspace in *lab*; *answers* has what each role answers in turn: texts, or functions of the request."""

    def __init__(self, lab, *, with_git=False):
        self.lab, self.answers, self.requests, self.tested, self.results = lab, {}, [], [], []
        write_pipeline(lab)
        root = lab.path
        old = "{read: swe/read, write: swe/write}"
        used = USED if with_git else {use: name for use, name in USED.items() if use != "git"}
        replace_text(root / ".system/swe", "pipeline.yaml", old, json.dumps(used))
        lab.settings(abilities=ABILITIES, files={"roots": ["."]})
        lab.model(self.respond, tier="mid")
        lab.tool("swe/tests", self.run_tests, effects="read", files="none")
        self.repository = root / "repos/shop"
        if with_git:
            self.repository.mkdir(parents=True)
            git(self.repository, "init", "-q", "-b", "main")
            (self.repository / "shop.py").write_text("LIMIT = 1\n")
            git(self.repository, "add", ".")
            git(self.repository, "commit", "-q", "-m", "first")

    def change(self, path, old, new):
        """Change a file of the pipeline."""
        replace_text(self.lab.path / ".system/swe", path, old, new)

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
        given = self.results.pop(0) if self.results else {}
        return {"schema_version": "v1", "unit_id": FIRST, **count, **given}

    def run(self, task=None, **options):
        """Run a task in a session of its own, and return what the run came to."""
        with self.lab.session("run", **options) as session:
            return session.run(json.dumps({**TASK, **(task or {})}), "swe/small")

    def events(self, *types):
        """Return the payloads of the events of these types, or of all of a task as ``(type, payload)``."""
        found = [(each.type, each.payload) for each in self.lab.events() if each.type.startswith("swe.")]
        return [payload for kind, payload in found if kind.removeprefix("swe.") in types] if types else found

    def blocks(self):
        """Return what blocked phases: phase, by, rule and place."""
        return [(each["phase"], each["by"], each["rule"], each["place"]) for each in self.events("phase_blocked")]

    def asked(self):
        """Return the roles that were asked, in order."""
        return [each["role"] for each in self.requests]

    def hashes(self, *excluded):
        """Return the digest of each file of the workspace that is neither state nor below *excluded*."""
        root = self.lab.path
        paths = (each for each in root.rglob("*") if each.is_file())
        names = {str(each.relative_to(root)): each for each in paths}
        skipped = (".deedbook/", *excluded)
        return {
            name: hashlib.sha256(each.read_bytes()).hexdigest()
            for name, each in names.items()
            if not name.startswith(skipped)
        }

    def text(self, path):
        """Return the text of a file of the workspace."""
        return (self.lab.path / path).read_text()
