"""What the documents claim is so: commands print what they show, names exist, links lead somewhere, nothing is missing.

`deedbook_testing.pages` says what a console block may leave out.
"""

import ast
import importlib
import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from shutil import copy, copytree

import forked
import packing
import pytest
import yaml_reference
from cases import for_each
from commandline import SCHEMAS

import deedbook
from deedbook.cli.program import sections
from deedbook.contract import features, flow, lifecycle
from deedbook.contract import plugins as contracts
from deedbook.contract.lifecycle import ALIASES, EVENTS, Lifecycle
from deedbook.format import folds
from deedbook.format.errors import CODES
from deedbook.format.families import CATALOGUE
from deedbook.plugins.groups import GROUPS
from deedbook_author.starter import STARTER
from deedbook_testing.pages import Shell, blocks, find_blocks, steps

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
DOCS = ROOT / "docs"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md")), *sorted(ROOT.glob("plugins/*/README.md"))]
EXAMPLES = sorted(ROOT.glob("examples/**/README.md"))
"""Their blocks are run by a test of their own."""
PLAYED = [
    DOCS / "changing-policy.md",
    DOCS / "checkpoints.md",
    DOCS / "commands.md",
    DOCS / "observability.md",
    DOCS / "corrections.md",
    DOCS / "old-ledgers.md",
    DOCS / "plans.md",
    DOCS / "replay.md",
    DOCS / "skills.md",
    DOCS / "system-process.md",
]
"""Pages whose console blocks are run from the first to the last, in a copy of the starter.

A block of Python or YAML that begins with the name of a file is that file."""
NEEDS = {DOCS / "mcp.md": "mcp-server-time"}
"""Pages that show a program: where it does not stand beside this Python, the page is not run."""
OWN = [
    *NEEDS, DOCS / "agents.md", DOCS / "bridge.md", DOCS / "embedding.md", DOCS / "flows.md", DOCS / "guard.md",
    DOCS / "hooks.md", DOCS / "pipelines.md", DOCS / "routing.md", DOCS / "secrets-and-principals.md",
    DOCS / "first-hour.md", DOCS / "guarantees.md", DOCS / "operate.md", DOCS / "tasks.md", DOCS / "memory.md",
    DOCS / "proofs.md", DOCS / "verify.md", DOCS / "witness.md", DOCS / "workflows.md",
]  # fmt: skip
"""Pages whose console blocks are run in a workspace that they spell out: blocks that begin with a path in `.system`, or
with the name of a file of Python. The line with the path is no part of JSON, nor of Markdown."""
STARTED = [DOCS / "workflows.md"]
"""Those of them that begin with a copy of the starter."""
EXITS = {code.exit for code in CODES.values()}
CONTRACT = (DOCS / "contract.md").read_text(encoding="utf-8")


def named(path):
    return str(path.relative_to(ROOT))


def prose(path):
    """Return the text of a page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


# --- links and lists ------------------------------------------------------------------------------------------------


def anchors(path):
    """Return the anchors of a page's headings, as forges make them."""
    headings = re.findall(r"^#+ (.*)$", prose(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@for_each("page", [*PAGES, *EXAMPLES], ids=named)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        place = (page.parent / name).resolve() if name else page
        assert place.exists(), f"{target} in {named(page)}"
        assert ROOT in place.parents, f"{target} in {named(page)} leads out of the repository"
        assert not anchor or anchor in anchors(place), f"{target} in {named(page)}"


def test_index_lists_every_page():
    index = DOCS / "README.md"
    listed = {(DOCS / target).resolve() for target in re.findall(r"\]\(([^)#]+)\)", index.read_text(encoding="utf-8"))}
    assert {*DOCS.rglob("*.md")} - {index} <= listed


@for_each("page", sorted(DOCS.glob("decisions/*.md")), ids=named)
def test_decision_has_its_four_parts(page):
    text = page.read_text(encoding="utf-8")
    parts = re.findall(r"^\*\*([A-Z][a-z ]+)\.\*\*", text, re.MULTILINE)
    assert parts == ["Context", "Decision", "Consequences", "To undo"]
    assert text.startswith(f"# {int(page.name[:4])}. ")


# --- names ----------------------------------------------------------------------------------------------------------


ROOTS = (ROOT / "core", *sorted(ROOT.glob("plugins/*/src")))
MODULES = [
    ".".join(path.relative_to(root).with_suffix("").parts)
    for root in ROOTS
    for path in root.rglob("*.py")
    if path.stem != "__init__"
]
"""Every module of the kernel and of first-party distributions; pages leave out where it lies."""


def resolves(name):
    """Say whether a dotted name is one of the kernel's: an event type, or something that is defined in a module."""
    first, *rest = name.split(".")
    if name in CATALOGUE or (first == "deedbook" and not rest):
        return True
    starts = [name for name in MODULES if name.rpartition(".")[2] == first]
    return any(_reached(start, rest) for start in (f"deedbook.{first}", f"deedbook_{first}", *starts))


def _reached(start, rest):
    try:
        found, left = importlib.import_module(start), list(rest)
        while left:
            part = left.pop(0)
            found = (
                importlib.import_module(f"{found.__name__}.{part}") if _is_module(found, part) else getattr(found, part)
            )
    except (ImportError, AttributeError):
        return False
    return True


def _is_module(found, part):
    return hasattr(found, "__path__") and importlib.util.find_spec(f"{found.__name__}.{part}") is not None


ABOUT_CODE = [DOCS / "life-of-a-call.md", DOCS / "tour.md", *sorted(DOCS.glob("decisions/*.md"))]


@for_each("page", ABOUT_CODE, ids=named)
def test_dotted_names_exist(page):
    """`module.name` in a page is the code's; `Class.method` and files are other things, `session.calls` is a fact."""
    text = prose(page)
    names = set(re.findall(r"`([a-z_][a-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)+)`", text))
    facts = {"session.calls", "session.usage", "session.started", "context.state", "repository_head.moved"}
    files = {name for name in names if name.rpartition(".")[2] in ("py", "md", "json", "yaml", "toml", "lock")}
    calls = {"ctx.call", "deedbook.lock", "deedbook.commands", "deedbook.features"}
    missing = {name for name in names - facts - files - calls if not resolves(name)}
    assert not missing
    if page.name == "life-of-a-call.md":
        assert len(names) > 30


def test_life_of_a_call_names_the_steps_of_the_door_in_order():
    page = prose(DOCS / "life-of-a-call.md").partition("## The door")[2].partition("## After the door")[0]
    numbers = [int(number) for number in re.findall(r"^([0-9])\. \*\*", page, re.MULTILINE)]
    assert numbers == list(range(1, 10))
    for mode in ("always", "boundary", "os"):
        assert f"| `{mode}` | " in prose(DOCS / "life-of-a-call.md")


@for_each("page", PAGES, ids=named)
def test_error_codes_are_known(page):
    """An upper-case word with an underscore is a code of the kernel, or of a plugin that says so in its own page."""
    own = {
        "NO_SUCH_FILE",
        "NOT_READABLE",
        "NOT_TEXT",
        "TOO_LARGE",
        "TOO_MANY",
        "BAD_PATTERN",
        "NOT_RECORDED",
        "TRANSCRIPT_ENDED",
        "NO_SKILL",
        "PLAN_REFUSED",
        "APPROVAL_MISSING",
        "INPUT_MISSING",
        "TURNS_SPENT",
        "PROMPT_TOO_LONG",
        "NO_OUTPUT",
        "REFLECTION_INVALID",
        "VERDICT_UNKNOWN",
        "SANDBOX_LIMIT",
        "SANDBOX_REFUSED",
        "GIT_FAILED",
        "GIT_REFUSED",
        "GIT_MOVED",
        "PATCH_REFUSED",
    }
    words = {word for word in re.findall(r"`([A-Z]+_[A-Z_]+)`", prose(page)) if not word.startswith("DEEDBOOK_")}
    variables = {
        "FS_IOC_SHUTDOWN",
        "NO_COLOR",
        "GITHUB_TOKEN",
        "OPENAI_API_KEY",
        "HTTP_PROXY",
        "SSL_CERT_FILE",
        "XDG_CONFIG_HOME",
    }
    actions = SCHEMAS.document("runtime_request_v2")["$defs"]["action"]["properties"]["action"]["enum"]
    assert words <= set(CODES) | variables | set(actions) | (own if "plugins" in page.parts else set())


# --- the command line -----------------------------------------------------------------------------------------------


def test_commands_page_lists_every_command():
    page = (DOCS / "commands.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `([a-z]+)` \|", page, re.MULTILINE)
    assert sorted(listed) == sorted(name for commands in sections().values() for name in commands)


def test_commands_page_lists_every_exit_status():
    page = (DOCS / "commands.md").read_text(encoding="utf-8")
    assert list(map(int, re.findall(r"^\| ([0-9]+) \|", page, re.MULTILINE))) == sorted({0, *EXITS})


# --- the contract ---------------------------------------------------------------------------------------------------


class Bare(ast.NodeTransformer):
    """Leaves of a definition what a caller has to know: no docstrings, no bodies, defaults as they are meant."""

    def visit_FunctionDef(self, node):
        node.body = [ast.Expr(ast.Constant(...))]
        return self.generic_visit(node)

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815 - the name is the standard library's

    def visit_ClassDef(self, node):
        node.body = [each for each in node.body if not isinstance(each, ast.Expr)]
        return self.generic_visit(node)

    def visit_Call(self, node):
        made = re.fullmatch(r"attrs\.field\(factory=(?:lambda: )?(.+)\)", ast.unparse(node))
        meant = made and {"dict": "{}"}.get(made[1], made[1])
        return ast.parse(meant, mode="eval").body if meant else self.generic_visit(node)


def definitions(text):
    """Return the public classes, functions and aliases of some Python, bare, by name."""
    found = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            name = node.name
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            name = node.target.id
        else:
            continue
        if not name.startswith("_"):
            found[name] = ast.unparse(Bare().visit(node))
    return found


def test_contract_page_has_every_signature_of_the_contract():
    rooms = (contracts, flow, lifecycle, folds)
    source, flows, events, state = (definitions(Path(room.__file__).read_text(encoding="utf-8")) for room in rooms)
    page = "\n".join(block.text for block in blocks(DOCS / "contract.md") if block.language == "python")
    assert definitions(page) == source | flows | {"Lifecycle": events["Lifecycle"], "Fold": state["Fold"]}


def test_feature_page_has_every_signature_of_the_contract():
    source = definitions(Path(features.__file__).read_text(encoding="utf-8"))
    code = [block for block in blocks(DOCS / "plugins/feature.md") if block.language == "python"]
    page = "\n".join(block.text for block in code if not block.first.startswith("# "))  # that would be a file's name
    assert definitions(page) == source


@for_each("event", EVENTS)
def test_contract_page_lists_the_event_with_its_arguments_and_answers(event):
    method = getattr(Lifecycle, EVENTS[event].method)
    names = method.__code__.co_varnames[1 : method.__code__.co_argcount]
    row = next(line for line in CONTRACT.splitlines() if line.startswith(f"| `{event}` | "))
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[1] == f"`{EVENTS[event].method}({', '.join(names)})`"
    assert (cells[2] == "yes") is EVENTS[event].blocking is ("not blocking" not in method.__doc__)
    if cells[2] == "yes":
        assert set(re.findall(r"allow|deny|ask|transform", cells[3].partition(";")[0])) == EVENTS[event].may


@for_each("event", EVENTS)
def test_hooks_page_lists_the_event_with_its_other_name_its_arguments_and_signals(event):
    names = getattr(Lifecycle, EVENTS[event].method).__code__.co_varnames
    count = getattr(Lifecycle, EVENTS[event].method).__code__.co_argcount
    page = (DOCS / "hooks.md").read_text(encoding="utf-8")
    row = next(line for line in page.splitlines() if line.startswith(f"| `{event}` | "))
    other, arguments, signals = (set(re.findall(r"[A-Za-z_]+", cell)) for cell in row.strip("|").split("|")[1:])
    assert other == {alias for alias, name in ALIASES.items() if name == event}
    assert arguments == set(names[1:count])
    assert signals == set(EVENTS[event].signals)


def test_contract_page_lists_every_entry_point_group():
    assert set(re.findall(r"^\| `(deedbook\.[a-z_]+)` \|", CONTRACT, re.MULTILINE)) == set(GROUPS.values())


def test_yaml_page_is_what_the_schemas_say():
    assert (DOCS / "yaml.md").read_text(encoding="utf-8") == yaml_reference.page()


def test_every_event_and_group_is_in_the_readme_or_the_docs():
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    names = (*EVENTS, *GROUPS.values(), *CATALOGUE, *deedbook.__all__)
    assert not [name for name in names if name not in text]


# --- commands -------------------------------------------------------------------------------------------------------


def test_readme_is_short():
    assert len(README.read_text(encoding="utf-8").splitlines()) < 200


def test_readme_commands_are_those_of_continuous_integration():
    script = [line.strip() for line in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()]
    shown = [command for block in blocks(README) if block.language == "console" for command, _ in steps(block)]
    setup = [command for command in shown if "venv" in command]
    assert len(setup) == 2
    main, tests = (command.split(" && ") for command in setup)
    assert main[-1] == '.venv/bin/deedbook run "Say hello to Ada"'
    places = [script.index(part) for part in tests]
    assert places == sorted(places)
    assert script[-1] == tests[-1]


def shell_in(folder):
    """Return a shell whose `deedbook` starts fast."""
    return Shell(folder, Path(forked.commands()))


@pytest.fixture
def workspace(tmp_path):
    """Make a workspace of the starter, with what pages look at beside it."""
    copytree(STARTER, tmp_path / ".system")
    copytree(ROOT / "examples", tmp_path / "examples")
    copy(ROOT / "LICENSE", tmp_path)
    return tmp_path


def section_text(name):
    """Return one section of the README."""
    text = README.read_text(encoding="utf-8").partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    assert text, name
    return text


def section(name):
    """Return the blocks of one section of the README."""
    return find_blocks(section_text(name))


def test_readme_shows_what_a_run_prints(tmp_path):
    for folder in (".system", "plugins/deedbook-author/src/deedbook_author/data/starter"):
        copytree(ROOT / folder, tmp_path / folder)
    shell = shell_in(tmp_path)
    for block in [section("Two commands")[0], *section("What a run leaves"), *section("A denial, a schema violation")]:
        shell.check(block)
    assert shell.meant


def save(block, folder):
    """Write a block into the file that its first line names, with that line, as somebody who pastes it does."""
    (folder / re.fullmatch(r"# (\S+)", block.first)[1]).write_text(block.text, encoding="utf-8")


def test_first_hour_works_for_a_person_who_has_a_key_of_that_name_and_another_request(tmp_path):
    settings, _ = (block for block in blocks(DOCS / "first-hour.md") if block.language != "console")
    commands = [
        step for block in blocks(DOCS / "first-hour.md") if block.language == "console" for step in steps(block)
    ]
    (tmp_path / ".system").mkdir()
    save(settings, tmp_path)
    shell = shell_in(tmp_path)
    shell.run("deedbook keys new ada", ["…"])
    (keys, shown), *rest = commands
    shell.run(keys, shown)
    shell.run("deedbook call note path=m.txt text=hi expected_hash= who=me why=before", ["…"])
    for command, _ in rest:
        if "approvals" in command:
            shell.run(command, ["…"])
    assert (tmp_path / "m.txt").exists()


def test_readme_plugin_is_built_installed_and_called_in_an_empty_folder(tmp_path, tmp_path_factory):
    code, project, ability, console = section("A plugin in 20 lines")
    assert len(code.text.splitlines()) <= 20
    ((command, shown),) = steps(console)
    (make,) = re.findall(r"`(deedbook init [^`]*)`", section_text("A plugin in 20 lines"))
    shell = shell_in(tmp_path)
    shell.run(make, ["…"])
    for block in (code, project, ability):
        save(block, tmp_path)
    prepare, folder, call = re.fullmatch(r"(.*); pip install -q \./(\S+) && (.*)", command).groups()
    target = tmp_path_factory.mktemp("site")
    packing.unpack(packing.wheel(tmp_path / folder), target)
    shell.env["PYTHONPATH"] = str(target)
    shell.run(f"{prepare}; {call}", shown)


@pytest.mark.parametrize("page", PLAYED, ids=named)
def test_page_shows_what_its_commands_print(workspace, page, check_guarantees):
    shell = shell_in(workspace)
    for block in blocks(page):
        name = re.fullmatch(r"# ([a-z]+\.(?:py|yaml))", block.first)
        if name:
            (workspace / name[1]).write_text(block.text, encoding="utf-8")
        elif block.language == "console":
            shell.check(block)
    check_guarantees(shell, named(page))


@pytest.mark.parametrize("page", OWN, ids=named)
def test_page_shows_what_its_commands_print_in_its_own_workspace(tmp_path, page, check_guarantees):
    program = NEEDS.get(page)
    if program and not Path(sys.executable).with_name(program).exists():
        pytest.skip(f"{program} is not installed")
    if page in STARTED:
        copytree(STARTER, tmp_path / ".system")
    for block in blocks(page):
        place = re.fullmatch(r"(?:# |<!-- )((?:\.system|house|tasks)/\S+|[a-z]+\.py)(?: -->)?", block.first)
        if place:
            (tmp_path / place[1]).parent.mkdir(parents=True, exist_ok=True)
            rest = block.text.partition("\n")[2]
            whole = rest.startswith("---\n") or block.language == "json" or block.first.startswith("<!--")
            text = rest if whole else block.text
            (tmp_path / place[1]).write_text(text, encoding="utf-8")
    with shell_in(tmp_path) as shell:
        for block in blocks(page):
            if block.language == "console":
                shell.check(block)
        check_guarantees(shell, named(page))


@pytest.mark.parametrize("page", [DOCS / "context.md", DOCS / "plans.md"], ids=named)
def test_python_of_the_page_runs_as_it_stands(page):
    """From the first block to the last, in one process."""
    code = [block.text for block in blocks(page) if block.language == "python"]
    assert len(code) > 1
    ran = subprocess.run(
        [sys.executable, "-c", "\n".join(code)], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stderr


@for_each("page", PAGES, ids=named)
def test_blocks_are_shown_in_a_language_that_is_tested(page):
    """A console block on another page would be run by nobody."""
    run = {"console"} if page in (README, *PLAYED, *OWN) else set()
    allowed = {"", "python", "toml", "yaml"} | (run if page == README else run | {"json", "markdown", "js"})
    assert {block.language for block in blocks(page)} <= allowed
    for block in blocks(page):
        if block.language == "python":
            ast.parse(block.text)
