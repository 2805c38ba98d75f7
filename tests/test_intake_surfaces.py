"""Every surface that takes JSON refuses the same bytes with the same code, and nothing is done about them."""

import ast
import io
import json
import os
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
from agents import SMALLEST, Agent
from commandline import SCHEMAS, Place, starter

from deedbook.contract import Failed
from deedbook.contract.lifecycle import NoAnswer
from deedbook.format.errors import DeedbookError
from deedbook.programs import exchange
from deedbook_audit.upcasting import envelope_1_0
from deedbook_inspect.ledger_contexts import load
from deedbook_provider_http import Trouble
from deedbook_provider_http.exchange import read_json
from deedbook_provider_http.names import Names
from deedbook_provider_openai import answer as openai_answer
from deedbook_provider_rules import Transcript
from deedbook_provider_rules.conversation import Conversation
from deedbook_serve.client import Runtime
from deedbook_serve.serving.wire import RefusedError, Wire
from deedbook_tool_mcp import messages
from deedbook_tool_mcp.client import web
from deedbook_tool_standard import outputs

ROOT = Path(__file__).parents[1]
CODE = "INTAKE_REFUSED"
HOSTILE = {
    "a key twice": b'{"decision":"deny","decision":"allow"}',
    "a key twice, spelled otherwise": b'{"a":1,"\\u0061":2}',
    "a key twice, deep inside": b'{"a":[{"b":{"c":1,"c":2}}]}',
    "NaN": b'{"a":NaN}',
    "infinity": b'{"a":-Infinity}',
    "a byte that is no UTF-8": b'{"a":"\xff"}',
    "half of it": b'{"a":',
    "two of them": b'{"a":1}{"a":1}',
    "a byte order mark": b'\xef\xbb\xbf{"a":1}',
    "100,000 levels": b'{"a":' * 100_000,
    "a number beyond every float": b'{"a":1e999}',
    "a float that is a large integer": b'{"a":1e20}',
    "an integer of 5,000 digits": b'{"a":' + b"9" * 5000 + b"}",
    "a lone surrogate": b'{"a":"\\ud800"}',
    "a lone surrogate in a key": b'{"\\udfff":1}',
    "80 levels": b'{"a":' * 80 + b"1" + b"}" * 80,
    "too many values": b'{"a":[0' + b",0" * 100_000 + b"]}",
    "a sealed value": b'{"$sealed":"x"}',
    "a sealed value, spelled otherwise": b'{"a":{"\\u0024sealed":"x"}}',
}
"""Bytes in the place of an object; each is refused alone, and inside of a message."""
NAMES = tuple(HOSTILE)
OF_RECORDS = NAMES[: NAMES.index("too many values")]
"""What surfaces refuse that read what a ledger may hold: it has more room, and sealed values stand in it."""
OF_SPELLING = NAMES[: NAMES.index("a number beyond every float")]
"""What a reader refuses that keeps nothing: text that is no JSON, or of which it is not clear what it says."""


@attrs.define
class World:
    """A workspace in this process, whose tool leaves a trace in *ran*, and one for the command line."""

    lab: Any
    place: Place
    ran: list[Any] = attrs.field(factory=list)
    agent: Any = None
    _session: Any = None

    def session(self) -> Any:
        """Return the one session of the test, begun when the workspace is as it shall be."""
        self._session = self._session or self.lab.session()
        return self._session

    def file(self, raw: bytes) -> Path:
        """Write *raw* to a file."""
        place = self.place.path / "given.json"
        place.write_bytes(raw)
        return place

    def said(self, raw: bytes) -> None:
        """Let programs of the workspace find *raw* in the file ``said``."""
        (self.lab.path / "said").write_bytes(raw)


@pytest.fixture
def world(lab, tmp_path):
    made = World(lab, starter(tmp_path / "starter"))
    lab.tool("note", lambda args, ctx: made.ran.append(args), effects="write")
    return made


def raised(act: Callable[[], object], kind: type[Exception]) -> str:
    """Return the code of what *act* raises."""
    with pytest.raises(kind) as caught:
        act()
    problem = caught.value
    return str(getattr(getattr(problem, "error", problem), "code", problem))


# --- surfaces: each is given bytes, checks that nothing was done, and returns what it answers -----------------------


def command(*args: str) -> Callable[[World, bytes], str]:
    """Return the surface of a command that is given the bytes as an argument."""

    def surface(world, raw):
        given = [each.replace("VALUE", os.fsdecode(raw)) for each in args]
        ran = world.place.here(*given, "--json")
        assert (ran.status, world.place.sessions()) == (2, [])
        (error,) = json.loads(ran.out)["errors"]
        assert CODE in ran.err
        return error["code"]

    return surface


def standard_input(world, raw):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw)))
        return command("call", "echo", "--args", "-")(world, b"")


def amended(world, raw):
    """Amend an event, by the one command of these that has no ``--json``."""
    ran = world.place.here("ledger", "amend", "x", "0", "--reason", "r", "--set", f"/a={os.fsdecode(raw)}")
    assert ran.status == 2
    return ran.err


def proof(world, raw):
    ran = world.place.here("verify", "--proof", str(world.file(raw)))
    assert ran.status == 4
    return ran.err


def old_memory(world, raw):
    ran = world.place.here("memory", "import", str(world.file(raw)))
    assert ran.status == 1
    assert [path.name for path in world.place.path.glob(".deedbook/*")] == ["workspace"]
    return ran.err


def runtime(_world, raw):
    line = b'{"jsonrpc":"2.0","id":1,"method":"actions","params":{"session":"s","actions":[%b]}}' % raw
    return raised(lambda: Wire(SCHEMAS).read(line), RefusedError)


def runtime_client(world, raw):
    return _asked(world, b'{"id":1,"jsonrpc":"2.0","result":%b}' % raw)


def _asked(world, answer):
    """Return the code of what a client of the runtime raises that hears *answer*."""
    place = world.place.path / "runtime.sock"
    place.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(place))
        listening.listen()

        def answered():
            link, _ = listening.accept()
            with link:
                link.recv(65536)
                link.sendall(answer + b"\n")

        thread = threading.Thread(target=answered)
        thread.start()
        with Runtime(place, seconds=20) as asking:
            code = raised(asking.health, DeedbookError)
        thread.join(20)
    return code


def bridge(world, raw):
    if world.agent is None:
        world.lab.settings(agents={"claude-code": {}}, policies=SMALLEST)
        world.agent = Agent(world.lab)
    fields = b'{"session_id":"s","hook_event_name":"PreToolUse","tool_name":"Read","tool_input":%b}' % raw
    heard = world.agent.raw("PreToolUse", fields)
    assert (heard.status, heard.decision, world.agent.sessions()) == (2, "deny", [])
    return heard.err


def script(protocol: str) -> Callable[[World, bytes], str]:
    """Return the surface of what a script answers."""

    def surface(world, raw):
        world.said(raw)
        copy = "for _ in sys.stdin:\n    sys.stdout.buffer.write(open('said', 'rb').read() + b'\\n')\n"
        world.lab.write("h.py", f"import sys\n{copy}    sys.stdout.flush()\n", system=False)
        handler = {"script": [sys.executable, "-S", "h.py"]}
        entry = {"event_type": "PreToolUse", "handler": handler, "match": {}, "protocol": protocol, "timeout_ms": 20000}
        world.lab.settings(hooks={"h": entry})
        assert world.session().call("note", {}).error.code == "GATE_DENIED"
        return world.lab.all("hook.fired")[-1].payload["asked"][0]["reason"]

    return surface


def program(world, raw):
    world.said(raw)
    shape = {"summary": "Say.", "schema_in": {"type": "object"}, "schema_out": {"type": "object"}}
    how = {"handler": {"tool": "process"}, "effects": "read", "with": {"argv": ["/bin/cat", "said"], "output": "json"}}
    world.lab.settings(abilities={"say": {**shape, **how}})
    error = world.session().call("say", {}).error
    assert world.lab.all("tool.error")[-1].payload["code"] == error.code
    return error.code


def transcript(world, raw):
    place = world.file(b'{"response":%b}' % raw)
    provider = Transcript({"path": "t"}, SimpleNamespace(open=lambda _path: place.open("rb")))
    return raised(lambda: provider({"model": "m", "messages": []}, None), Failed)


def rules_message(_world, raw):
    content = f'{{"request":"r","plan":{raw.decode("utf-8", "surrogateescape")}}}'
    return raised(lambda: Conversation.of({"messages": [{"role": "user", "content": content}]}), Failed)


def openai_arguments(_world, raw):
    function = {"name": "echo", "arguments": raw.decode("utf-8", "surrogateescape")}
    message = {"content": None, "tool_calls": [{"id": "c", "type": "function", "function": function}]}
    completion = {"choices": [{"finish_reason": "tool_calls", "message": message}]}
    request = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    with pytest.raises(Trouble, match="has arguments that are refused") as caught:
        openai_answer.read(completion, request, Names(()), None)
    assert caught.value.code == "MALFORMED_AGENT_MESSAGE"  # the role is told, and may answer again
    return CODE


def context_bundle(world, raw):
    place = world.file(b'{"schema_version":"v1","head":"0","context":%b}' % raw)
    with pytest.raises(DeedbookError) as caught:
        load(place)
    return " ".join(error.code for error in caught.value.errors)


def mcp_message(_world, raw):
    call = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":%b}}' % raw
    with pytest.raises(messages.RefusedMessage) as caught:
        messages.read_message(call)
    return caught.value.error.data["code"]


def mcp_answer(_world, raw):
    told = json.loads(web._check(b'{"jsonrpc":"2.0","id":1,"result":%b}' % raw, 1))
    assert told["id"] == 1
    return told["error"]["data"]["code"]


SURFACES: dict[str, tuple[Callable[[World, bytes], str], tuple[str, ...]]] = {
    "call --args": (command("call", "echo", "--args", "VALUE"), NAMES),
    "call --args -": (standard_input, NAMES),
    "tasks create --args": (command("tasks", "create", "echo", "--args", "VALUE"), NAMES),
    "explain --args": (command("explain", "echo", "--args", "VALUE"), NAMES),
    "explain --fact": (command("explain", "echo", "--fact", "session.calls=VALUE"), NAMES),
    "memory propose": (command("memory", "propose", "world_state", "k", "VALUE"), NAMES),
    "memory import": (old_memory, NAMES),
    "ledger amend --set": (amended, NAMES),
    "verify --proof": (proof, NAMES),
    "runtime socket": (runtime, NAMES),
    "client of the runtime": (runtime_client, OF_SPELLING),
    "bridge": (bridge, NAMES),
    "script, once": (script("once"), NAMES),
    "script, lines": (script("lines"), NAMES),
    "process of a plugin's hook": (lambda _, raw: raised(lambda: exchange.parse_frame(raw), NoAnswer), OF_RECORDS),
    "program": (program, NAMES),
    "HTTP answer": (lambda _, raw: raised(lambda: outputs.document(raw, "x"), Failed), NAMES),
    "MCP message": (mcp_message, NAMES),
    "MCP answer": (mcp_answer, NAMES),
    "transcript": (transcript, NAMES),
    "message to the rules": (rules_message, NAMES),
    "arguments of a model": (openai_arguments, NAMES),
    "answer of a model": (lambda _, raw: raised(lambda: read_json(raw, "x"), Trouble), NAMES),
    "bundle of a context": (context_bundle, OF_RECORDS),
}
"""Every surface, and what it has to refuse. The transports themselves have tests of their own beside their plugins."""


@pytest.mark.parametrize("name", SURFACES)
def test_surface_refuses_what_intake_refuses_and_does_nothing(world, name):
    surface, refuses = SURFACES[name]
    answers = {what: surface(world, HOSTILE[what]) for what in refuses}
    assert [what for what, said in answers.items() if CODE not in said] == []
    assert world.ran == []


@pytest.mark.parametrize("said", [b"[]", b'{"error":1}', b'{"error":{"data":[]}}', b'{"id":1}', b'{"id":1,"result":5}'])
def test_answer_that_is_none_of_the_runtime_s_is_an_error_with_a_code(world, said):
    assert _asked(world, said) == "RUNTIME_UNREACHABLE"


@pytest.mark.parametrize("what", [name for name in OF_SPELLING if "UTF" not in name])
def test_line_of_an_older_form_that_is_ambiguous_is_no_line(what):
    with pytest.raises(ValueError, match=r"."):
        envelope_1_0.load(b'{"payload":%b}' % HOSTILE[what])


# --- nobody reads JSON otherwise ------------------------------------------------------------------------------------

READERS = {
    "format/jsontext.py": "the reading that intake stands on",
    "deedbook_serve/agents.py": "the kernel's own tables",
    "deedbook_serve/bridging/dialects.py": "what of a refused event can be recorded; the values pass intake after it",
    "format/events.py": "lines of the ledger, whose canonical form verify checks",
    "plugins/plugins.py": "what pip wrote about a distribution",
    "plugins/hookhost.py": "what the kernel says to a process of its own",
    "format/schema.py": "the kernel's own schemas",
    "charter/store.py": "sources in the state folder, held against their digests",
    "deedbook_audit/upcasting/envelope_1_0.py": "lines of an older form, whose rules are of their time",
    "deedbook_policy_cedar/engine.py": "what the Cedar engine says of a policy",
    "deedbook_sink_otel/cursors.py": "its own file in the state folder",
    "deedbook_flow_runcontext/conversation.py": "a message that the kernel has parsed and checked before",
    "deedbook_testing/acting.py": "tests",
    "deedbook_testing/endpoints/chat.py": "what a server of the tests was sent",
    "deedbook_testing/endpoints/completions.py": "what a server of the tests was sent",
    "deedbook_testing/endpoints/content.py": "what a server of the tests sends",
    "deedbook_testing/endpoints/messages.py": "what a server of the tests was sent",
    "deedbook_testing/endpoints/protocol.py": "the published schema of a request",
    "deedbook_testing/endpoints/responses.py": "what a server of the tests was sent",
    "deedbook_testing/endpoints/server.py": "what a server of the tests was sent",
    "deedbook_testing/hosted.py": "tests",
    "deedbook_testing/imports.py": "tests",
    "deedbook_tool_mcp/messages.py": "the id in a message that was refused",
}
"""Who reads JSON without the intake, and what."""
_READS = frozenset({"json.load", "json.loads", "json.JSONDecoder", "orjson.loads"})
_OF_LIBRARIES = frozenset({"validate_json", "model_validate_json", "from_json", "json"})


def _reads_json(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    owner = node.func.value
    return node.func.attr in _OF_LIBRARIES or (isinstance(owner, ast.Name) and f"{owner.id}.{node.func.attr}" in _READS)


def test_nobody_else_reads_json():
    """A new surface parses by `canonical.parse`; a new reader of something else says here what it reads."""
    found = set()
    for path in [*ROOT.glob("core/deedbook/**/*.py"), *ROOT.glob("plugins/*/src/**/*.py")]:
        source = path.read_text(encoding="utf-8")
        if "json" in source and any(map(_reads_json, ast.walk(ast.parse(source)))):
            found.add(str(path).partition("/core/deedbook/")[2] or str(path).partition("/src/")[2])
    assert found == set(READERS)
