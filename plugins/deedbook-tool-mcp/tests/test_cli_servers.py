"""`deedbook mcp add`, `list`, `tools`, `refresh`, `remove`, and what `lock` does with servers: with a real one."""

import json
import sys
from pathlib import Path

import pytest
from commandline import Place

ROGUE = Path(__file__).with_name("rogue.py")
SETTINGS = (
    "schema_version: v1   # kept\npolicies: {p: {kind: rules, rules: [{match: {effects: [write]}, then: allow}]}}\n"
)
HOSTILE = "Does.\x1b[2J\u202e"


def tool(name, description="Does something.", **more):
    return {"name": name, "description": description, "inputSchema": {"type": "object"}, **more}


class Shop(Place):
    """A workspace, and a server that does what a test says."""

    def lists(self, *tools, **more):
        (self.path / "plan.json").write_text(json.dumps({"tools": list(tools), "do": {"say": "echo"}, **more}))

    @property
    def command(self):
        return ["--", sys.executable, str(ROGUE), str(self.path / "plan.json")]

    @property
    def settings(self):
        return (self.path / ".system/deedbook.yaml").read_text()

    @property
    def listing(self):
        return self.path / ".system/servers/it.json"

    def added(self):
        self.lists(tool("say"), tool("get"))
        self.here("mcp", "add", "it", "--yes", *self.command, status=0)
        return self


@pytest.fixture
def shop(tmp_path):
    made = Shop(tmp_path)
    made.system("deedbook.yaml", SETTINGS)
    return made


def test_add_shows_the_exact_command_first_and_asks(shop):
    shop.lists(tool("say"))
    ran = shop.run("mcp", "add", "it", "--env", "A=b c", *shop.command, status=2)
    assert f"it is started with  {sys.executable} {ROGUE} " in ran.out
    assert "  A = b c" in ran.out
    assert "Start it? There is no terminal to ask on; add --yes" in ran.err
    assert (shop.settings, shop.listing.exists()) == (SETTINGS, False)
    assert not (shop.path / "plan.json.log").exists(), "it was not started"


def test_added_server_is_called_and_the_settings_keep_what_they_were(shop):
    ran = shop.added().here("mcp", "list", status=0)
    assert ran.out.startswith("it  2 tools  ")
    assert shop.settings.startswith(SETTINGS)
    ran = shop.run("call", "it/say", "--args", '{"a": 1}', status=0)
    assert json.loads(json.loads(ran.out)["content"][0]["text"]) == {"a": 1}
    assert shop.run("verify", "last", status=0)
    assert "there is a server 'it' already" in shop.here("mcp", "add", "it", "--yes", *shop.command, status=2).err


def test_add_names_secrets_and_never_their_values(shop):
    shop.lists(tool("say"))
    shop.system("deedbook.yaml", SETTINGS + "secrets: {gh: {env: GH_TOKEN}}\n")
    ran = shop.run("mcp", "add", "it", "--yes", "--secret", "T=gh", *shop.command, status=0, GH_TOKEN="hunter2hunter2")
    assert "  T = the secret gh" in ran.out
    assert "    env:\n      T: {secret: gh}\n" in shop.settings
    assert "hunter2hunter2" not in ran.out + ran.err + shop.settings + shop.listing.read_text()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--", "/no/such/program"], "MCP_UNAVAILABLE"),
        (["--", "/bin/echo", "hello"], "MCP_UNAVAILABLE"),
        (["--url", "http://127.0.0.1:9/mcp"], "MCP_UNAVAILABLE"),
        (["--url", "ftp://x"], "SOURCE_INVALID"),
        ([], "say either a command after --, or --url"),
        (["--env", "A", "--", "x"], "'A' is not NAME=VALUE"),
        (["--secret", "T=none", "--", "/bin/echo"], "SECRET_MISSING"),
    ],
)
def test_add_that_fails_writes_nothing(shop, options, said):
    ran = shop.here("mcp", "add", "it", "--yes", *options)
    assert ran.status in (1, 2)
    assert said in ran.err
    assert said != "MCP_UNAVAILABLE" or "deedbook.yaml:" not in ran.err, "that line was not written"
    assert (shop.settings, shop.listing.exists()) == (SETTINGS, False)


def test_add_that_would_leave_a_fault_is_taken_back(shop):
    shop.lists(tool("say"))
    before = SETTINGS + "abilities: {it/say: {summary: x, handler: {tool: echo}}}\n"
    shop.system("deedbook.yaml", before)
    ran = shop.here("mcp", "add", "it", "--yes", *shop.command, status=1)
    assert '"it/say" is also made by' in ran.err
    assert (shop.settings, shop.listing.exists()) == (before, False)


def test_tools_says_what_each_is_and_what_was_left_out(shop):
    schema = {"type": "object", "properties": {"a": {"type": "string", "x-ui": 1}}}
    shop.lists(tool("say", inputSchema=schema), tool("_no"), tool("odd", HOSTILE))
    shop.here("mcp", "add", "it", "--yes", *shop.command, status=0)
    ran = shop.here("mcp", "tools", "it", status=0)
    lines = [line.split(maxsplit=2) for line in ran.out.splitlines()]
    assert ["it/say", "write", "Does something."] in lines
    assert not any(line[0] == "it/odd" for line in lines)
    assert "left out: odd: /description holds U+001B (ESCAPE)" in ran.err, ran.err
    assert "\u202e" not in ran.out + ran.err
    assert lines[-1][0] == "it/elicitation/create"
    assert "it/say: inputSchema.properties.a.x-ui is an annotation, and was left out" in ran.err
    assert "left out: _no: its name can be no part of an ability's id" in ran.err
    found = shop.here("mcp", "tools", "it", "--json", status=0).fits("output_mcp_tools_v1")
    assert [row["id"] for row in found["tools"]] == ["it/say"]
    assert [row["id"] for row in found["requests"]] == ["it/elicitation/create"]
    found = shop.here("mcp", "list", "--json", status=0).fits("output_mcp_list_v1")
    assert [(row["name"], row["tools"]) for row in found["servers"]] == [("it", 1)]


def test_unknown_server_is_told_with_the_nearest(shop):
    ran = shop.added().here("mcp", "tools", "its", status=2)
    assert "server 'its' is not declared; did you mean \"it\"? Declared: it" in ran.err


def test_refresh_of_a_server_that_nobody_has_looked_at_asks_first(shop):
    shop.added().listing.unlink()
    assert "it  not listed yet" in shop.here("mcp", "list", status=0).out
    assert "Start it? There is no terminal" in shop.here("mcp", "refresh", status=2).err
    assert shop.here("mcp", "refresh", "it", "--yes", status=0)
    assert shop.listing.exists()


def test_remove_takes_out_what_add_put_in(shop):
    assert "add --yes" in shop.added().here("mcp", "remove", "it", status=2).err
    shop.here("mcp", "remove", "it", "--yes", status=0)
    assert shop.settings.strip() == SETTINGS.strip()
    assert not shop.listing.exists()
    assert "no servers are declared" in shop.here("mcp", "list", status=0).out


# --- lock -------------------------------------------------------------------------------------------------------------


def test_lock_shows_what_a_server_offers_otherwise_and_pins_it_only_if_that_is_wanted(shop):
    shop.added().here("lock", "--editable", status=0)
    before = shop.listing.read_text()
    shop.lists(tool("say", "Does more.", annotations={"readOnlyHint": True}), tool("new"), version="2")
    ran = shop.here("lock", "--editable", status=2)
    assert ran.out.splitlines() == [
        "~ it: version",
        "    was  1",
        "    now  2",
        "- it/get: Does something.",
        "+ it/new: Does something.",
        "~ it/say: annotations",
        "    was  null",
        '    now  {"readOnlyHint": true}',
        "~ it/say: description",
        "    was  Does something.",
        "    now  Does more.",
    ]
    assert "Accept this? There is no terminal" in ran.err
    assert shop.listing.read_text() == before
    assert "it: say is not what was pinned" in shop.run("call", "it/say", "--args", "{}", status=1).err
    shop.here("lock", "--editable", "--no-servers", status=0)
    assert shop.listing.read_text() == before
    ran = shop.here("lock", "--editable", "--yes", status=0)
    assert "looser  ability it/new is new" in ran.out
    assert "tighter ability it/get is gone" in ran.out
    shop.run("call", "it/say", "--args", "{}", status=0)
    assert "nothing changed" in shop.here("lock", "--editable", status=0).out


def test_lock_does_not_start_what_nobody_has_looked_at(shop):
    shop.added()
    (shop.path / "plan.json.log").unlink()
    changed = shop.settings.replace("plan.json]", "plan.json, --more]")
    assert changed != shop.settings
    shop.system("deedbook.yaml", changed)
    ran = shop.here("lock", "--editable", status=2)
    assert "--more" in ran.out
    assert not (shop.path / "plan.json.log").exists()


def test_lock_says_which_server_cannot_be_asked(shop):
    shop.added()
    (shop.path / "plan.json").unlink()
    ran = shop.here("lock", "--editable", status=1)
    assert "the MCP server it" in ran.err
    assert shop.here("lock", "--editable", "--no-servers", status=0)


# --- what a server claims ---------------------------------------------------------------------------------------------

READS, WRITES = {"annotations": {"readOnlyHint": True}}, {"annotations": {"readOnlyHint": False}}
SLY = {"annotations": {"readOnlyHint": True, "destructiveHint": True}}
TASK = {"annotations": {"readOnlyHint": True}, "execution": {"taskSupport": "required"}}


def test_claims_of_a_server_are_written_for_review_where_somebody_trusts_them(shop):
    shop.lists(tool("get", **READS), tool("put", **WRITES), tool("sly", **SLY), tool("say"), tool("job", **TASK))
    ran = shop.here("mcp", "add", "it", "--trust-hints", "--yes", *shop.command, status=0)
    assert "it claims the effects of 3 of 4 tools; nothing proves them: read servers.it.tools" in ran.err
    assert "left out: job: it works only as a task (execution.taskSupport: required)" in ran.err
    assert (
        "    tools:\n      get: {effects: read}\n      put: {effects: write}\n      sly: {effects: write}\n"
        in shop.settings
    )
    rows = shop.here("mcp", "tools", "it", "--json", status=0).fits("output_mcp_tools_v1")["tools"]
    assert {row["id"]: row["effects"] for row in rows} == {
        "it/get": "read", "it/put": "write", "it/sly": "write", "it/say": "write",
    }  # fmt: skip


def test_claims_of_a_server_change_nothing_where_nobody_trusts_them(shop):
    shop.lists(tool("get", **READS), tool("put", **WRITES))
    shop.here("mcp", "add", "it", "--yes", *shop.command, status=0)
    assert "effects" not in shop.settings.partition("servers:")[2]
    rows = shop.here("mcp", "tools", "it", "--json", status=0).fits("output_mcp_tools_v1")["tools"]
    assert {row["effects"] for row in rows} == {"write"}


def test_a_server_that_claims_nothing_has_nothing_written(shop):
    shop.lists(tool("say"), tool("odd", annotations={"title": "Odd"}))
    ran = shop.here("mcp", "add", "it", "--trust-hints", "--yes", *shop.command, status=0)
    assert "it claims the effects of 0 of 2 tools" in ran.err
    assert "tools" not in shop.settings.partition("servers:")[2]
