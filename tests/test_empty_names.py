"""An empty name is nobody's: it is refused everywhere, and never taken for a name that was left out."""

import json
import socket
import threading

import click
import pytest
from cases import for_each
from commandline import SCHEMAS, known_distributions, starter

from deedbook.cli import program as cli
from deedbook.cli.common import GlobalOptions
from deedbook.contract import Principal
from deedbook.format.errors import DeedbookError
from deedbook.kernel import open_kernel
from deedbook.workspace.workspace import read_workspace
from deedbook_serve.client import Runtime
from deedbook_serve.serving.wire import RefusedError, Wire

TEXTS = {"--note", "--pointer", "--prompt", "--reason", "--remove", "--set", "--fact", "--say", "--args", "--input"}
ARGUMENTS = {"prompt", "value"}
"""What holds a text or JSON, and no name."""


def parameters(command, path=()):
    """Yield every parameter of every command that takes a text, with the command and the words that call it."""
    for each in command.params:
        named = isinstance(each.type, click.types.StringParamType | click.Path) and not getattr(each, "is_flag", False)
        if named and not TEXTS & set(each.opts) and each.name not in ARGUMENTS:
            yield path, command, each
    if isinstance(command, click.Group):
        ctx = click.Context(command, obj=GlobalOptions())
        for name in command.list_commands(ctx):
            yield from parameters(command.get_command(ctx, name), (*path, name))


def words(path, command, empty):
    """Return a call of *command* in which *empty* is empty, and whatever else it needs is something."""
    if not path:
        return ["-C", "", "sessions"]
    said = list(path)
    arguments = [each for each in command.params if isinstance(each, click.Argument)]
    before = arguments[: arguments.index(empty)] if empty in arguments else []
    for each in command.params:
        if each is not empty and not each.required and each not in before:
            continue
        value = "" if each is empty else "." if isinstance(each.type, click.Path) else "1"
        value = each.type.choices[0] if isinstance(each.type, click.Choice) else value
        said += [*each.opts[:1], *[value] * each.nargs] if isinstance(each, click.Option) else [value]
    return said


with known_distributions():
    FOUND = {
        " ".join([*path, each.opts[0]]): words(path, command, each) for path, command, each in parameters(cli.program)
    }


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    return starter(tmp_path_factory.mktemp("empty") / "workspace")


def test_there_are_names_on_the_command_line():
    some = {"call --as", "run --profile", "verify --witness", "replay session", "mcp serve --client"}
    assert some <= FOUND.keys()


@for_each("args", FOUND.values(), ids=FOUND)
def test_empty_name_on_the_command_line_is_refused_and_nothing_is_done(told, args):
    ran = told.here(*args)
    assert (ran.status, ran.out) == (2, "")
    assert "it is empty" in ran.err or "'' does not exist" in ran.err
    assert told.sessions() == []


def code(act):
    with pytest.raises(DeedbookError) as caught:
        act()
    return caught.value.error.code


def test_empty_name_in_python_is_refused_and_nothing_is_begun(lab):
    kernel = lab.kernel()
    for profile in (lambda: open_kernel(lab.path, profile=""), lambda: read_workspace(lab.path, "")):
        assert code(profile) == "USAGE"
    for who in (
        lambda: kernel.principal(""),
        lambda: kernel.principal("agent:"),
        lambda: kernel.client("", via="test"),
        lambda: kernel.client("mcp", via="test", on_behalf_of=""),
        lambda: kernel.session(run=""),
    ):
        assert code(who) == "USAGE"
    for principal in (Principal("", "cli"), Principal("ada", "cli", on_behalf_of="")):
        assert code(lambda principal=principal: kernel.session(principal=principal)) == "LEDGER_BROKEN"
    assert not list(lab.path.glob(".deedbook/sessions/*"))
    with lab.session() as session, lab.tasks(session) as tasks:
        assert session.call("", {}).error.code == "TOOL_NOT_FOUND"
        assert tasks.create("echo", {}, idempotency_key="").error.code == "TASK_KEY_INVALID"


def test_empty_profile_is_refused_by_a_start_where_nothing_changed_too(lab):
    lab.kernel().close()
    lab.kernel().close()
    assert code(lambda: open_kernel(lab.path, profile="")) == "USAGE"


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("session.open", {"client": ""}),
        ("session.end", {"session": ""}),
        ("prompt.submit", {"session": "", "prompt": "x"}),
        ("actions", {"session": "", "actions": [{"id": "a", "action": "CALL", "ability": "x"}]}),
        ("actions", {"session": "s", "actions": [{"id": "", "action": "CALL", "ability": "x"}]}),
        ("actions", {"session": "s", "actions": [{"id": "a", "action": "CALL", "ability": ""}]}),
        ("actions", {"session": "s", "actions": [{"id": "a", "action": "END_SESSION"}], "idempotency_key": ""}),
    ],
)
def test_empty_name_on_the_socket_is_refused(method, params):
    with pytest.raises(RefusedError) as caught:
        Wire(SCHEMAS).read(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode())
    assert caught.value.error.code == "SCHEMA_VIOLATION"


def test_client_sends_an_empty_name_as_it_is(tmp_path):
    """Left out, the session would be opened for somebody else, and the request could be done twice."""
    heard = []
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        listening.listen()

        def serve():
            link, _ = listening.accept()
            with link, link.makefile("rb") as lines:
                for line in lines:
                    heard.append(json.loads(line)["params"])
                    link.sendall(b'{"id":%d,"jsonrpc":"2.0","result":{"session":"s","results":[]}}\n' % len(heard))

        thread = threading.Thread(target=serve)
        thread.start()
        with Runtime(tmp_path / "s", seconds=20) as runtime:
            runtime.open(client="")
            runtime.actions("s", [], idempotency_key="")
        thread.join(20)
    assert heard == [{"purpose": "open", "client": ""}, {"session": "s", "actions": [], "idempotency_key": ""}]
