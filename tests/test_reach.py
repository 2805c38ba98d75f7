"""What the kernel's code can reach: who calls handlers, who writes files and ledgers; no process, no connection."""

import ast
from functools import cache
from pathlib import Path

import pytest
from cases import for_each

import deedbook

CORE = Path(deedbook.__file__).parent
FEATURES = [
    Path(__file__).parents[1] / "plugins" / f"deedbook-{name}" / "src"
    for name in ("approvals", "audit", "author", "inspect", "legacy", "log", "memory", "serve")
]
"""The features that read and write ledgers, or open sockets, beside the kernel."""

ATTACKS = "deedbook_author.guarantees."
"""The attacks of `deedbook doctor --guarantees`. On copies, in a process of their own, they do what nothing else may:
they forge, cut, kill and sign."""


def every_module():
    """Return the syntax tree of each module of the kernel and of its features, by name."""
    places = {".".join(path.relative_to(CORE).with_suffix("").parts): path for path in CORE.rglob("*.py")}
    for source in FEATURES:
        places |= {".".join(path.relative_to(source).with_suffix("").parts): path for path in source.rglob("*.py")}
    return {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in places.items()}


@cache
def modules():
    """Return those that must not reach out: all but the attacks."""
    return {name: tree for name, tree in every_module().items() if not name.startswith(ATTACKS)}


@pytest.fixture(autouse=True, scope="module")
def trees_of_this_file():
    """Let the syntax trees go after the last test here: the garbage collector would look at them in all others."""
    yield
    modules.cache_clear()


@cache
def calls():
    """Return what each module of the kernel calls, as it is written there."""
    return {
        module: [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
        for module, tree in modules().items()
    }


def called(name):
    """Return the modules that call something of that name: a function, or a method of anything."""
    return {module for module, functions in calls().items() if any(_named(node) == name for node in functions)}


def _named(function):
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", None)


def called_of(owner, name):
    """Return the modules that call ``owner.name``."""
    return {
        module
        for module, functions in calls().items()
        for function in functions
        if isinstance(function, ast.Attribute) and function.attr == name and ast.unparse(function.value) == owner
    }


@cache
def imported():
    """Return all that the kernel imports, with what imports it."""
    found = {}
    for module, tree in modules().items():
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [str(node.module)]
            for name in names:
                found.setdefault(name, set()).add(module)
    return found


MAY_IMPORT = {
    # the bridge's own client, tried by the command that installs it
    "subprocess": {"programs.process", "deedbook_serve.commands.bridge"},
    # a pair between two processes of ours; nothing is connected to
    "socket": {
        "programs.process",
        "programs.supervisor",
        "programs.workers",
        # within this machine: clients of the runtime, which is at a file
        "deedbook_serve.serving.addresses",
        "deedbook_serve.serving.process",
        "deedbook_serve.serving.connection_server",
        "deedbook_serve.serving.sockets",
        "deedbook_serve.serving.streams",
        # the witness, a program of its own that listens
        "deedbook_log.witnessing.witness_server",
    },
    # and whoever asks a witness that the workspace names
    "http": {"deedbook_log.witnessing.witness_server", "deedbook_audit.submission"},
    # processes of our own code, which verify parts of what is asked for
    "multiprocessing": {"deedbook_audit.verification.pool"},
    "ctypes": {"programs.supervisor"},
    "shutil": {"programs.process", "deedbook_author.health", "deedbook_author.drafts", "deedbook_author.starter"},
}
"""Who may import what reaches out of the process, and who copies folders."""


def test_attacks_are_run_by_the_doctor_alone_and_in_a_process_of_their_own():
    """Nothing else imports them; the command imports only what starts the process, and the report."""
    used = {
        (name, node.module.removeprefix(ATTACKS))
        for name, tree in modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith(ATTACKS)
    }
    command = "deedbook_author.commands.doctor"
    assert used == {(command, "isolation"), (command, "report"), (command, "runner")}  # the last for a type


def test_handlers_are_called_in_one_module_and_that_module_by_the_door_alone():
    assert called("handler") == {"sessions.runs", "sessions.session"}  # as the door's table of kinds has them
    assert called_of("self", "_handler") == {"policy.completions"}
    bare = {
        module
        for module, functions in calls().items()
        for function in functions
        if isinstance(function, ast.Name) and function.id in ("perform", "aperform")
    }
    assert bare == {"call.door"}
    # whoever else lets something be performed lets the door do it
    assert called("perform") | called("aperform") == {
        "call.door",
        "sessions.run_journal",
        "continuation.replay",
        "deedbook_inspect.forking.recall",
        "deedbook_serve.tasks.task_runs",
        "deedbook_serve.tasks.runner",
    }
    assert called_of("door", "perform") | called_of("session.door", "perform") == {
        "deedbook_serve.tasks.task_runs",
        "deedbook_serve.tasks.runner",
    }
    assert called_of("self._door", "perform") | called_of("self._door", "aperform") == {
        "sessions.run_journal",
        "continuation.replay",
    }
    assert called_of("self._runs", "perform") == {"deedbook_serve.tasks.runner"}
    users = {module for module in modules() if "call.handlers" in _sources(module)}
    holding = {
        "__init__",  # the package exports tickets and outcomes
        "deedbook_serve.bridging.conversation",
        "deedbook_serve.bridging.open_calls",
        "deedbook_serve.tasks.task_runs",
        "deedbook_serve.tasks.run_recovery",
    }
    own = {
        "call.door",
        "call.approval_wait",
        "deedbook_log.feature",
        "call.open_calls",
        "call.call_context",
        "call.records",
        "sessions.run_journal",
        "sessions.runs",
        "sessions.session",
    }
    continuing = {"continuation.replay", "continuation.resume", "deedbook_inspect.forking.recall"}
    assert users == own | continuing | holding
    assert _taken("call.door", "call.handlers") >= {"perform", "aperform"}
    # whether a lost effect happened is asked of a handler by its own method, which causes none
    assert _taken("deedbook_serve.tasks.run_recovery", "call.handlers") == {"reconcile"}
    for module in users - {"call.door", "deedbook_serve.tasks.run_recovery"}:
        assert _taken(module, "call.handlers") <= {
            "Outcome",
            "RunSuspended",
            "ServeApproved",
            "ServedCall",
            "Ticket",
        } | {name for name in ("reconcile",) if module == "continuation.resume"}


def _source(module, node):
    """Return the module of the kernel that an import in *module* takes from, whether said with a dot or in full."""
    package = module.rpartition(".")[0]
    near = f"{package}.{node.module}" if package else str(node.module)
    return near if node.level else str(node.module).removeprefix("deedbook.")


def _sources(module):
    """Return the modules of the kernel that a module imports from."""
    return {_source(module, node) for node in ast.walk(modules()[module]) if isinstance(node, ast.ImportFrom)}


def _taken(module, other):
    return {
        alias.name
        for node in ast.walk(modules()[module])
        if isinstance(node, ast.ImportFrom) and _source(module, node) == other
        for alias in node.names
    }


@for_each(
    "name",
    [
        "subprocess",
        "socket",
        "urllib.request",
        "http",
        "ftplib",
        "smtplib",
        "ssl",
        "multiprocessing",
        "ctypes",
        "pty",
        "shutil",
    ],
)
def test_kernel_starts_processes_and_opens_connections_only_where_programs_are_run(name):
    users = {user for module, found in imported().items() if f"{module}.".startswith(f"{name}.") for user in found}
    assert users <= MAY_IMPORT.get(name, set())


@for_each("name", ["system", "popen", "fork", "forkpty", "execv", "execve", "posix_spawn", "kill"])
def test_kernel_runs_programs_in_one_place(name):
    assert called_of("os", name) <= {"programs.supervisor"}


def test_kernel_evaluates_no_text_as_code():
    assert called("eval") == called("exec") == called_of("pickle", "loads") == set()


def test_files_are_written_by_the_modules_that_own_them():
    # these write to descriptors that are no files
    pipes = {"cli.command", "deedbook_serve.deadline", "programs.process", "programs.supervisor"}
    assert called_of("os", "write") == {"format.files", "ledger.journal"} | pipes
    assert called_of("os", "ftruncate") == {"ledger.journal"}
    opening = {
        "format.files",
        "cli.process",
        "deedbook_author.health",
        "plugins.packs",
        "programs.process",
        "deedbook_serve.serving.addresses",
    }
    assert called_of("os", "open") <= opening | {"format.ownership", "plugins.pinned_code"}
    # where nothing is yet
    assert called("write_text") | called("write_bytes") | called("touch") <= {
        "deedbook_author.drafts",
        "deedbook_author.starter",
    }
    for name in ("rename", "replace", "remove", "unlink", "mkdir", "rmdir", "makedirs", "chmod", "link", "symlink"):
        # a task's folder that is empty by then; an import whose bytes get their name once they are recorded
        also = {"rmdir": {"deedbook_serve.tasks.pages"}, "rename": {"maintenance.imports"}}.get(name, set())
        assert called_of("os", name) <= {"format.files"} | also, name
    builtin = {
        module
        for module, functions in calls().items()
        for function in functions
        if isinstance(function, ast.Name) and function.id == "open"
    }
    # what the system says about processes, and entry points of installed packages, to read
    assert builtin <= {"programs.supervisor", "plugins.commands"}


def test_ledgers_are_appended_to_by_the_kernels_own_modules():
    appending = {
        module
        for module, functions in calls().items()
        for function in functions
        if isinstance(function, ast.Attribute)
        and function.attr == "append"
        and ast.unparse(function.value).rpartition(".")[2] in ("ledger", "_ledger")
    }
    assert appending == {
        "deedbook_approvals.answering",
        "continuation.settling",
        "deedbook_log.checkpoints.attestation",
        "deedbook_log.checkpoints.writer",
        "deedbook_memory.gate",
        "deedbook_memory.legacy",
        "maintenance.closing",
        "continuation.resume",
        "call.door",
        "call.approval_wait",
        "call.pending_calls",
        "sessions.hooks",
        "maintenance.identity",
        "deedbook_legacy.importer",
        "maintenance.opening",
        "kernel",
        "ledger.recovery",
        "call.call_context",
        "deedbook_serve.serving.actions",
        "sessions.session",
        "deedbook_serve.tasks.task_log",
    }
