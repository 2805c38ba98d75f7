"""Standard output belongs to the command: it holds the answer, and nothing that plugins print."""

import json
import os
import subprocess

import pytest
from commandline import COMMAND, SECONDS, Place, environment

LOUD = """
    import atexit
    import os
    import subprocess
    import sys

    from deedbook import {contract}


    def shout(where):
        print(f"printed {{where}}")
        sys.__stdout__.write(f"written {{where}}\\n")
        os.write(1, f"put {{where}}\\n".encode())
        subprocess.run(["/bin/echo", f"echoed {{where}}"])


    shout("while imported")
    atexit.register(shout, "in the end")


    class Plugin:
        spec = {spec}

        def __init__(self, settings, host):
            shout("when constructed")

    {method}
            shout("when asked")
            return {answer}
"""
TOOL = LOUD.format(
    contract="HandlerSpec", spec='HandlerSpec(takes={"type": "object"}, gives={"type": "object"}, effects="none")',
    method="    def __call__(self, args, ctx):", answer='{"done": True}',
)  # fmt: skip
HOOK = LOUD.format(
    contract="ALLOW, GateSpec, hookimpl", spec="GateSpec()",
    method="    @hookimpl\n        def pre_tool_use(self, call):", answer="ALLOW",
)  # fmt: skip
SETTINGS = """\
    schema_version: v1
    abilities: {loud: {summary: Make noise., handler: {tool: loud}}}
    hooks: {noise: {event_type: PreToolUse, handler: {hook: noise}, match: {}}}
    """


@pytest.fixture
def loud(tmp_path):
    """Give a workspace whose tool and hook print whenever they can."""
    made = Place(tmp_path / "loud")
    made.system("deedbook.yaml", SETTINGS)
    made.offer("tools", "loud", TOOL)
    made.offer("hooks", "noise", HOOK)
    return made


@pytest.mark.parametrize(
    ("args", "schema"),
    [
        ("call loud", "output_call_v1"), ("lock --editable", "output_lock_v1"), ("doctor", None),
        ("plugins", None), ("registry lint", None), ("explain loud", None),
    ],
)  # fmt: skip
def test_json_is_alone_on_standard_output(loud, args, schema):
    ran = loud.run(*args.split(), "--json")
    assert ran.status in (0, 1), ran
    assert isinstance(ran.json, dict)
    if schema:
        ran.fits(schema)


def test_what_plugins_print_is_on_standard_error(loud):
    ran = loud.process("call", "loud", status=0)
    assert json.loads(ran.out) == {"done": True}
    for when in ("while imported", "when constructed", "when asked", "in the end"):
        assert all(f"{how} {when}\n" in ran.err for how in ("printed", "written", "put", "echoed")), when


def test_what_plugins_print_is_no_message_of_the_mcp_server(loud):
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
    asked = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "loud", "arguments": {}}},
    ]
    with subprocess.Popen(
        [COMMAND, "mcp", "serve"], cwd=loud.path, env=environment(**loud.env), stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        process.stdin.write(b"".join(json.dumps(each).encode() + b"\n" for each in asked))
        process.stdin.flush()
        answers = [json.loads(process.stdout.readline()) for _ in range(2)]
        out, _ = process.communicate(timeout=SECONDS)
    assert [each["id"] for each in answers] == [1, 2]
    assert answers[1]["result"]["structuredContent"] == {"done": True}
    assert out == b""


def test_hook_of_a_coding_agent_still_answers_on_standard_output(place):
    """It writes to the descriptor itself, as the program does that agents start."""
    ran = place.process("bridge", "PermissionRequest", stdin=b"{}")
    assert ran.json["hookSpecificOutput"]["decision"]["behavior"] == "deny"


def test_streams_that_are_closed_stop_no_command(place):
    done = subprocess.run(
        ["/bin/sh", "-c", f'exec "{COMMAND}" call echo --args \'{{"text":"x"}}\' >&-'], cwd=place.path,
        env=environment(), capture_output=True, timeout=SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(os.listdir(place.path / ".deedbook/sessions")) == 1
