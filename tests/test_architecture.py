"""The shape of the code: folders are floors, imports go down, and the rules that every file keeps."""

import ast
import re
import shutil
import socket
import subprocess
import sys
import tomllib
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CORE = ROOT / "core" / "deedbook"
TOUR = ROOT / "docs" / "tour.md"
KIT = ROOT / "plugins" / "deedbook-testing"
"""What tries plugins stands beside the kernel, not behind its contract."""

FLOORS = (
    "contract", "format", "ledger", "programs", "plugins", "policy", "workspace", "charter", "call", "sessions",
    "continuation", "approvals", "maintenance", "kernel", "cli",
)  # fmt: skip
"""The rooms of the kernel, from the ground up. A room imports only from rooms before it."""
DISTRIBUTIONS = (
    "deedbook-approvals", "deedbook-audit", "deedbook-author", "deedbook-flow-runcontext", "deedbook-flow-swe",
    "deedbook-flow-workflow", "deedbook-guard", "deedbook-hook-standard", "deedbook-inspect", "deedbook-legacy",
    "deedbook-log", "deedbook-memory", "deedbook-operate", "deedbook-pack", "deedbook-serve", "deedbook-tool-mcp",
)  # fmt: skip
"""Features in distributions of their own: they stand on the kernel's rooms, as it does without them."""
ORDER = {room: floor for floor, room in enumerate(FLOORS)}
AUDIT = ROOT / "plugins" / "deedbook-audit" / "src" / "deedbook_audit"
"""The verifier."""
PURE = (
    "call.records", "charter.capabilities", "charter.changes", "charter.grants", "charter.required_skills",
    "deedbook_flow_runcontext.agent_choice", "deedbook_flow_runcontext.coverage", "deedbook_flow_runcontext.diagram",
    "deedbook_flow_runcontext.hashing",
    "deedbook_flow_runcontext.keywords", "deedbook_flow_runcontext.plans", "deedbook_flow_runcontext.step_graph",
    "deedbook_flow_runcontext.task_text", "deedbook_flow_runcontext.validation",
    "deedbook_flow_swe.assignment", "deedbook_flow_swe.context", "deedbook_flow_swe.contract",
    "deedbook_flow_swe.definition", "deedbook_flow_swe.globs", "deedbook_flow_swe.registry.contract_check",
    "deedbook_flow_swe.registry.notes", "deedbook_flow_swe.registry.produced", "deedbook_flow_swe.rule_language",
    "deedbook_flow_swe.learning.evidence", "deedbook_flow_swe.learning.metrics", "deedbook_flow_swe.learning.revision",
    "deedbook_flow_swe.learning.reward", "deedbook_flow_swe.learning.routing", "deedbook_flow_swe.learning.world",
    "deedbook_flow_swe.task_record", "deedbook_flow_swe.yaml_text",
    "deedbook_flow_swe.tools.patches", "deedbook_flow_swe.tools.reports.coverage",
    "deedbook_flow_swe.tools.reports.findings", "deedbook_flow_swe.tools.reports.junit",
    "deedbook_flow_swe.tools.reports.parsing", "deedbook_flow_swe.tools.reports.subject",
    "deedbook_flow_swe.tools.reports.suites", "deedbook_flow_swe.tools.shapes",
    "deedbook_inspect.event_tree", "deedbook_inspect.observing.accounts",
    "deedbook_inspect.observing.exposition", "deedbook_inspect.observing.figures",
    "deedbook_inspect.observing.histograms", "deedbook_inspect.observing.providers",
    "deedbook_inspect.observing.prices", "deedbook_inspect.observing.tables", "deedbook_inspect.observing.times",
    "deedbook_memory.recall", "format.detectors", "deedbook_memory.entries", "format.schema_cost", "format.folds",
    "format.families", "format.lint", "format.event_text", "contract.pointers", "deedbook_audit.amendments",
    "deedbook_hook_standard.bm25", "deedbook_inspect.event_summary",
    "deedbook_hook_standard.routes", "plugins.shape", "policy.commands", "policy.conditions",
    "contract.facts", "policy.fit", "policy.fitting", "policy.judge", "policy.kinds", "policy.match", "charter.zones",
)  # fmt: skip
"""Modules whose docstrings promise that they touch nothing outside."""
ALLOWED_DRAWERS = {CORE / "cli" / "common.py"}
"""What several commands share has no better noun."""


def source_files():
    """Return every Python file of the kernel and of the plugins, without tests."""
    return [*sorted(CORE.rglob("*.py")), *sorted(ROOT.glob("plugins/*/src/**/*.py"))]


def named(path):
    return str(path.relative_to(ROOT))


@cache
def tree(path):
    """Return the syntax tree of a file; nobody may change it."""
    return ast.parse(path.read_text(encoding="utf-8"))


@pytest.fixture(autouse=True, scope="module")
def trees_of_this_file():
    """Let the syntax trees go after the last test here: the garbage collector would look at them in all others."""
    yield
    tree.cache_clear()


@cache
def imported(path, package):
    """Return the absolute names of all modules that *path* imports, wherever in the file, also for types only.

    ``from package import name`` counts as ``package.name``, which is the module or something of ``package`` itself.
    """
    inside = package if path.name == "__init__.py" else f"{package}.{path.stem}"
    parts = inside.split(".")
    found = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            up = len(parts) - node.level + (path.name == "__init__.py")
            base = [*parts[:up], *([node.module] if node.module else [])] if node.level else [node.module]
            found |= {".".join([*base, alias.name]) for alias in node.names}
    return found


def package_of(path):
    """Return the dotted name of the package that a file of the kernel lies in."""
    return ".".join(["deedbook", *path.relative_to(CORE).parent.parts])


KERNEL = {
    ".".join(path.relative_to(CORE).with_suffix("").parts): path
    for path in sorted(CORE.rglob("*.py"))
    if path.stem != "__init__"
}
"""Every module by its name: one that lies in a room is `room.module`."""
FEATURE_MODULES = {
    ".".join(path.relative_to(ROOT).parts[3:]).removesuffix(".py"): path
    for name in DISTRIBUTIONS
    for path in sorted((ROOT / "plugins" / name / "src").rglob("*.py"))
    if path.stem != "__init__"
}
"""Every module of a feature's distribution by its whole name."""
PACKAGES = {path.parent for path in CORE.glob("*/**/__init__.py")}


def package_in_project(path):
    """Return the dotted name of the package that a file of a distribution in `plugins/` lies in."""
    return ".".join(path.relative_to(ROOT).parts[3:-1])


def kernel_modules(names):
    """Return the kernel's modules among imported *names*."""
    inside = [name.removeprefix("deedbook.") for name in names if name.startswith("deedbook.")]
    return {each for name in inside for each in (name, name.rpartition(".")[0]) if each in KERNEL}


@cache
def kernel_imports(module):
    """Return the kernel's modules that a module of the kernel imports."""
    path = KERNEL[module]
    return kernel_modules(imported(path, package_of(path)))


def room(module):
    """Return the room that a module lies in: its folder, or itself where it lies flat."""
    return module.partition(".")[0]


def everything_below(module):
    """Return all modules that *module* imports, directly or not."""
    found, left = set(), {module}
    while left:
        new = kernel_imports(left.pop()) - found
        found |= new
        left |= new
    return found


# --- floors -----------------------------------------------------------------------------------------------------------


def test_every_module_lies_in_a_room():
    assert {room(module) for module in KERNEL} == set(ORDER)
    assert len([module for module in KERNEL if "." not in module]) <= 8


def test_folder_has_one_docstring_and_the_map_lists_it():
    """A folder says what it holds, and offers nothing by itself; the contract alone is imported as a whole."""
    for folder in PACKAGES - {CORE / "contract"}:
        (only,) = tree(folder / "__init__.py").body
        assert ast.literal_eval(only.value), folder
    for each in FLOORS:
        assert f"`{each}{'/' if (CORE / each).is_dir() else '.py'}`" in TOUR.read_text(encoding="utf-8")


def test_rooms_import_only_from_lower_floors():
    upward = [
        f"{module} -> {name}"
        for module in sorted(KERNEL)
        for name in sorted(kernel_imports(module))
        if ORDER[room(name)] > ORDER[room(module)]
    ]
    assert not upward


def test_modules_of_a_room_form_no_circle():
    for each in ORDER:
        inside = {module: kernel_imports(module) for module in KERNEL if room(module) == each}
        TopologicalSorter({module: names & inside.keys() for module, names in inside.items()}).prepare()


def test_the_call_path_is_listed_in_the_same_order_in_code_and_docs():
    files = re.compile(r"^\d\. `([a-z_/]+\.py)`: ", re.MULTILINE)
    listed = files.findall((CORE / "call" / "__init__.py").read_text(encoding="utf-8"))
    assert listed == files.findall((ROOT / "docs" / "life-of-a-call.md").read_text(encoding="utf-8"))
    assert len(listed) == len([name for name in listed if (CORE / name).is_file()]) > 5


def test_audit_stands_without_what_it_verifies():
    """Who verifies runs nothing that wrote or acted. Only `commands`, the command `verify`, knows workspaces."""
    own = [path for path in AUDIT.rglob("*.py") if "commands" not in path.relative_to(AUDIT).parts]
    names = set().union(*(imported(path, package_in_project(path)) for path in own))
    assert "deedbook_audit.verify.verify_file" in names
    assert not {name for name in names if name.startswith("deedbook_audit.commands")}
    direct = kernel_modules(names)
    below = direct | set().union(*map(everything_below, direct))
    assert {room(name) for name in below} == {"contract", "format", "plugins", "policy", "charter"}
    assert {name for name in below if room(name) == "charter"} == {
        "charter.cachekeys", "charter.judging", "charter.linker", "charter.shape", "charter.store", "charter.zones",
    }  # fmt: skip


def test_kernel_imports_no_other_distribution():
    wrong = {
        f"{module} -> {name}"
        for module, path in KERNEL.items()
        for name in imported(path, package_of(path))
        if name.startswith("deedbook_")
    }
    assert not wrong


def test_kernel_names_no_provider_and_no_vendor():
    """Neither in code nor in comments or schemas; the list of first-party distributions alone has such names."""
    names = (
        "anthropic", "azure", "bedrock", "claude", "cohere", "deepseek", "gemini", "google", "gpt", "groq", "hugging",
        "llama", "mistral", "ollama", "openai", "qwen", "smollm", "vllm", "deedbook[-_]provider", "swe-answers",
    )  # fmt: skip
    vendor = re.compile("|".join(names), re.IGNORECASE)
    files = [*CORE.rglob("*.py"), *(ROOT / "schemas").glob("*.json"), *(ROOT / "known").glob("*.json")]
    found = {str(path.relative_to(ROOT)) for path in files if vendor.search(path.read_text(encoding="utf-8"))}
    assert found == {"known/plugins.json"}


def test_witness_stands_without_the_kernel():
    """It is a program of its own: what reads and writes ledgers, or opens a workspace, is not in it."""
    rooms = ("deedbook_log.witnessing.", "deedbook_audit.transparency.")
    own = {path for name, path in FEATURE_MODULES.items() if name.startswith(rooms)}
    names = set().union(*(imported(path, package_in_project(path)) for path in own))
    assert not {name for name in names if name.startswith("deedbook_") and not name.startswith(rooms)}
    direct = kernel_modules(names)
    assert direct
    assert {room(name) for name in direct | set().union(*map(everything_below, direct))} <= {"contract", "format"}


def test_pure_modules_touch_nothing_outside():
    outside = {"asyncio", "os", "pathlib", "random", "shutil", "socket", "subprocess", "sys", "threading", "time"}
    acting = {"open", "input", "print", "eval", "exec"}
    wrong = []
    for module in PURE:
        path = KERNEL.get(module) or FEATURE_MODULES[module]
        package = package_of(path) if module in KERNEL else package_in_project(path)
        used = {name.partition(".")[0] for name in imported(path, package)}
        calls = [node.func for node in ast.walk(tree(path)) if isinstance(node, ast.Call)]
        names = {function.id for function in calls if isinstance(function, ast.Name)}
        wrong += [f"{module} uses {name}" for name in sorted(used & outside | names & acting)]
    assert not wrong


# --- what is imported from outside ------------------------------------------------------------------------------------


def declared(project):
    """Return the top-level modules that a project's declared dependencies offer."""
    names = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    distributions = {re.split(r"[^A-Za-z0-9._-]", name)[0].lower() for name in names}
    modules = {"attrs": ("attr", "attrs"), "google-re2": ("re2",), "ruamel.yaml": ("ruamel",)}
    spread = {"opentelemetry"} if any(name.startswith("opentelemetry-") for name in distributions) else set()
    return spread | {each for name in distributions for each in modules.get(name, (name.replace("-", "_"),))}


def test_projects_import_only_what_they_declare():
    wrong = []
    for project in [ROOT, *sorted(ROOT.glob("plugins/*"))]:
        source = CORE if project == ROOT else project / "src"
        own = (
            {path.name for path in source.glob("*")} if project != ROOT else {"deedbook", AUDIT.name, "deedbook_guard"}
        )
        known = sys.stdlib_module_names | declared(project) | own
        for path in sorted(source.rglob("*.py")):
            package = ".".join([*([] if project != ROOT else ["deedbook"]), *path.parent.relative_to(source).parts])
            outside = {name.partition(".")[0] for name in imported(path, package)} - known
            wrong += [f"{named(path)} imports {name}" for name in sorted(outside)]
    assert not wrong


ROOMS_OF_FEATURES = {
    "deedbook-policy-cedar": ("format.errors",),
    "deedbook-policy-standard": ("format.canonical", "format.errors", "format.events", "format.lint", "format.reader",
                                 "format.schema", "contract.facts", "policy.conditions", "policy.gates",
                                 "policy.kinds", "policy.match"),
    "deedbook-tool-sandbox": ("programs.workers", "workspace.declarations"),
}  # fmt: skip
"""What first-party distributions may import of the kernel beside its contract: canonical JSON, errors, schemas, and
the one match grammar, with the facts and tags that policies look at. The sandbox is tried by `deedbook doctor`."""


def test_plugins_import_only_the_public_contract():
    """The test kit opens workspaces; that is what it is for. Features stand on the kernel's rooms."""
    import deedbook

    public = {f"deedbook.{name}" for name in deedbook.__all__}
    free, wrong = {KIT, *(ROOT / "plugins" / name for name in DISTRIBUTIONS)}, []
    for path in sorted(ROOT.glob("plugins/*/src/**/*.py")):
        package = package_in_project(path)
        used = {name for name in imported(path, package) if name.split(".")[0] == "deedbook"}
        rooms = [f"deedbook.{name}" for name in ROOMS_OF_FEATURES.get(path.relative_to(ROOT).parts[1], ())]
        allowed = ("deedbook.contract", "deedbook_inspect.reading", *rooms)
        private = {name for name in used - public if not name.startswith(allowed)}
        wrong += [f"{named(path)} imports {name}" for name in sorted(private) if not free & {*path.parents}]
    assert not wrong


def test_package_exports_what_it_lists():
    import deedbook

    assert deedbook.__all__ == sorted(deedbook.__all__)
    assert all(getattr(deedbook, name) is not None for name in deedbook.__all__)
    offered = {name for name in vars(deedbook) if not name.startswith("_")} - KERNEL.keys() - ORDER.keys()
    assert offered - {"Any", "TYPE_CHECKING"} <= set(deedbook.__all__)


# --- how files read ---------------------------------------------------------------------------------------------------


def test_files_are_short_and_named_by_nouns():
    files = source_files()
    assert len(files) > 300
    long = [named(path) for path in files if len(path.read_text(encoding="utf-8").splitlines()) > 700]
    assert not long
    drawers = [path for path in files if re.search(r"util|helper|common|misc|stuff", path.stem)]
    assert not [named(path) for path in drawers if path not in ALLOWED_DRAWERS]


def test_public_names_have_docstrings():
    assert not [
        f"{named(path)}: {name}"
        for path in source_files()
        for name, node in public_names(tree(path))
        if not ast.get_docstring(node)
    ]


def public_names(module):
    """Yield the module itself, and its public classes, methods and functions."""
    yield "module", module
    for node in module.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            yield node.name, node
            for inner in node.body if isinstance(node, ast.ClassDef) else ():
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef) and not inner.name.startswith("_"):
                    yield f"{node.name}.{inner.name}", inner


def test_functions_are_annotated_and_at_most_sixty_lines():
    wrong = []
    for path, node in ((file, node) for file in source_files() for node in ast.walk(tree(file))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg]
            bare = [arg.arg for arg in given if arg and arg.annotation is None and arg.arg not in ("self", "cls")]
            faults = [
                *(f"{name} has no annotation" for name in bare),
                *(["nothing says what it returns"] if node.returns is None else []),
                *(["it is too long"] if node.end_lineno - node.lineno >= 60 else []),
            ]
            wrong += [f"{named(path)}:{node.lineno}: {node.name}: {fault}" for fault in faults]
    assert not wrong


MUTABLE = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
CHANGES = {"add", "append", "clear", "discard", "extend", "insert", "pop", "popitem", "remove", "setdefault", "update"}


def test_modules_keep_no_state():
    """Constants may be displays if their type says that they stay; nothing changes them, and nothing is `global`."""
    files = [path for path in source_files() if KIT not in path.parents]
    assert not [f"{named(path)}: {fault}" for path in files for fault in state_of(tree(path))]


def state_of(module):
    """Yield what in *module* could change after it was imported."""
    kept = set()
    for node in module.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = {target.id for target in targets if isinstance(target, ast.Name)}
            kept |= names
            said = ast.unparse(node.annotation) if isinstance(node, ast.AnnAssign) else ""
            fixed = re.search(r"\b(Final|Mapping|Object)\b", said) or names == {"__all__"}
            if not fixed and isinstance(node.value, MUTABLE):
                yield f"{sorted(names)} is not Final"
    yield from (f"global in line {node.lineno}" for node in ast.walk(module) if isinstance(node, ast.Global))
    yield from (f"{name} is changed" for name in sorted(kept & set(changed(module))))


def changed(module):
    """Yield the names whose objects are changed in place: by item, or by a method that says so."""
    for node in ast.walk(module):
        stored = isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del)
        called = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGES
        owner = node.value if stored else node.func.value if called else None
        if isinstance(owner, ast.Name):
            yield owner.id


# --- what is tracked --------------------------------------------------------------------------------------------------


def tracked():
    """Return every file that git tracks here."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("this is no git checkout")
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout
    return [ROOT / name for name in names.decode().split("\0") if name and (ROOT / name).is_file()]


def test_tracked_files_name_no_machine():
    host = socket.gethostname()
    places = [str(ROOT), str(Path.home())] + ([host] if len(host) > 7 and host != "localhost" else [])
    usual = re.compile(rb"/(?:Users|home|root|work)/(?!ada\b)[a-z]", re.IGNORECASE)
    for path in tracked():
        raw = path.read_bytes()
        assert not [place for place in places if len(place) > 5 and place.encode() in raw], named(path)
        assert path == Path(__file__) or not usual.search(raw), named(path)


def test_no_lock_file_of_a_package_manager_is_tracked():
    locks = re.compile(r".*\.lock|.*-lock\.(json|ya?ml)|requirements\.lock\.txt|npm-shrinkwrap\.json")
    assert not [named(path) for path in tracked() if locks.fullmatch(path.name) and path.name != "deedbook.lock"]
