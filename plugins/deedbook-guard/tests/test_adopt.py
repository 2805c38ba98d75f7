"""`deedbook adopt`: the tools of an agent are declared, and nothing that a person wrote changes."""

import difflib
import sys
from datetime import timedelta

import pytest
from commandline import Place

from deedbook.format.reader import read
from deedbook.workspace.documents import parse_yaml
from deedbook_guard import CallDenied, guard
from deedbook_guard.adoption.declarations import hinted_effects, simplify_schema
from deedbook_guard.values import as_json

FRAMEWORK = """
from deedbook_guard.agent_tools import AgentTools, ToolDescription, not_an_agent


class Agent:
    def __init__(self, *tools, unlisted=()):
        self.tools, self.unlisted = tools, unlisted


def list_tools(agent):
    if not isinstance(agent, Agent):
        raise not_an_agent(agent, "toolkit.Agent")
    return AgentTools(agent.tools, agent.unlisted)
"""
PROGRAM = """
from deedbook import guard
from toolkit import Agent, ToolDescription

governed = guard("shop")
text = {"type": "object", "properties": {"order": {"type": "string", "title": "Order"}}, "required": ["order"]}
agent = Agent(
    ToolDescription("refund", "Refund an order: all\\nof it.\\n\\nMore.", {**text, "title": "Refund", "x-a": 1}),
    ToolDescription("find", "", None, {"readOnlyHint": True}),
)
"""
WORKSPACE = """\
# Ours.
schema_version: v1
agents:
    shop:   # the program
        kind: program
        tools:
            refund: {effects: irreversible}   # judged by us
            # more will follow

# policies
policies:
    baseline:
        kind: rules
        rules:
        - {match: {abilities: ["shop/*"]}, then: allow}
"""
OTHER_AGENT = "schema_version: v1\nagents: {claude-code: {unknown_tools: ask}}   # a coding agent\n"
FLOW = "schema_version: v1\nagents: {shop: {kind: program, tools: {find: {effects: read}}}}   # in one line\n"


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Give a folder with a program `app`, and install a framework and its adapter."""
    site = tmp_path / "site"
    (site / "toolkit-1.0.dist-info").mkdir(parents=True)
    (site / "toolkit-1.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: toolkit\nVersion: 1.0\n")
    points = "[deedbook.adapters]\ntoolkit = toolkit:list_tools\nbroken = toolkit_of_old:list_tools\n"
    (site / "toolkit-1.0.dist-info/entry_points.txt").write_text(points)
    (site / "toolkit.py").write_text(FRAMEWORK)
    monkeypatch.syspath_prepend(site)
    (tmp_path / "app.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    yield Place(tmp_path)
    for name in ("app", "toolkit"):
        sys.modules.pop(name, None)


def files(place):
    """Return the texts of the workspace's sources."""
    return {each.name: each.read_text() for each in (place.path / ".system").rglob("*") if each.is_file()}


def settle(place, text):
    (place.path / ".system").mkdir()
    (place.path / ".system/deedbook.yaml").write_text(text)


def adopt(place, *args, refused=False):
    sys.modules.pop("app", None)
    ran = place.here("adopt", *(args or ("toolkit", "app:agent")))
    assert bool(ran.status) is refused, ran
    assert "Traceback" not in ran.err
    return ran


def tools(place):
    settings = parse_yaml((place.path / ".system/deedbook.yaml").read_bytes(), "deedbook.yaml").value
    return settings["agents"]["shop"]["tools"]


def test_program_without_workspace_gets_one_that_observes_and_governs_its_next_run(place):
    ran = adopt(place)
    assert "+      refund:" in ran.out
    assert "+default: allow" in ran.out
    assert (place.path / ".gitignore").read_text() == ".deedbook/\n"
    schema = {"type": "object", "properties": {"order": {"type": "string"}}, "required": ["order"]}
    refund = {"summary": "Refund an order: all of it.", "effects": "write", "schema_in": schema}
    assert tools(place) == {"find": {"effects": "read"}, "refund": refund}
    with guard("shop") as governed:
        assert governed.workspace == place.path
        assert governed.call("refund", {"order": "a7"}, lambda args: args["order"]) == "a7"
        with pytest.raises(CallDenied, match="order"):
            governed.call("refund", {"order": 7}, pytest.fail)
        assert governed.call("look", {"order": 7}, lambda args: args["order"]) == 7
    (events,) = (place.path / ".deedbook/sessions").glob("*/.events.jsonl")
    checks = [event.payload for event in read(events) if event.type == "policy.check"]
    assert [(each["ability"], each["enforcement"]) for each in checks] == [
        ("shop/refund", "observe"), ("shop/other", "observe"),
    ]  # fmt: skip


def test_dry_run_shows_the_same_difference_and_writes_nothing(place):
    shown = adopt(place, "toolkit", "app:agent", "--dry-run")
    assert "nothing was written" in shown.err
    assert not (place.path / ".system").exists()
    assert adopt(place).out == shown.out


@pytest.mark.parametrize("text", ["", WORKSPACE, OTHER_AGENT, FLOW], ids=["new", "block", "other", "flow"])
def test_second_run_changes_nothing(place, text):
    if text:
        settle(place, text)
    adopt(place)
    before = files(place)
    assert f"{place.path}: nothing to change" in adopt(place).err
    assert files(place) == before


def test_what_a_person_wrote_stays_as_it_is(place):
    settle(place, WORKSPACE)
    adopt(place)
    after = files(place)["deedbook.yaml"]
    changed = difflib.ndiff(WORKSPACE.splitlines(), after.splitlines())
    assert [line for line in changed if line.startswith("- ")] == [
        "-             refund: {effects: irreversible}   # judged by us"
    ]
    assert tools(place)["refund"]["effects"] == "irreversible"
    assert tools(place)["refund"]["schema_in"]["required"] == ["order"]
    assert "# judged by us" in after
    assert list(files(place)) == ["deedbook.yaml"]


def test_new_program_is_added_below_other_agents(place):
    settle(place, OTHER_AGENT)
    adopt(place)
    text = files(place)["deedbook.yaml"]
    assert "# a coding agent" in text
    assert "unknown_tools: allow" not in text
    assert set(tools(place)) == {"find", "refund"}
    assert "id: shop" in files(place)["shop.yaml"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (FLOW.replace("{effects: read}", "{effects: read}, refund: {schema_in: {type: object}}"), "another schema"),
        ("schema_version: v1\nagents: {shop: {kind: codex}}\n", "not with kind: program"),
    ],
)
def test_conflict_is_an_error_with_its_place_and_nothing_is_written(place, text, why):
    settle(place, text)
    ran = adopt(place, refused=True)
    assert ".system/deedbook.yaml:2:" in ran.err
    assert why in ran.err
    assert files(place) == {"deedbook.yaml": text}


def test_change_that_makes_a_fault_is_taken_back(place):
    own = "abilities: {shop/refund: {summary: Ours., handler: {tool: echo}}}\n"
    settle(place, OTHER_AGENT + own)
    ran = adopt(place, refused=True)
    assert "shop/refund" in ran.err
    assert files(place) == {"deedbook.yaml": OTHER_AGENT + own}


def test_policy_of_the_same_name_is_kept(place):
    settle(place, OTHER_AGENT)
    (place.path / ".system/policies").mkdir()
    (place.path / ".system/policies/ours.yaml").write_text("schema_version: v1\nid: shop\nkind: rules\nrules: []\n")
    adopt(place)
    assert set(files(place)) == {"deedbook.yaml", "ours.yaml"}


@pytest.mark.parametrize(
    ("program", "args", "why"),
    [
        ("", ["nothing", "app:agent"], "no adapter for 'nothing' is installed; installed: broken"),
        ("", ["crewai", "app:agent"], "no adapter for 'crewai'"),
        ("", ["broken", "app:agent"], "cannot be imported"),
        ("", ["toolkit", "app"], "MODULE:AGENT"),
        ("", ["toolkit", "nowhere:agent"], "run the command in the folder from which the program runs"),
        ("", ["toolkit", "nowhere.app:agent"], "there is no module 'nowhere' in "),
        ("import nothing_of_that_name", ["toolkit", "app:agent"], "app.py:11: app:agent: ModuleNotFoundError"),
        ("", ["toolkit", "app:agnet"], "agnet"),
        ("", ["toolkit", "app:text"], "not a toolkit.Agent; name a module's variable that holds one"),
        ("", ["toolkit", "app:guard"], "MODULE:FUNCTION()"),
        ("1 / 0", ["toolkit", "app:agent"], "app.py:11: "),
        ("raise SystemExit(0)", ["toolkit", "app:agent"], "app.py:11"),
        ("guard('other')", ["toolkit", "app:agent"], "guard() for other, shop; name the program"),
        ("", ["toolkit", "app:agent", "--as", "a/b"], "letters, digits"),
        ("governed.call('find', {}, print); late = agent", ["toolkit", "app:late"], "acts while"),
        ("governed.call('find', {}, print); late = agent", ["toolkit", "app:late"], "has no attribute 'late'"),
    ],
)  # fmt: skip
def test_bad_input_is_one_clear_error(place, program, args, why):
    (place.path / "app.py").write_text(f"{PROGRAM}{program}\n")
    ran = adopt(place, *args, refused=True)
    assert why in ran.err
    assert not (place.path / ".system").exists()


@pytest.mark.parametrize(
    "act",
    [
        "governed.call('find', {}, done)",
        "with governed.conversation(): done()",
        "try:\n    governed.call('find', {}, done)\nexcept Exception:\n    raise SystemExit(1)",
    ],
)
def test_program_that_acts_when_it_is_imported_is_stopped_there_and_adopted(place, act):
    (place.path / "app.py").write_text(f"{PROGRAM}\ndef done(*_): open('done', 'w')\n{act}\n")
    adopt(place)
    assert set(tools(place)) == {"find", "refund"}
    assert not (place.path / "done").exists()
    assert not (place.path / "state").exists()


def test_agent_that_a_function_builds_is_adopted(place):
    (place.path / "app.py").write_text(f"{PROGRAM}\ndef make():\n    return agent\n")
    adopt(place, "toolkit", "app:make()")
    assert set(tools(place)) == {"find", "refund"}


def test_program_that_has_no_guard_yet_is_named_and_told_what_is_missing(place):
    (place.path / "app.py").write_text(PROGRAM.replace('governed = guard("shop")', ""))
    assert "--as NAME" in adopt(place, refused=True).err
    assert "govern(guard('shop'))" in adopt(place, "toolkit", "app:agent", "--as", "shop").err
    assert set(tools(place)) == {"find", "refund"}


def test_workspace_that_the_program_names_is_the_one_that_is_written(place):
    (place.path / "app.py").write_text(PROGRAM.replace('guard("shop")', 'guard("shop", workspace="inner")'))
    (place.path / "inner").mkdir()
    adopt(place)
    assert (place.path / "inner/.system/deedbook.yaml").exists()
    assert not (place.path / ".system").exists()


def test_program_that_names_no_workspace_is_told_to_name_it_before_it_enforces(place, monkeypatch):
    line = f"guard('shop', workspace='{place.path}')"
    assert line in adopt(place).err
    assert line in adopt(place).err, "also if there is nothing to change"
    monkeypatch.setenv("DEEDBOOK_WORKSPACE", str(place.path))
    assert "workspace=" not in adopt(place).err


def test_what_cannot_be_declared_is_noted(place):
    more = """
agent = Agent(
    ToolDescription("model"), ToolDescription("_own"),
    ToolDescription("far", "", {"type": "object", "$ref": "https://example.com/schema"}),
    ToolDescription("two", "", {"type": "object"}), ToolDescription("two", "", {"type": "object", "maxProperties": 1}),
    unlisted=["the server x lists its tools only while it runs"],
)
"""
    (place.path / "app.py").write_text(f"{PROGRAM}{more}")
    ran = adopt(place)
    assert ran.err.count("note: ") == 6
    assert tools(place) == {"far": {"effects": "write"}, "two": {"effects": "write"}}


@pytest.mark.parametrize(
    ("hints", "effects"),
    [
        ({}, "write"),
        ({"readOnlyHint": True}, "read"),
        ({"readOnlyHint": "yes"}, "write"),
        ({"readOnlyHint": True, "destructiveHint": True}, "write"),
        ({"destructiveHint": False}, "write"),
    ],
)
def test_effects_are_guessed_conservatively(hints, effects):
    assert hinted_effects(hints) == effects


def test_simplified_schema_loses_the_bounds_that_every_number_in_json_keeps():
    wide = {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1, "exclusiveMaximum": 1e300}
    assert simplify_schema({"properties": {"id": wide}}) == {"properties": {"id": {"type": "integer"}}}
    narrow = {"minimum": 2**63, "exclusiveMinimum": 0, "maximum": 2**53 - 1}
    assert simplify_schema(narrow) == narrow


def test_simplified_schema_keeps_names_and_loses_annotations():
    part = {"type": "string", "format": "date", "title": "T"}
    inside = {"properties": {"title": part, "format": part}, "discriminator": {}}
    kept = {"type": "string"}
    names = {"properties": {"title": kept, "format": kept}}
    assert simplify_schema({"anyOf": [part, True, inside], "$defs": {"a": inside}}) == {
        "anyOf": [kept, True, names], "$defs": {"a": names}
    }  # fmt: skip


@pytest.mark.parametrize(
    ("value", "made"),
    [
        ({"b", "a"}, ["a", "b"]),
        (frozenset({2, 1}), [1, 2]),
        (timedelta(days=1, seconds=2), "P1DT2S"),
        (timedelta(seconds=-1.5), "-P0DT1.500000S"),
        (b"\xc3\xa9", "é"),
        (b"\xff", {"type": "builtins.bytes", "text": "b'\\xff'"}),
    ],
)
def test_values_have_the_form_in_which_frameworks_describe_them(value, made):
    assert as_json(value) == made
