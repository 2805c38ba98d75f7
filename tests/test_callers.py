"""Who asks: a person, who may use everything, or a client that ``agents:`` declares, which may use what is exposed."""

import pytest
from commandline import Place

from deedbook import Err, Ok, Principal, transform
from deedbook.format.errors import BindingError
from deedbook.policy.callers import client_of


@pytest.fixture
def desk(lab):
    """Declare two tools in two places, a model, and clients."""
    lab.tool("git/status", lambda args, ctx: {"clean": True}, effects="read")
    lab.tool("git/commit", lambda args, ctx: {"ok": True})
    lab.tool("echo", lambda args, ctx: args)
    lab.model(lambda request, ctx: "unused")
    lab.settings(
        agents={"git": {}, "reader": {"expose": {"effects": "read"}}, "mind": {"expose": {"kind": ["model", "tool"]}}}
    )
    return lab


def begin(lab, name):
    return lab.session(principal=lab.kernel().client(name, via="socket"))


def code(result):
    return result.error.code if isinstance(result, Err) else None


@pytest.mark.parametrize(
    ("name", "names", "models"),
    [
        ("git", {"git/status", "git/commit"}, set()),
        ("reader", {"git/status"}, set()),
        ("mind", {"git/status", "git/commit", "echo"}, {"model/standard"}),
        ("mcp", {"git/status", "git/commit", "echo"}, set()),
        ("nobody", set(), set()),
    ],
)
def test_scope_of_a_client_is_what_its_match_exposes(desk, name, names, models):
    found = client_of(name, desk.kernel().bindings.charter.document, via="socket", on_behalf_of="ada").scope
    assert (found.names, found.models) == (names, models)


def test_client_acts_as_an_agent_on_behalf_of_somebody(desk):
    with begin(desk, "git") as session:
        assert session.call("git/status", {}) == Ok({"clean": True})
    start, intent = desk.payload("session.start"), desk.one("tool.call")
    assert start["principal"] == {"id": "agent:git", "via": "socket", "roles": [], "on_behalf_of": "local"}
    assert (intent.actor, intent.principal) == ("agent", "agent:git")


def test_client_may_use_nothing_else_and_the_refusal_is_recorded(desk):
    with begin(desk, "git") as session:
        assert code(session.call("echo", {})) == "TOOL_NOT_ALLOWED"
    denied = desk.payload("tool.denied")
    assert (denied["name"], denied["by"]) == ("echo", {"scope": "what is exposed to git"})


def test_session_under_the_name_of_a_client_that_nobody_declared_may_use_nothing(desk):
    with desk.session(principal=Principal("agent:ghost", "socket", frozenset(), "local")) as session:
        assert code(session.call("echo", {})) == "TOOL_NOT_ALLOWED"


def test_client_that_is_like_no_other_is_refused_with_what_to_add(desk):
    with pytest.raises(BindingError, match=r"; add to \.system/deedbook\.yaml: agents: \{nobody: \{expose: "):
        desk.kernel().client("nobody", via="mcp")


def test_unknown_client_is_refused_with_those_that_there_are(desk):
    with pytest.raises(
        BindingError, match=r"client 'gti' is not declared .*did you mean \"git\".*git, mcp, mind, reader"
    ):
        desk.kernel().client("gti", via="socket")


def test_explain_asks_as_a_client(tmp_path):
    place = Place(tmp_path)
    place.system(
        "deedbook.yaml",
        "schema_version: v1\nagents: {git: {}}\nabilities: {echo: {summary: Echo., handler: {tool: echo}}}\n",
    )
    said = place.here("explain", "echo", "--args", '{"text": "hello"}', "--as", "agent:git", status=3).out
    assert "what is exposed to git" in said


# --- faults of the declaration ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"expose": {"args": {"/path": {"under": ["src"]}}}}, "expose cannot look at args"),
        ({"expose": {"principals": ["ada"]}}, "expose cannot look at principals"),
        ({"expose": {"abilties": ["a"]}}, "abilities"),
        ({"unknown_tools": "maybe"}, "ask"),
    ],
)
def test_declaration_that_means_nothing_is_refused(lab, said, why):
    lab.settings(agents={"git": said})
    with pytest.raises(Exception, match=why):
        lab.kernel()


def test_client_cannot_have_the_name_of_a_role(lab):
    lab.role("worker")
    lab.model(lambda request, ctx: "unused")
    lab.settings(agents={"worker": {}})
    with pytest.raises(BindingError, match="is also a role of this workspace"):
        lab.kernel()


# --- prompts that somebody else acts on -------------------------------------------------------------------------------


def test_submitted_prompt_is_recorded_as_hooks_leave_it_and_later_calls_hang_under_it(desk):
    desk.hook("mild", "UserPromptSubmit", lambda prompt, *_: transform({"prompt": prompt.lower()}), rewrites=True)
    with begin(desk, "git") as session:
        before = session.call("git/status", {})
        submitted = session.submit("Say HELLO").value
        after = session.call("git/status", {})
    assert before == after == Ok({"clean": True})
    assert submitted.prompt == "say hello" == desk.payload("user.message")["text"]
    first, second = desk.all("tool.call")
    assert (first.parent, second.parent) == (desk.one("session.start").span, submitted.message)


def test_refused_prompt_is_not_recorded(desk):
    desk.hook("no", "UserPromptSubmit", lambda *_: None)
    with begin(desk, "git") as session:
        assert code(session.submit("hello")) == "PROMPT_DENIED"
        assert code(session.submit("\ud800")) == "INTAKE_REFUSED"
    assert desk.all("user.message") == []
    assert code(session.submit("late")) == "SESSION_ENDED"
