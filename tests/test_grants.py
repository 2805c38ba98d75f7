"""What names in allowed-tools grant: aliases, patterns as conditions on commands, and never more than is written."""

import pytest
import workshop
from cases import for_each
from hypothesis import given
from hypothesis import strategies as st

from deedbook import Decision, Failed, GateSpec, Ok, Skill
from deedbook.charter.changes import compare
from deedbook.contract import Principal
from deedbook.kernel import bindings_for_judging
from deedbook.policy.bound import Caller, Scope
from deedbook.policy.callers import restore_caller, skill_scope
from deedbook.policy.commands import fits, problem
from deedbook.workspace.workspace import read_workspace
from deedbook_audit.rederive import rejudge

# --- patterns ---------------------------------------------------------------------------------------------------------


@for_each(
    ("pattern", "command", "holds"),
    [
        ("git:*", "git", True),
        ("git:*", "git status", True),
        ("git:*", "git commit -m 'a b'", True),
        ("git:*", "gitk", False),
        ("git:*", "git-evil", False),
        ("git:*", " git status", False),
        ("git:*", "git\tstatus", False),
        ("git:*", "sudo git status", False),
        ("git:*", "GIT=1 git status", False),
        ("git:*", 7, False),
        ("git:*", None, False),
        ("git:*", ["git"], False),
        ("git *", "git", True),
        ("git *", "git log", True),
        ("git add:*", "git add .", True),
        ("git add:*", "git push", False),
        ("git add:*", "git addx", False),
        ("npm run test*", "npm run test:unit", True),
        ("npm run test*", "npm run build", False),
        ("git * main", "git push origin main", True),
        ("git * main", "git main", False),
        ("git * main", "git  main", True),
        ("* --version", "node --version", True),
        ("a*b*c", "axbxc", True),
        ("a*b*c", "abc", True),
        ("a*b*c", "acb", False),
        ("ab*ba", "aba", False),
        ("git status", "git status", True),
        ("git status", "git status -s", False),
        ("*", "anything", False),
        (":*", "anything", False),
        ("**", "anything", False),
    ],
)
def test_a_pattern_allows_what_it_says(pattern, command, holds):
    assert fits(pattern, command) is holds


@pytest.mark.parametrize(
    "more",
    ["; rm x", " && rm x", " || rm x", " | sh", " & rm x", "\nrm x", "\rrm x", " $(rm x)", " `rm x`", " > x", " < x",
     " {a,b}", " <(rm x)", "\x00", "\x85rm", "\u2028rm", " $HOME"],
)  # fmt: skip
def test_no_pattern_allows_more_than_one_simple_command(more):
    assert not fits("git:*", f"git status{more}")
    assert not fits("git *", f"git status{more}")
    assert not fits("*git*", f"git status{more}")
    assert not fits(f"git status{more}", f"git status{more}")


@given(st.text(max_size=20), st.text(max_size=20))
def test_a_prefix_is_kept_by_whatever_fits(prefix, rest):
    for command in (prefix + rest, f"{prefix} {rest}"):
        if fits(f"{prefix}:*", command):
            assert "*" in prefix or command == prefix or command.startswith(f"{prefix} ")
            assert problem(f"{prefix}:*") is None


def test_a_long_text_is_judged_in_linear_time():
    assert not fits("*a*a*a*a*a*a*a*a*b", "a" * 1_000_000)


# --- names ------------------------------------------------------------------------------------------------------------

ALIASES = "tool_aliases: {Bash: {ability: shell, command: /command}, Task: [], Look: [echo, shell]}\n"


def listed(*names):
    """Return a loader of one skill that lists *names*."""

    class Loader:
        spec = GateSpec()

        def __init__(self, settings, host):
            pass

        def __call__(self):
            return [Skill("go", "Goes.", "", frozenset(names), source=".system/skills/go/SKILL.md")]

    return Loader


@pytest.fixture
def shop(tmp_path):
    made = workshop.bench(tmp_path)
    made.offer("tool", "shell", workshop.Echo)
    made.ability("echo")
    made.ability("shell", handler="tool: shell")
    made.skill("go", "---\n")
    yield made
    made.withdraw()


def granted(shop, *names, settings=ALIASES):
    shop.offer("skill", "markdown", listed(*names))
    shop.settings(settings)
    return shop.compile().document["skills"]["go"]


@pytest.mark.parametrize(
    ("names", "allowed", "commands"),
    [
        (["echo"], ["echo"], {}),
        (["Bash"], ["shell"], {}),
        (["Look"], ["echo", "shell"], {}),
        (["Bash(git:*)"], [], {"shell": {"/command": ["git:*"]}}),
        (["Bash(git:*)", "Bash(ls)"], [], {"shell": {"/command": ["git:*", "ls"]}}),
        (["Bash(git:*)", "Bash"], ["shell"], {}),
        (["Bash(git:*)", "shell"], ["shell"], {}),
        (["bash", "BASH", "Task", "Read", "model/standard", "nothing"], [], {}),
        (["Look(git:*)", "shell(git:*)", "echo(x)", "Bash(*)", "Bash(:*)", "Bash($X)", "Bash(a;b)", "Read(x)"], [], {}),
    ],
)
def test_a_name_grants_what_it_means_here_and_nothing_else(shop, names, allowed, commands):
    entry = granted(shop, *names)
    assert entry["allowed"] == allowed
    assert entry.get("commands", {}) == commands
    meant = {"echo", "shell", "Bash", "Look", "Bash(git:*)", "Bash(ls)"}
    assert set(entry.get("without", {})) == set(names) - meant


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("ech", 'no ability or alias has this name; did you mean "echo"?; map it with tool_aliases: {ech: ABILITY}'),
        ("model/standard", "models are for roles"),
        ("Task", "tool_aliases: Task names no ability (.system/deedbook.yaml:2:"),
        ("Bash($X:*)", "the pattern fits no command: it holds one of"),
        ("Bash(*)", "the pattern fits no command: it names no command"),
        (
            "Look(x)",
            "no alias names the argument that the pattern applies to; map it with tool_aliases: {Look:",
        ),
        ("shell(x)", "a pattern belongs to an alias"),
    ],
)
def test_a_name_that_grants_nothing_has_a_reason(shop, name, why):
    assert why in granted(shop, name)["without"][name]


def test_claude_codes_names_mean_the_standard_file_tools_where_these_are_declared(lab):
    for name, tool in (("file-read", "file-read"), ("file-search", "file-search"), ("file-write", "echo")):
        lab.settings(abilities={name: {"summary": "S.", "handler": {"tool": tool}}})
    lab.skill("go", allows="Read Grep Glob Edit Bash")
    entry = lab.kernel().bindings.charter.document["skills"]["go"]
    assert entry["allowed"] == ["file-read", "file-search"]
    assert set(entry["without"]) == {"Glob", "Edit", "Bash"}, "an ability that only has the name is another tool"


def test_an_alias_takes_the_place_of_a_default(lab):
    lab.settings(abilities={"file-read": {"summary": "S.", "handler": {"tool": "file-read"}}})
    lab.settings(tool_aliases={"Read": []})
    lab.skill("go", allows="Read")
    assert lab.kernel().bindings.charter.document["skills"]["go"]["allowed"] == []


@pytest.mark.parametrize(
    ("alias", "why"),
    [
        ("{Bash: shel}", "ability 'shel' is not declared; did you mean \"shell\"?"),
        ("{echo: shell}", "'echo' is an ability itself"),
        ("{Bash: model/standard}", "is not declared"),
    ],
)
def test_an_alias_that_leads_nowhere_is_refused_with_its_place(shop, alias, why):
    shop.offer("skill", "markdown", listed())
    shop.settings(f"tool_aliases: {alias}\n")
    ((_, place, said),) = shop.faults()
    assert place.startswith(".system/deedbook.yaml:2:")
    assert why in said


def test_more_commands_are_looser_and_fewer_tighter(shop):
    fewer = shop_document(shop, "Bash(git status)")
    more = shop_document(shop, "Bash(git status)", "Bash(git:*)")
    whole = shop_document(shop, "Bash")
    assert "skill go: allowed command shell(git:*) is new" in compare(fewer, more).looser
    assert "skill go: allowed command shell(git:*) is gone" in compare(more, fewer).tighter
    assert "skill go: allowed ability shell is new" in compare(more, whole).looser


def shop_document(shop, *names):
    shop.write("deedbook.yaml", workshop.HEAD)
    shop.offer("skill", "markdown", listed(*names))
    shop.settings(ALIASES)
    return shop.compile().document


# --- at the door ------------------------------------------------------------------------------------------------------


@pytest.fixture
def going(lab):
    """Return a function that runs a function of the run under a skill with `Bash(git:*)`."""
    lab.tool("shell", lambda args, ctx: args)
    lab.tool("other", lambda args, ctx: args)
    lab.settings(tool_aliases={"Bash": {"ability": "shell", "command": "/command"}})
    lab.model(lambda request, ctx: "")
    lab.role("worker")
    lab.write("skills/go/SKILL.md", "---\nname: go\ndescription: Goes.\nallowed-tools: Bash(git:*) Bash(ls)\n---\n")

    def go(function):
        results = []
        lab.flow("work", lambda args, run: results.append(function(run)) or {"reply": "", "state": "COMPLETED"})
        with lab.session("run") as session:
            ended = session.run("go")
        assert isinstance(ended, Ok), ended.error
        return results[0]

    return go


def attempt(run, args):
    try:
        return run.call("shell", args)
    except Failed as problem:
        return problem.code


@pytest.mark.parametrize("args", [{"command": "git status"}, {"command": "ls"}, {"command": "git", "cwd": "x"}])
def test_a_command_that_fits_runs(lab, going, args):
    assert going(lambda run: attempt(run, args)) == args
    assert lab.payload("skill.invoke")["allowed"] == ["shell(git:*)", "shell(ls)"]


@pytest.mark.parametrize(
    "args",
    [{"command": "rm x"}, {"command": "git status; rm x"}, {"command": "ls -l"}, {}, {"command": 7}, {"cmd": "git"}],
)
def test_a_command_that_does_not_fit_is_refused_and_recorded(lab, going, args):
    assert going(lambda run: attempt(run, args)) == "TOOL_NOT_ALLOWED"
    denied = lab.payload("tool.denied")
    assert denied["code"] == "TOOL_NOT_ALLOWED"
    wanted = "'shell' is outside what skill go allows: /command has to be one command that fits git:*, ls"
    assert wanted in denied["reason"]
    assert "tool.call" not in lab.types()


def test_a_rewriter_cannot_turn_a_command_that_fits_into_another(lab, going):
    lab.hook(
        "more", "PreToolUse", lambda call: Decision("transform", args={"command": "rm x"}), rewrites=True,
        match={"abilities": ["shell"]},
    )  # fmt: skip
    assert going(lambda run: attempt(run, {"command": "git status"})) == "TOOL_NOT_ALLOWED"


def test_a_role_is_offered_the_ability_and_bound_by_the_pattern(lab, going):
    def flow(run):
        return [tool["name"] for tool in run.agent("worker").tools()]

    assert going(flow) == ["shell"]


def test_who_goes_on_after_an_approval_has_the_same_commands(lab, going):
    going(lambda run: None)
    bindings = lab.kernel().bindings
    scope = skill_scope(bindings.skills["go"], bindings, None)
    told = Caller(
        principal=Principal("local", "run"),
        actor="agent",
        skill="go",
        scope=Scope(scope.why, scope.names, scope.models),
    )
    assert restore_caller(told, bindings).scope.commands == scope.commands != {}
    nested = Scope("what outer declares to use", frozenset({"shell"}))
    assert not restore_caller(
        Caller(principal=told.principal, actor="tool", skill="go", scope=nested), bindings
    ).scope.commands


def test_what_is_recorded_is_judged_alike_again(lab, going):
    going(lambda run: [attempt(run, {"command": each}) for each in ("git status", "rm x", "ls", "git;ls")])
    with bindings_for_judging(read_workspace(lab.path), lab.catalogue()) as bindings:
        found = [each for each in rejudge(lab.ledger(), bindings) if each.call.ability == "shell"]
    assert [each.change for each in found] == ["same"] * 4
    assert [each.call.outcome for each in found] == ["allow", "deny", "allow", "deny"]
    lab.write("skills/go/SKILL.md", "---\nname: go\ndescription: Goes.\nallowed-tools: Bash(rm:*)\n---\n")
    with bindings_for_judging(read_workspace(lab.path), lab.catalogue()) as bindings:
        found = [each for each in rejudge(lab.ledger(), bindings) if each.call.ability == "shell"]
    assert [each.change for each in found] == ["denied", "allowed", "denied", "same"]


def test_lint_and_explain_say_what_a_pattern_does(place):
    text = (place.path / ".system/deedbook.yaml").read_text()
    place.system("deedbook.yaml", f"{text}tool_aliases: {{Bash: {{ability: echo, command: /text}}}}\n")
    front = "name: go\ndescription: Goes.\nallowed-tools: Read, Bash(git:*), Task, Bash(${X}:*)"
    place.system("skills/go/SKILL.md", f"---\n{front}\n---\n")
    lint = place.run("skills", "lint", status=0).out
    where = "  .system/skills/go/SKILL.md:4:1: "
    assert f"{where}Task grants nothing: no ability or alias has this name" in lint
    assert f"{where}Bash(${{X}}:*) grants nothing: the pattern fits no command" in lint
    (row,) = (row for row in place.run("skills", "--json", status=0).json["skills"] if row["name"] == "go")
    assert row["allowed"] == ["echo(git:*)", "file-read"]
    assert set(row["without"]) == {"Task", "Bash(${X}:*)"}
    fine = place.run("explain", "echo", "--args", '{"text": "git log"}', "--skill", "go")
    assert fine.status == 0, fine.err
    found = place.run("explain", "echo", "--args", '{"text": "rm x"}', "--skill", "go", "--json", status=3)
    said = found.fits("output_explain_v1")
    assert (said["code"], said["remedy"]) == (
        "TOOL_NOT_ALLOWED",
        "to allow it, add a pattern that fits to allowed-tools at .system/skills/go/SKILL.md:4",
    )
