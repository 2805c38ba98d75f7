"""Limits of branches: which abilities and files a branch of a flow may use, at the door and in the host."""

import asyncio
import os
import queue
import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from hashlib import sha256

import pytest

from deedbook import ALLOW, Branch, Failed, GateSpec, HandlerSpec, Limits, hookimpl

WRITE = {"who": "a test", "why": "to see", "expected_hash": ""}
TOOLS = "read write list find echo undeclared sly later flow main other"


@pytest.fixture
def desk(lab):
    """Declare the file tools, tools of several kinds, and a skill that allows them."""
    for name in ("read", "write", "list", "find"):
        lab.settings(abilities={name: {"summary": f"{name}.", "handler": {"tool": f"file-{name}"}}})
    lab.tool("echo", lambda args, ctx: args, files="none")
    lab.tool("undeclared", lambda args, ctx: args)
    lab.skill("greet", allows=TOOLS, triggers="hello")
    for path in ("src/a.py", "src/deep/b.py", "src/deep/c.md", "docs/c.md", "secret/d", "top.txt"):
        (lab.path / path).parent.mkdir(parents=True, exist_ok=True)
        (lab.path / path).write_text(path)
    return lab


def run(lab, work, limits, **more):
    """Run *work* in one branch with *limits*, and return what it returns."""
    found = []

    def main(args, run):
        found.extend(run.parallel([Branch("desk", work, limits=limits, **more)]))
        return "done"

    lab.flow("main", main)
    with lab.session("run") as session:
        answer = session.run("hello")
        assert found, answer
    return found[0]


def refused(run, ability, args):
    """Make a call that must fail, and return its code."""
    with pytest.raises(Failed) as caught:
        run.call(ability, args)
    return caught.value.code


def sly(lab, act, name="sly", **spec):
    """Offer a tool that builds its paths itself: *act* gets its host and its arguments."""

    class Sly:
        def __init__(self, settings, host):
            self.host = host

        def __call__(self, args, ctx):
            return act(self.host, args)

    Sly.spec = HandlerSpec(
        **{"effects": "none", "gives": {"type": ["string", "array", "null"]}, "files": "host", **spec}
    )
    lab.offer("tool", f"offered-{name}", Sly)
    lab.settings(abilities={name: {"summary": f"{name}.", "handler": {"tool": f"offered-{name}"}}})


def read_text(host, path):
    with host.open(path) as file:
        return file.read().decode()


# --- at the door ------------------------------------------------------------------------------------------------------


def test_read_outside_the_limits_is_denied_and_recorded(desk):
    """The denial names the limits; the branch's event holds them."""

    def work(run):
        assert run.call("read", {"path": "src/a.py"})["text"] == "src/a.py"
        return refused(run, "read", {"path": "secret/d"})

    assert run(desk, work, Limits(reads=["src/"], writes=[])) == "TOOL_NOT_ALLOWED"
    denied = desk.payload("tool.denied")
    assert denied["by"] == {"scope": "the limits of branch 'desk'"}
    assert "'secret/d' is outside the limits of branch 'desk', which may read src/" in denied["reason"]
    assert desk.payload("run.branch") == {
        "name": "desk", "allowed": None, "skill": None, "schema_version": "v3",
        "limits": {"abilities": None, "forbidden": [], "reads": ["src/"], "writes": []},
    }  # fmt: skip


@pytest.mark.parametrize(
    "path",
    [
        "secret/d", "src/../secret/d", "./secret/d", "SRC/a.py", "/etc/passwd", "src//../../x", "~/x", "src", "src/",
        "file:src/a.py", "src/a.py\\..\\..\\x", "src/a.py ", "src2/a.py", "src/..", "..", "\u202esrc/a",
    ],
)  # fmt: skip
def test_no_spelling_of_a_path_writes_outside_the_limits(desk, path):
    """Every path but a plain one below the roots is denied before the handler runs."""

    def work(run):
        run.call("write", {"path": "src/new.py", "text": "x", **WRITE})
        return refused(run, "write", {"path": path, "text": "x", **WRITE})

    assert run(desk, work, Limits(writes=["src/**"])) in {"TOOL_NOT_ALLOWED", "SCHEMA_VIOLATION"}
    assert [event.payload["args"]["path"] for event in desk.all("tool.call")] == ["src/new.py"]
    assert (desk.path / "secret/d").read_text() == "secret/d"


def test_abilities_are_limited_and_forbidden_by_globs(desk):
    """What is not allowed, or is forbidden, is denied and not offered."""

    def work(run):
        assert run.call("echo", {"a": 1}) == {"a": 1}
        return (
            [each.id for each in run.abilities()],
            refused(run, "read", {"path": "top.txt"}),
            refused(run, "find", {}),
        )

    found = run(desk, work, Limits(abilities=["e*", "list", "find"], forbidden=["f*"]))
    assert found == (["echo", "list"], "TOOL_NOT_ALLOWED", "TOOL_NOT_ALLOWED")


def test_undeclared_handler_is_refused_where_files_are_limited(desk):
    """Limits on abilities alone do not need to know about files."""

    def work(run):
        return "undeclared" in [each.id for each in run.abilities()], refused(run, "undeclared", {})

    assert run(desk, work, Limits(reads=["**"])) == (False, "TOOL_NOT_ALLOWED")
    assert "does not declare which files it reaches" in desk.payload("tool.denied")["reason"]


def test_undeclared_handler_is_allowed_where_only_abilities_are_limited(desk):
    """Limits on abilities alone do not need to know about files."""
    assert run(desk, lambda run: run.call("undeclared", {"b": 2}), Limits(forbidden=["write"])) == {"b": 2}


def test_handler_without_files_is_not_asked_about_paths_that_nobody_declared(desk):
    """An argument named path may mean anything to a tool without files."""
    assert run(desk, lambda run: run.call("echo", {"path": "/x"}), Limits(reads=[], writes=[])) == {"path": "/x"}


def test_nested_limits_only_narrow(desk):
    """A branch in a branch, a nested flow and a nested call need the consent of all limits around them."""

    def inner(run):
        return refused(run, "read", {"path": "docs/c.md"}), refused(run, "read", {"path": "src/a.py"})

    def work(run):
        assert run.call("read", {"path": "src/a.py"})
        return run.parallel([Branch("inner", inner, limits=Limits(reads=["docs/**", "src/deep/*.md"]))])[0]

    assert run(desk, work, Limits(reads=["src/**"])) == ("TOOL_NOT_ALLOWED", "TOOL_NOT_ALLOWED")


def test_nested_flows_and_calls_keep_the_limits(desk):
    """What a tool or a flow calls has the limits of the branch that called it."""

    def calls(args, ctx):
        with pytest.raises(Failed) as caught:
            ctx.call("read", {"path": "secret/d"})
        return caught.value.code

    def nested(args, run):
        return run.parallel([Branch("inner", lambda run: refused(run, "read", {"path": "secret/d"}))])[0]

    desk.tool("other", calls, uses=["read"], effects="read", files="none")
    desk.flow("flow", nested, gives={"type": "string"}, files="none")

    def work(run):
        return run.call("other", {}), run.call("flow", {})

    assert run(desk, work, Limits(reads=["src/**"])) == ("TOOL_NOT_ALLOWED", "TOOL_NOT_ALLOWED")


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        (Limits(reads=["../x"]), "fits no path"),
        (Limits(reads=["/etc"]), "fits no path"),
        (Limits(writes=["!secret/**"]), "only excludes"),
        (Limits(reads="src"), "is not a list"),
        (Limits(reads=[1]), "is not a list"),
        (Limits(forbidden=None), "is not a list"),
        (Limits(reads=["a*" * 200_000]), "too large"),
        ({"reads": []}, "not Limits"),
    ],
)
def test_invalid_limits_begin_no_branch(desk, limits, why):
    """An error names the branch and what is wrong; no branch is recorded."""

    def main(args, run):
        run.parallel([Branch("ok", lambda run: None), Branch("desk", lambda run: None, limits=limits)])

    desk.flow("main", main)
    with desk.session("run") as session:
        problem = session.run("hello").error
    assert "branch 'desk'" in problem.message
    assert why in problem.message
    assert not desk.all("run.branch")


# --- in the host ------------------------------------------------------------------------------------------------------


def test_tool_that_builds_its_paths_itself_is_held_to_the_limits(desk):
    """The host refuses what the door cannot see."""
    sly(desk, lambda host, args: read_text(host, "secret/d"))
    assert run(desk, lambda run: refused(run, "sly", {}), Limits(reads=["src/**"])) == "PATH_REFUSED"
    assert "is outside the limits of branch 'desk'" in desk.payload("tool.error")["message"]


def test_host_lists_only_what_may_be_read(desk):
    """Folders stay visible on the way to a file that may be read."""
    sly(desk, lambda host, args: [entry.path for entry in host.scan(args["folder"])], takes={"type": "object"})

    def work(run):
        return [run.call("sly", {"folder": each}) for each in ("", "src", "src/deep")], refused(
            run, "sly", {"folder": "docs"}
        )

    limits = Limits(reads=["src/*/*.py", "top.txt"])
    assert run(desk, work, limits) == ([["src", "top.txt"], ["src/deep"], ["src/deep/b.py"]], "PATH_REFUSED")


def test_find_finds_only_what_may_be_read(desk):
    """The standard tools see the limited tree."""
    found = run(desk, lambda run: run.call("find", {"pattern": "**"})["paths"], Limits(reads=["src/", "!**/*.md"]))
    assert found == ["src/a.py", "src/deep/b.py"]


def test_host_writes_only_where_the_limits_allow_it(desk):
    """Reading does not allow writing, and writing does not allow reading."""

    def act(host, args):
        codes = []
        for path in ("src/new", "docs/new", "src/ro/new"):
            try:
                host.replace(path, b"x", expected="")
                codes.append("written")
            except Failed as problem:
                codes.append(problem.code)
        try:
            read_text(host, "src/a.py")
        except Failed as problem:
            codes.append(problem.code)
        return codes

    sly(desk, act, effects="write")
    limits = Limits(reads=["docs/**"], writes=["src/**", "!src/ro/**"])
    assert run(desk, lambda run: run.call("sly", {}), limits) == ["written", *["PATH_REFUSED"] * 3]
    assert not (desk.path / "docs/new").exists()


def test_links_and_further_names_lead_nowhere(desk):
    """A symbolic link, a linked folder and a hard link inside the roots do not reach what is outside."""
    os.symlink("../secret/d", desk.path / "src/link")
    os.symlink("../secret", desk.path / "src/folder")
    os.link(desk.path / "secret/d", desk.path / "src/hard")

    def work(run):
        paths = ("src/link", "src/folder/d", "src/hard")
        codes = [refused(run, "read", {"path": path}) for path in paths]
        claim = {**WRITE, "text": "x", "expected_hash": sha256(b"secret/d").hexdigest()}
        return {*codes, *(refused(run, "write", {"path": path, **claim}) for path in paths)}

    assert run(desk, work, Limits(reads=["src/**"], writes=["src/**"])) == {"PATH_REFUSED"}
    assert (desk.path / "secret/d").read_text() == "secret/d"


def test_no_program_is_started_for_a_handler_that_does_not_confine_it(desk):
    """Only ``files: sandbox`` starts programs in a call whose files are limited."""

    def act(host, args):
        return host.run(["/bin/cat", "secret/d"], seconds=10).out.decode()

    sly(desk, act)
    sly(desk, act, name="later", files="sandbox")

    def work(run):
        return refused(run, "sly", {}), run.call("later", {})

    assert run(desk, work, Limits(reads=["src/**"])) == ("PATH_REFUSED", "secret/d")


@pytest.mark.parametrize(("files", "code"), [("host", "PATH_REFUSED"), ("none", "PATH_REFUSED"), (None, None)])
def test_program_is_kept_only_for_a_handler_that_may_use_it_in_later_calls(desk, files, code):
    """A limited call could ask it for any file, so not even a call without limits may start it."""

    def act(host, args):
        host.keep(["/bin/cat"]).close()
        return "kept"

    sly(desk, act, files=files)
    with desk.session() as session:
        answer = session.call("sly", {})
    assert (answer.error.code if hasattr(answer, "error") else None) == code


@pytest.mark.parametrize("path", ["secret/d", "src/../secret/d", "src/link", "src/folder/d", "src/hard", "SRC/a.py"])
def test_nothing_outside_the_limits_is_removed(desk, path):
    (desk.path / "src/link").symlink_to("../secret/d")
    (desk.path / "src/folder").symlink_to("../secret")
    (desk.path / "src/hard").hardlink_to(desk.path / "secret/d")

    def act(host, args):
        host.remove(path, expected=sha256(b"secret/d").hexdigest())

    sly(desk, act)
    limits = Limits(reads=["**"], writes=["src/**"])
    assert run(desk, lambda run: refused(run, "sly", {}), limits) in ("PATH_REFUSED", "WRITE_CONFLICT")
    assert (desk.path / "secret/d").read_text() == "secret/d"
    assert (desk.path / "src/a.py").exists()


def test_threads_and_tasks_of_a_handler_are_held_to_the_limits(desk):
    """With the context, or without it while the call is under way."""

    def in_thread(host, target):
        found = []

        def act():
            try:
                found.append(read_text(host, "secret/d"))
            except Failed as problem:
                found.append(problem.code)

        thread = threading.Thread(target=target(act))
        thread.start()
        thread.join()
        return found[0]

    async def in_loop(host):
        try:
            return await asyncio.to_thread(read_text, host, "secret/d")
        except Failed as problem:
            return problem.code

    def act(host, args):
        plain = in_thread(host, lambda act: act)
        copied = in_thread(host, lambda act: lambda: copy_context().run(act))
        with ThreadPoolExecutor(1) as pool:
            return [plain, copied, pool.submit(asyncio.run, in_loop(host)).result()]

    sly(desk, act)
    assert run(desk, lambda run: run.call("sly", {}), Limits(reads=["src/**"])) == ["PATH_REFUSED"] * 3


@pytest.mark.parametrize("begun_in", ["constructor", "call without limits", "call with other limits"])
def test_task_that_outlives_its_call_is_held_to_the_limits_of_later_calls(desk, begun_in):
    """A tool may have a loop of its own, which keeps the context in which it was begun."""
    asked, answered = queue.Queue(), queue.Queue()

    def serve(host):
        while (path := asked.get(timeout=30)) is not None:
            try:
                answered.put(read_text(host, path))
            except Failed as problem:
                answered.put(problem.code)

    class Sly:
        spec = HandlerSpec(effects="none", takes={"type": "object"}, gives={"type": "string"}, files="host")

        def __init__(self, settings, host):
            self.host, self.context = host, copy_context() if begun_in == "constructor" else None

        def __call__(self, args, ctx):
            if self.context is None:
                self.context = copy_context()
            if args["begin"]:
                threading.Thread(target=self.context.run, args=(serve, self.host)).start()
            asked.put(args["file"])
            return answered.get(timeout=30)

    desk.offer("tool", "offered-sly", Sly)
    desk.settings(abilities={"sly": {"summary": "Sly.", "handler": {"tool": "offered-sly"}}})

    def main(args, run):
        other = Limits(reads=["**"]) if begun_in == "call with other limits" else None
        first = {"begin": True, "file": "secret/d"}
        made = run.parallel([Branch("a", lambda run: run.call("sly", first), limits=other)])
        limits = Limits(reads=["src/**"])
        for path in ("secret/d", "src/a.py"):
            request = {"begin": False, "file": path}
            made += run.parallel([Branch(path, lambda run, request=request: run.call("sly", request), limits=limits)])
        found.extend(made)
        return "done"

    found = []
    desk.flow("main", main)
    with desk.session("run") as session:
        answer = session.run("hello")
    asked.put(None)
    assert found, answer
    assert found == ["secret/d", "PATH_REFUSED", "src/a.py"]


def test_task_that_outlives_a_limited_call_keeps_its_limits(desk):
    read, done = threading.Event(), queue.Queue()

    def later(host):
        assert read.wait(30)
        try:
            done.put(read_text(host, "secret/d"))
        except Failed as problem:
            done.put(problem.code)

    def act(host, args):
        threading.Thread(target=copy_context().run, args=(later, host)).start()
        return "begun"

    sly(desk, act)
    assert run(desk, lambda run: run.call("sly", {}), Limits(reads=["src/**"])) == "begun"
    read.set()
    assert done.get(timeout=30) == "PATH_REFUSED"


def test_calls_side_by_side_keep_their_own_limits(desk):
    """A call without limits reads everything while a limited one of the same tool is under way."""
    begun, ended = threading.Event(), threading.Event()

    def act(host, args):
        if args["wait"]:
            begun.set()
            assert ended.wait(30)
        try:
            return read_text(host, args["file"])
        except Failed as problem:
            return problem.code

    sly(desk, act, takes={"type": "object"})
    results = {}

    def limited(run):
        results["limited"] = run.call("sly", {"wait": True, "file": "secret/d"})

    def free(run):
        assert begun.wait(30)
        results["free"] = run.call("sly", {"wait": False, "file": "secret/d"})
        ended.set()

    def main(args, run):
        run.parallel([Branch("a", limited, limits=Limits(reads=["src/**"])), Branch("b", free)])
        return "done"

    desk.flow("main", main)
    with desk.session("run") as session:
        session.run("hello")
    assert results == {"limited": "PATH_REFUSED", "free": "secret/d"}


def test_asynchronous_handler_is_held_to_the_limits(desk):
    """The limits hold for what a coroutine does after it was suspended."""

    class Later:
        spec = HandlerSpec(effects="none", gives={"type": "string"}, files="host")

        def __init__(self, settings, host):
            self.host = host

        async def __call__(self, args, ctx):
            await asyncio.sleep(0)
            return read_text(self.host, "secret/d")

    desk.offer("tool", "offered-later", Later)
    desk.settings(abilities={"later": {"summary": "later.", "handler": {"tool": "offered-later"}}})
    assert run(desk, lambda run: refused(run, "later", {}), Limits(reads=["src/**"])) == "PATH_REFUSED"


def test_hooks_keep_their_own_reach(desk):
    """A hook that reads a file of the workspace is no part of the limited call."""
    seen = []

    class Watch:
        spec = GateSpec()

        def __init__(self, settings, host):
            self.host = host

        @hookimpl
        def pre_tool_use(self, call):
            seen.append((call.ability, read_text(self.host, "secret/d")))
            return ALLOW

    desk.offer("hook", "offered-watch", Watch)
    match = {"kind": ["tool"]}
    watch = {"event_type": "PreToolUse", "handler": {"hook": "offered-watch"}, "match": match}
    desk.settings(hooks={"watch": watch})
    assert run(desk, lambda run: run.call("read", {"path": "src/a.py"})["text"], Limits(reads=["src/**"])) == "src/a.py"
    assert seen == [("read", "secret/d")]
