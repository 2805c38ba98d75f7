"""What must not be sent to a model does not reach the endpoint, by any way that a request can take."""

import json

import pytest

from deedbook import Ok, parse
from deedbook.format.errors import BindingError
from deedbook_flow_runcontext.conversation import Conversation, Limits
from deedbook_hook_standard.request_redaction import Redactor, redact_request
from deedbook_testing.endpoints import Endpoint, OllamaChat

PROTOCOL = OllamaChat()
CARD = "4111 1111 1111 1111"
TOKEN = "sk-" + "a1B2" * 12
MAIL = "ada@example.org"
KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nIBAAKC\n-----END RSA PRIVATE KEY-----"
VALUES = [CARD, TOKEN, MAIL, "MIIEow", "IBAAKC"]
REPORT = '{"output": "done", "steps_completed": [], "tool_calls_made": [], "schema_version": "v1"}'


@pytest.fixture
def server():
    with Endpoint(PROTOCOL.faults) as server:
        yield server


@pytest.fixture
def profile(lab, server):
    """Return what writes a profile whose requests are redacted: ``mid`` asks ``small``, which is at the endpoint."""

    def write(tier="mid", **settings):
        lab.role("worker", f"You work for {MAIL}.")
        at = {"base_url": PROTOCOL.address(server.url), **settings}
        small = {"provider": "ollama", "model": "small-1", "timeout_ms": 60_000, "with": at}
        mid = {"provider": "fallback", "timeout_ms": 60_000, "with": {"models": ["small"]}}
        models = {"small": small, "mid": mid}
        lab.settings(
            profile="lab",
            profiles={"lab": {"models": models, "roles": {"worker": tier}}},
            seal=[{"detect": "card"}, {"detect": "secret"}],
            hooks={
                "redact-requests": {
                    "event_type": "PreToolUse",
                    "handler": {"hook": "redact-requests"},
                    "with": {"detect": ["card", "secret", "email"]},
                    "match": {"kind": ["model"]},
                }
            },
        )

    return write


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("tier", ["small", "mid"], ids=["model", "fallback"])
def test_values_do_not_reach_the_endpoint(lab, server, profile, tier, stream):
    calls = [("look-up", {"key": "k"})]
    whole = [PROTOCOL.answer(calls=calls), PROTOCOL.answer(REPORT)]
    server.plays(*([PROTOCOL.streamed([], calls), PROTOCOL.streamed([REPORT])] if stream else whole))
    profile(tier, stream=stream)
    secrets = {"text": f"{CARD}, {TOKEN} and {MAIL}", "key": KEY, "number": 4111111111111111}
    lab.tool("look-up", lambda args, ctx: secrets)
    lab.skill("greet", allows="look-up", triggers="hello")
    lab.flow("work", work)
    with lab.session("run") as session:
        assert isinstance(session.run(f"hello, my card is {CARD}"), Ok)
    sent = json.dumps(server.bodies)
    assert len(server.bodies) == 2
    assert [value for value in (*VALUES, "4111111111111111") if value in sent] == []
    assert ("You work for [REDACTED]." in sent, "my card is [REDACTED-CARD]" in sent) == (True, True)
    result = json.loads(server.bodies[1]["messages"][-1]["content"])
    assert result == {
        "text": "[REDACTED-CARD], [REDACTED-SECRET] and [REDACTED]",
        "key": "[REDACTED-SECRET]",
        "number": "[REDACTED-CARD]",
    }
    requests = json.dumps([each.payload for each in lab.all("llm.request")])
    assert [value for value in VALUES if value in requests] == []


def work(args, run):
    talk = Conversation(run, "worker", {"request": args["prompt"]}, Limits(), acts=True)
    talk.answer("worker_report_v1")
    return {"reply": "done", "state": "COMPLETED"}


def test_redaction_is_recorded_and_the_ledger_seals_what_was_found(lab, server, profile):
    server.plays(PROTOCOL.answer("hello"))
    profile()
    with lab.session() as session:
        asked = {"messages": [{"role": "user", "content": f"card {CARD}"}], "model": "small-1", "schema_version": "v2"}
        assert isinstance(session.call("model/small", asked), Ok)
    assert lab.one("llm.request").payload["request"]["messages"][0]["content"] == "card [REDACTED-CARD]"
    (fired,) = [each.payload for each in lab.all("hook.fired") if "input" in each.payload]
    assert fired["output"]["messages"][0]["content"] == "card [REDACTED-CARD]"
    assert CARD not in lab.ledger().read_text(encoding="utf-8")


def test_pattern_that_is_no_regular_expression_stops_the_start(lab, profile):
    profile()
    lab.settings(hooks={"redact-requests": {"with": {"patterns": ["(?=a)"]}}})
    with pytest.raises(BindingError, match=r"'\(\?=a\)' is not RE2"):
        lab.kernel()


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("nothing", "nothing"),
        (f"a {CARD} b", "a [REDACTED-CARD] b"),
        (f"key={TOKEN}; more", "key=[REDACTED-SECRET]; more"),
        (f"before\n{KEY}\nafter", "before\n[REDACTED-SECRET]\nafter"),
        (KEY[:40], "[REDACTED-SECRET]"),
        (f"write to {MAIL}.", "write to [REDACTED]."),
        ("see https://ada:pw@example.org/x", "see [REDACTED-SECRET]"),
        ("id AB-12 34", "id [REDACTED]"),
        ("890b4208ea31aad3203f9e3d67a2c8f7e91664de2ee368afa965dee40cad1220",) * 2,
    ],
)
def test_matches_are_replaced_and_the_rest_stays(text, left):
    redactor = Redactor(["card", "secret", "email"], ["AB-[0-9]+ [0-9]+"])
    assert redactor.redact(text) == left
    assert redactor.redact(left) == left


def test_text_with_a_match_that_cannot_be_cut_out_is_replaced_whole():
    redactor = Redactor(["card"], [])
    assert redactor.redact("4111-1111-1111-1111 in 4111-1111") == "[REDACTED-CARD] in 4111-1111"
    assert redactor.redact("x 41 11 11 11 11 11 11 11") in {"x [REDACTED-CARD]", "[REDACTED]"}


def test_json_stays_json_and_what_pairs_calls_stays():
    redactor = Redactor(["card"], [])
    number = "4111111111111111"
    request = {
        "messages": [
            {"role": "assistant", "content": "", "tool_calls": [{"id": number, "name": number, "args": {number: [1]}}]},
            {
                "role": "tool",
                "tool_call_id": number,
                "content": '{"a": 4111111111111111, "b": "\\u0034111111111111111"}',
            },
        ],
        "tools": [{"name": number, "description": f"of {number}", "schema_in": {}}],
        "model": "m",
    }
    left = redact_request(request, redactor.redact)
    (called, answered), (tool,) = left["messages"], left["tools"]
    assert called["tool_calls"] == [{"id": number, "name": number, "args": {"[REDACTED-CARD]": [1]}}]
    assert (answered["tool_call_id"], parse(answered["content"])) == (
        number,
        {"a": "[REDACTED-CARD]", "b": "[REDACTED-CARD]"},
    )
    assert tool == {"name": number, "description": "of [REDACTED-CARD]", "schema_in": {}}
