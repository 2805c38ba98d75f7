"""`servers:` and what each server listed: read strictly, no server started; what is wrong has its place."""

import json
from copy import deepcopy

import pytest

from deedbook.charter.changes import compare
from deedbook.format.errors import SourceError
from deedbook.workspace.workspace import load_workspace, survey_workspace
from deedbook_tool_mcp.servers import declared_servers, digest_of

TOOL = {"name": "say", "description": "Says it.", "inputSchema": {"type": "object"}}
LISTING = {
    "schema_version": "v1",
    "server": "it",
    "reached": {"command": ["it"], "cwd": "", "env": []},
    "about": {"name": "it", "version": "1", "protocol": "2025-11-25"},
    "tools": [TOOL],
    "refused": {},
}


@pytest.fixture
def place(tmp_path):
    """Return what writes a workspace with one server, and the file of its listing."""

    def write(entry="{command: [it]}", listing=None, *, name="it", signed=True, more=""):
        system = tmp_path / ".system"
        (system / "servers").mkdir(parents=True, exist_ok=True)
        (system / "deedbook.yaml").write_text(f"schema_version: v1\nservers:\n  {name}: {entry}\n{more}")
        kept = {**deepcopy(LISTING), **(listing or {})}
        if signed:
            kept["digest"] = digest_of(kept)
        (system / "servers" / "it.json").write_text(json.dumps(kept))
        return tmp_path

    return write


def faults(root):
    with pytest.raises(SourceError) as caught:
        load_workspace(root)
    return [str(error) for error in caught.value.errors]


def test_tools_are_abilities_with_effects_until_the_workspace_says_otherwise(place):
    listing = {"tools": [TOOL, {**TOOL, "name": "get", "annotations": {"readOnlyHint": True}}]}
    root = place("{command: [it], timeout_ms: 5, tools: {get: {effects: read, tags: [t], summary: Gets.}}}", listing)
    found = load_workspace(root)
    say, get = found.abilities["it/say"], found.abilities["it/get"]
    assert (say.effects, say.summary, say.handler) == ("write", "Says it.", {"tool": "mcp"})
    assert (get.effects, get.summary, get.tags, get.timeout_ms) == ("read", "Gets.", {"t"}, 5)
    assert say.settings["pinned"] == TOOL
    assert say.place == ".system/deedbook.yaml:3"
    assert ".system/servers/it.json" in found.digests, "it is a source"


def test_include_and_exclude_choose(place):
    tools = [{**TOOL, "name": name} for name in ("get_a", "get_b", "put_a")]
    root = place('{command: [it], include: ["get_*"], exclude: ["*_b"]}', {"tools": tools})
    assert set(load_workspace(root).abilities) == {"it/get_a"}


def test_tool_that_cannot_be_an_ability_is_left_out_and_the_others_stay(place):
    odd = [
        {**TOOL, "name": "_hidden"},
        {**TOOL, "name": "Say"},
        {**TOOL, "name": "bad", "inputSchema": {"type": "object", "propreties": {}}},
        {**TOOL, "name": "fine"},
        {**TOOL, "name": "../up"},
        {**TOOL, "name": "a/b"},
    ]
    server = declared_servers(load_workspace(place(listing={"tools": [TOOL, *odd], "refused": {"big": "an integer"}})))[
        "it"
    ]
    assert server.offers == ("fine",)
    assert set(server.left_out) == {"_hidden", "Say", "say", "bad", "big", "../up", "a/b"}
    assert 'did you mean "properties"?' in server.left_out["bad"]
    assert server.left_out["say"] == "Say and say would be one ability"


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("{}", "3:7: a server has either command: or url:"),
        ('{command: [it], url: "http://x"}', "3:7: a server has either command: or url:"),
        ('{url: "http://x/y", env: {A: b}}', "3:27: env: belongs to a server with command:"),
        ("{command: [it], headers: {A: b}}", "3:23: headers: belongs to a server with url:"),
        ('{url: "http://x.example/", headers: {A: {secret: gh}}}', "a secret would be sent unencrypted"),
        ('{url: "http://localhost.example/", headers: {A: {secret: gh}}}', "use https:"),
        ("{command: it}", "3:17: servers.it.command: "),
        ('{url: "ftp://x"}', "3:13: servers.it.url: "),
        ('{url: "http://u:p@x/"}', "3:13: servers.it.url: "),
        ("{command: [it], env: {A: {secrte: x}}}", 'unknown key; did you mean "secret"?'),
        (
            "{command: [it], tools: {sya: {effects: read}}}",
            '3:31: "sya" is none of its tools in use; did you mean "say"?',
        ),
        ("{command: [it], tools: {say: {effects: reed}}}", 'did you mean "read"?'),
        (
            "{command: [other]}",
            "3:3: is reached in another way than when its tools were listed; list its tools again",
        ),
        ("{command: [it], env: {A: b}}", "list its tools again with: deedbook mcp refresh it"),
    ],
)
def test_what_is_wrong_with_a_declaration_has_its_place(place, entry, said):
    assert any(f".system/deedbook.yaml:{said}" in each or said in each for each in faults(place(entry)))


def test_missing_listing_names_the_command_that_makes_one(place):
    root = place()
    (root / ".system/servers/it.json").unlink()
    (said,) = faults(root)
    assert said.startswith(".system/deedbook.yaml:3:3: the tools of this server are not listed yet; ")
    assert said.endswith("list them with: deedbook mcp refresh it")
    found, _ = survey_workspace(root)
    assert declared_servers(found)["it"].command == ("it",), "the command that looks can read it"


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (
            lambda text: text.replace("Says it.", "Says all."),
            "was changed after it was written; do not edit a listing by hand",
        ),
        (lambda text: text.replace('"tools"', '"toosl"'), 'did you mean "tools"?'),
        (lambda text: text[:-5], "not acceptable JSON"),
        (lambda _text: "[]", "expected object"),
        (lambda _text: "", "not acceptable JSON"),
        (lambda text: text.replace('"name": "say"', '"name": "say", "name": "x"'), "not acceptable JSON"),
        (lambda text: text.replace('"server": "it"', '"server": "at"'), "was changed after it was written"),
    ],
)
def test_listing_that_somebody_changed_is_refused_with_its_place(place, spoil, said):
    root = place()
    file = root / ".system/servers/it.json"
    file.write_text(spoil(file.read_text()))
    (error,) = [each for each in faults(root) if said in each]
    assert error.startswith(".system/servers/it.json: ")
    assert "; list its tools again with: deedbook mcp refresh it" in error


def test_listing_of_no_server_and_a_link_in_its_place_are_refused(place):
    root = place()
    file = root / ".system/servers/it.json"
    (root / ".system/servers/old.json").write_text("{}")
    assert ".system/servers/old.json: belongs to no server in servers:; delete it" in faults(root)
    (root / ".system/servers/old.json").unlink()
    file.rename(root / "kept.json")
    file.symlink_to(root / "kept.json")
    assert any("link" in each for each in faults(root))


def test_listing_may_be_larger_than_other_sources(place):
    tools = [{**TOOL, "name": f"t{number}", "description": "x" * 5000} for number in range(50)]
    assert len(load_workspace(place(listing={"tools": tools})).abilities) == 50


@pytest.mark.parametrize("name", ["model", "Model"])
def test_names_of_other_abilities_are_no_servers(place, name):
    assert any("ids that begin with" in each for each in faults(place(name=name)))


def test_ability_with_the_id_of_a_tool_names_both_places(place):
    root = place(more="abilities: {it/say: {summary: x, handler: {tool: echo}}}\n")
    assert any('"it/say" is also made by .system/deedbook.yaml:' in each for each in faults(root))


# --- what a change means ----------------------------------------------------------------------------------------------

SERVER = {
    "server": "it", "command": ["it"], "cwd": "", "env": {}, "timeout_ms": 5, "include": ["*"], "exclude": [],
    "about": {"version": "1"}, "listing": "a", "offers": ["say"], "left_out": {}, "place": "x:1",
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "way", "said"),
    [
        ({"command": ["other"]}, "looser", "server it: command changed"),
        ({"env": {"A": "b"}}, "looser", "server it: env changed"),
        ({"timeout_ms": 6}, "looser", "server it: timeout_ms: 6, was 5"),
        ({"timeout_ms": 4}, "tighter", "server it: timeout_ms: 4, was 5"),
        ({"about": {"version": "2"}}, "other", "server it: about changed"),
        ({"listing": "b"}, "other", "server it: listing changed"),
        ({"left_out": {"x": "y"}}, "other", "server it: left_out changed"),
    ],
)
def test_change_of_a_server_is_said(lab, change, way, said):
    document = dict(lab.kernel().active_charter.charter.document)
    old, new = ({**document, "servers": {"it": {**SERVER, **more}}} for more in ({}, change))
    found = compare(old, new)
    assert said in getattr(found, way)


def test_charter_from_before_there_were_servers_can_be_compared(lab):
    document = dict(lab.kernel().active_charter.charter.document)
    old = {key: value for key, value in document.items() if key != "servers"}
    assert "server it is new" in compare(old, {**document, "servers": {"it": SERVER}}).other


def test_requests_that_a_server_answers_are_abilities_beside_its_tools(place):
    about = {**LISTING["about"], "requests": ["resources/list", "resources/read", "prompts/get", "new/method"]}
    entry = "{command: [it], exclude: [prompts/*], tools: {resources/read: {effects: read, tags: [t]}}}"
    found = load_workspace(place(entry, {"about": about})).abilities
    assert set(found) == {"it/say", "it/resources/list", "it/resources/read", "it/elicitation/create"}
    read, listing = found["it/resources/read"], found["it/resources/list"]
    assert (read.effects, read.tags, read.handler) == ("read", {"t"}, {"tool": "mcp-request"})
    assert (listing.effects, listing.settings["request"]) == ("write", "resources/list")


def test_listing_without_requests_makes_tools_only(place):
    assert set(load_workspace(place()).abilities) == {"it/say"}


def test_declaration_of_a_request_that_the_server_does_not_answer_is_a_fault(place):
    about = {**LISTING["about"], "requests": ["resources/read"]}
    (fault,) = faults(place("{command: [it], tools: {resources/raed: {effects: read}}}", {"about": about}))
    assert 'did you mean "resources/read"' in fault
