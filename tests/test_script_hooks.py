"""Hooks that are scripts: one exact answer counts, and everything else denies, on time, with nothing left behind."""

import json
import sys
import time
from pathlib import Path

import pytest

from deedbook.format.errors import BindingError, DeedbookError

ECHO = "import json, sys\nasked = json.loads(sys.stdin.readline())\n"
ALLOW = '{"decision":"allow"}'


def say(text):
    """Return a script that prints *text* (or bytes), whatever it is asked."""
    raw = text.encode() if isinstance(text, str) else text
    return f"import sys\nsys.stdin.read()\nsys.stdout.buffer.write({raw!r})\n"


class Scripts:
    """A workspace with a tool `shout` and hooks that are scripts in Python."""

    def __init__(self, lab):
        self.lab = lab
        lab.tool("shout", lambda args, ctx: args)

    def hook(self, source, event="PreToolUse", name="h", **more):
        self.lab.write(f"scripts/{name}.py", source, system=False)
        handler = {"script": [sys.executable, "-S", f"scripts/{name}.py"]}
        match = {} if event.endswith("ToolUse") else None
        entry = {"event_type": event, "handler": handler, "timeout_ms": 20_000, "match": match, **more}
        self.lab.settings(hooks={name: {key: value for key, value in entry.items() if value is not None}})

    def call(self, **args):
        with self.lab.session() as session:
            return session.call("shout", args)

    def denied(self, **args):
        """Call the tool, which is denied by the hook; return the reason on record."""
        error = self.call(**args).error
        assert error.code == "GATE_DENIED"
        (asked,) = self.lab.payload("hook.fired")["asked"]
        assert asked["decision"] == "deny"
        return asked["reason"]


@pytest.fixture
def scripts(lab):
    return Scripts(lab)


# --- what a script is asked, and may answer ---------------------------------------------------------------------------


def test_script_is_asked_one_json_document_with_the_call_and_the_facts_it_reads(scripts):
    scripts.hook(
        ECHO + f"open('asked.json', 'w').write(json.dumps(asked))\nprint({ALLOW!r})",
        reads=["session.calls"], **{"with": {"limit": 3}},
    )  # fmt: skip
    assert scripts.call(text="hi").value == {"text": "hi"}
    asked = json.loads((scripts.lab.path / "asked.json").read_text())
    call = asked.pop("call")
    assert asked == {"event": "PreToolUse", "settings": {"limit": 3}}
    assert (call["ability"], call["args"], call["facts"]) == ("shout", {"text": "hi"}, {"session.calls": {}})
    assert call["principal"] == {"id": "local", "via": "python", "roles": [], "on_behalf_of": None}
    assert len(call["digest"]) == 64


def test_script_allows_with_a_signal(scripts):
    scripts.hook(say('{"decision":"allow","reason":"fine","signals":{"ability_guard":{"risk":1}}}\n'))
    assert scripts.call(text="hi").value == {"text": "hi"}
    assert scripts.lab.payload("hook.fired")["asked"][0]["signals"] == {"ability_guard": {"risk": 1}}


@pytest.mark.parametrize("key", ["args", "output"])
def test_script_that_declares_it_rewrites(scripts, key):
    scripts.hook(say(json.dumps({"decision": "transform", key: {"text": "bye"}})), rewrites=True)
    assert scripts.call(text="hi").value == {"text": "bye"}


def test_script_asks_for_a_person(scripts):
    scripts.hook(say('{"decision":"ask","reason":"who?"}'))
    assert scripts.call().error.code == "NEEDS_HUMAN"


def test_script_narrows_a_result_or_leaves_it(scripts):
    scripts.hook(ECHO + 'print(json.dumps({"decision": "transform", "output": [asked["result"]]}))', "PostToolUse")
    scripts.hook(say(ALLOW), "PostToolUse", "a")
    assert scripts.call(a=1).value == [{"a": 1}]


def test_script_rewrites_a_prompt(scripts):
    scripts.hook(
        ECHO + 'print(json.dumps({"decision": "transform", "output": {"prompt": asked["prompt"].upper()}}))',
        "UserPromptSubmit", rewrites=True,
    )  # fmt: skip
    scripts.lab.flow("work", lambda args, run: {"reply": args["prompt"]})
    with scripts.lab.session("run") as session:
        assert session.run("hello").value.text == "HELLO"


def test_script_has_an_emptied_environment_and_what_is_declared(scripts, monkeypatch):
    monkeypatch.setenv("TOKEN", "t0ken-value-of-the-test")
    monkeypatch.setenv("LEAKED", "x")
    scripts.lab.settings(secrets={"gh": {"env": "TOKEN"}})
    scripts.hook(
        ECHO + "import os\nseen = sorted(name for name in os.environ if not name.startswith('LC_'))\n"
        'seen += [os.environ["GH"] == "t0ken-value-of-the-test", os.environ["MODE"], os.path.exists(".system")]\n'
        'print(json.dumps({"decision": "deny", "reason": json.dumps(seen)}))',
        env={"GH": {"secret": "gh"}, "MODE": "strict"},
    )  # fmt: skip
    assert json.loads(scripts.denied()) == ["GH", "HOME", "LANG", "MODE", "PATH", True, "strict", True]


def test_script_that_is_kept_answers_line_by_line_in_one_process(scripts):
    scripts.hook(
        "import json, os, sys\nfor line in sys.stdin:\n    asked = json.loads(line)\n"
        '    print(json.dumps({"id": asked["id"], "decision": "allow", "reason": str(os.getpid())}), flush=True)\n',
        protocol="lines",
    )
    with scripts.lab.session() as session:
        assert all(session.call("shout", {"n": n}).value == {"n": n} for n in range(3))
    pids = {fired.payload["asked"][0]["reason"] for fired in scripts.lab.all("hook.fired")}
    assert len(pids) == 1


@pytest.mark.parametrize("said", ['{"decision":"allow"}', '{"id":1,"decision":"allow"}', '["allow"]'])
def test_line_without_the_id_of_its_question_denies(scripts, said):
    scripts.hook(f"import sys\nfor line in sys.stdin:\n    print({said!r}, flush=True)\n", protocol="lines")
    assert scripts.denied() == "answered without the id of the question"


def test_kept_script_that_answers_twice_denies_and_is_started_anew(scripts):
    scripts.hook(
        "import json, sys\nfor line in sys.stdin:\n    asked = json.loads(line)\n"
        '    said = json.dumps({"id": asked["id"], "decision": "allow"}) + "\\n"\n'
        '    sys.stdout.write(said * (2 if asked["call"]["args"].get("twice") else 1))\n    sys.stdout.flush()\n',
        protocol="lines",
    )
    with scripts.lab.session() as session:
        assert session.call("shout", {"twice": True}).error.code == "GATE_DENIED"
        assert session.call("shout", {}).value == {}


# --- what is no answer ------------------------------------------------------------------------------------------------

NO_ANSWER = {
    "nothing": ("", "not acceptable JSON"),
    "a space": (" \n", "not acceptable JSON"),
    "a word": ("allow", "not acceptable JSON"),
    "a quoted word": ('"allow"', "answered str, not an object"),
    "a list": ('["allow"]', "answered list"),
    "a list of an answer": (f"[{ALLOW}]", "answered list"),
    "null": ("null", "answered NoneType"),
    "true": ("true", "answered bool"),
    "an empty object": ("{}", 'without "decision"'),
    "capitals": ('{"decision":"ALLOW"}', 'without "decision"'),
    "a capital key": ('{"Decision":"allow"}', "unknown keys: Decision"),
    "spaces": ('{"decision":" allow "}', 'without "decision"'),
    "another word": ('{"decision":"approve"}', 'without "decision"'),
    "a decision that is true": ('{"decision":true}', 'without "decision"'),
    "a decision that is a list": ('{"decision":["allow"]}', 'without "decision"'),
    "an extra key": ('{"decision":"allow","why":"x"}', "unknown keys: why"),
    "hook_signals": ('{"decision":"allow","hook_signals":{}}', "unknown keys: hook_signals"),
    "a duplicate key": ('{"decision":"deny","decision":"allow"}', "key 'decision' appears twice"),
    "NaN": ('{"decision":"allow","signals":{"ability_guard":NaN}}', "NaN"),
    "infinity": ('{"decision":"allow","signals":{"ability_guard":1e999}}', "the answer is refused"),
    "a byte order mark": (b"\xef\xbb\xbf" + ALLOW.encode(), "BOM"),
    "UTF-16": (ALLOW.encode("utf-16"), "the answer is refused"),
    "UTF-32": (ALLOW.encode("utf-32-le"), "the answer is refused"),
    "Latin-1": ('{"decision":"allow","reason":"é"}'.encode("latin-1"), "the answer is refused"),
    "a lone surrogate": ('{"decision":"allow","reason":"\\ud800"}', "the answer is refused"),
    "a NUL": (ALLOW + "\0", "the answer is refused"),
    "two documents": (f"{ALLOW}\n{ALLOW}\n", "Extra data"),
    "text after it": (f"{ALLOW}\nbye\n", "Extra data"),
    "text before it": (f"hello\n{ALLOW}\n", "the answer is refused"),
    "half of it": (ALLOW[:-3], "the answer is refused"),
    "single quotes": ("{'decision':'allow'}", "the answer is refused"),
    "a comment": (f"{ALLOW} // fine", "Extra data"),
    "a reason that is a number": ('{"decision":"allow","reason":1}', "reason that is no text"),
    "a reason that is null": ('{"decision":"allow","reason":null}', "reason that is no text"),
    "signals that are a list": ('{"decision":"allow","signals":[]}', "signals that are no object"),
    "another event's signal": ('{"decision":"allow","signals":{"routing_hint":1}}', "may carry ability_guard"),
    "transform without output": ('{"decision":"transform"}', "with 0 of args and output"),
    "transform with both": ('{"decision":"transform","args":{},"output":{}}', "with 2 of args and output"),
    "transform to a list": ('{"decision":"transform","args":[1]}', "not an object"),
    "transform without declaring it": ('{"decision":"transform","args":{}}', "it may answer allow, ask, deny"),
    "allow with args": ('{"decision":"allow","args":{"text":"x"}}', "answered allow with 1 of args and output"),
    "too deep": (
        '{"decision":"allow","signals":{"ability_guard":' + "[" * 999 + "]" * 999 + "}}",
        "the answer is refused",
    ),
    "a large integer": ('{"decision":"allow","signals":{"ability_guard":9007199254740993}}', "the answer is refused"),
}


@pytest.mark.campaign(keep=15)
@pytest.mark.parametrize("what", NO_ANSWER)
def test_what_is_not_exactly_one_answer_denies(scripts, what):
    said, why = NO_ANSWER[what]
    scripts.hook(say(said))
    assert why in scripts.denied()


ENDS = {
    "exit 1 after allow": (say(ALLOW) + "sys.stdout.flush()\nsys.exit(1)", "ended with status 1"),
    "exit 2 after allow": (say(ALLOW) + "sys.stdout.flush()\nsys.exit(2)", "ended with status 2"),
    "killed after allow": (
        say(ALLOW) + "import os\nsys.stdout.flush()\nos.kill(os.getpid(), 9)", "ended with status -9",
    ),
    "an exception after allow": (say(ALLOW) + "raise ValueError", "ended with status 1"),
    "a flood": ("import sys\nwhile True: sys.stdout.write('x' * 65536)", "OUTPUT_TOO_LARGE"),
    "a flood of errors": (say(ALLOW) + "while True: sys.stderr.write('x' * 65536)", "OUTPUT_TOO_LARGE"),
    "no syntax": ("allow(", "ended with status 1"),
}  # fmt: skip


@pytest.mark.parametrize("what", ENDS)
def test_script_that_ends_badly_denies_whatever_it_printed(scripts, what):
    source, why = ENDS[what]
    scripts.hook(source)
    assert why in scripts.denied()


def test_reason_of_a_failing_script_ends_with_what_it_complained_of(scripts):
    scripts.hook("import sys\nsys.stderr.write('no\\x1b[1m such\\n  rule' + ' x' * 300)\nsys.exit(2)")
    head, _, said = scripts.denied().partition("; it said: ")
    assert head == "ended with status 2; whatever it printed is no answer"
    assert said.startswith("no\\u{1b}[1m such rule x x")
    assert len(said) == 200
    assert said.isprintable()


def test_complaint_of_a_failing_script_holds_no_part_of_a_secret(scripts, monkeypatch):
    monkeypatch.setenv("TOKEN", "t0ken-value-of-the-test")
    scripts.lab.settings(secrets={"gh": {"env": "TOKEN"}})
    scripts.hook(
        "import os, sys\nsys.stderr.write('x' * 190 + os.environ['GH'])\nsys.exit(1)", env={"GH": {"secret": "gh"}}
    )
    assert "t0k" not in scripts.denied()


HANGS = {
    "hangs": "import time\ntime.sleep(3600)",
    "hangs after allow": say(ALLOW) + "import time\nsys.stdout.flush()\ntime.sleep(3600)",
    "ignores signals": "import signal, time\nsignal.signal(15, signal.SIG_IGN)\ntime.sleep(3600)",
}


@pytest.mark.parametrize("protocol", ["once", "lines"])
@pytest.mark.parametrize("what", HANGS)
def test_script_that_hangs_denies_on_time(scripts, what, protocol):
    scripts.hook(HANGS[what], timeout_ms=700, protocol=protocol)
    begun = time.monotonic()
    assert scripts.denied().startswith(("TOOL_TIMEOUT: ", "answered without the id"))
    assert time.monotonic() - begun < 60


def test_children_of_a_late_script_are_killed_with_it(scripts, tmp_path):
    mark = tmp_path / "mark"
    scripts.hook(
        "import os, time\n"
        f"if os.fork() == 0:\n    os.setsid()\n    open({str(mark)!r}, 'w').write(str(os.getpid()))\n"
        "time.sleep(3600)",
        timeout_ms=1500,
    )
    assert scripts.denied().startswith("TOOL_TIMEOUT")
    assert not Path(f"/proc/{mark.read_text()}/fd").exists() or not alive(int(mark.read_text()))


def alive(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def test_program_that_is_not_there_denies(scripts):
    scripts.hook(say(ALLOW))
    scripts.lab.settings(hooks={"h": {"handler": {"script": ["no-such-program-here"]}}})
    assert scripts.denied().startswith("NOT_STARTED")


# --- the charter ------------------------------------------------------------------------------------------------------


def test_script_is_a_source_and_a_changed_one_another_charter(scripts):
    scripts.hook(say(ALLOW))
    first = scripts.lab.kernel().bindings.charter
    scripts.hook(say('{"decision":"deny"}'))
    second = scripts.lab.kernel().bindings.charter
    assert {"scripts/h.py"} <= first.document["sources"].keys()
    assert first.digest != second.digest
    assert first.document["hooks"]["h"]["script"]["files"] != second.document["hooks"]["h"]["script"]["files"]


def test_script_that_is_changed_under_an_open_kernel_denies(scripts):
    scripts.hook(say(ALLOW))
    with scripts.lab.session() as session:
        assert session.call("shout", {}).value == {}
        scripts.lab.write("scripts/h.py", say(ALLOW) + "# changed", system=False)
        assert "scripts/h.py is not what the charter pins" in session.call("shout", {}).error.message
    assert scripts.call().value == {}


def test_script_that_appears_under_an_open_kernel_denies(scripts):
    scripts.hook(say(ALLOW))
    handler = {"script": [sys.executable, "-S", "later.py"]}
    scripts.lab.settings(
        hooks={"h": {"event_type": "PreToolUse", "handler": handler, "timeout_ms": 20_000, "match": {}}}
    )
    with scripts.lab.session() as session:
        scripts.lab.write("later.py", say(ALLOW), system=False)
        assert "later.py is newer than the charter" in session.call("shout", {}).error.message
    assert scripts.call().value == {}


def test_script_that_is_named_by_a_way_around_is_refused_since_it_would_not_be_pinned(scripts):
    scripts.hook(say(ALLOW))
    scripts.lab.settings(hooks={"h": {"event_type": "PreToolUse", "match": {}, "handler": {
        "script": [sys.executable, "scripts/../scripts/h.py"]}}})  # fmt: skip
    with pytest.raises(DeedbookError, match=r"holds \"\.\.\": write the path without it"):
        scripts.lab.kernel()


@pytest.mark.parametrize("name", ["guards/a.sh", "./guards/a.sh", "a.sh"])
def test_script_whose_file_is_gone_is_named_with_its_place_each_time(lab, name):
    lab.tool("shout", lambda args, ctx: args)
    lab.write(name, f"echo '{ALLOW}'\n", system=False)
    lab.write("hooks/h.yaml", f"{HEAD}handler: {{script: [sh, {name}]}}\n")
    lab.kernel().close()
    (lab.path / name).rename(lab.path / "moved.sh")
    for _ in range(2):
        with pytest.raises(BindingError) as caught:
            lab.kernel()
        (error,) = caught.value.errors
        assert (error.code, error.place) == ("BINDING_INVALID", ".system/hooks/h.yaml:5:24")
        assert f'there is no "{name}" in the workspace; restore it, or correct the path' in error.message


@pytest.mark.parametrize(
    "argument", ["/etc/hosts.none", "../elsewhere/a", "--log=out/x", "https://example.com/x", "a.sh", "guards"]
)
def test_argument_that_names_nothing_in_the_workspace_is_left_to_the_script(lab, argument):
    (lab.path / "guards").mkdir()
    lab.write("guards/a.sh", f"echo '{ALLOW}'\n", system=False)
    lab.tool("shout", lambda args, ctx: args)
    lab.write("hooks/h.yaml", f"{HEAD}handler: {{script: [sh, guards/a.sh, '{argument}']}}\n")
    with lab.session() as session:
        assert session.call("shout", {}).value == {}


def test_code_with_a_slash_is_no_path(lab):
    lab.tool("shout", lambda args, ctx: args)
    lab.write("hooks/h.yaml", f"{HEAD}handler: {{script: [sh, -c, out/of/nowhere]}}\n")
    with lab.session() as session:
        assert session.call("shout", {}).error.code == "GATE_DENIED"


@pytest.mark.parametrize("spelled", [".system/h.sh", "./.system/h.sh", "././/.system/./h.sh"])
@pytest.mark.parametrize("before", [[], ["/bin/sh"]])
def test_script_is_found_however_its_path_is_spelled_and_is_pinned(scripts, before, spelled):
    file = scripts.lab.write("h.sh", '#!/bin/sh\ncat >/dev/null; echo \'{"decision":"allow"}\'\n')
    file.chmod(0o755)
    entry = {"event_type": "PreToolUse", "match": {}, "timeout_ms": 20_000}
    scripts.lab.settings(hooks={"h": {**entry, "handler": {"script": [*before, spelled]}}})
    with scripts.lab.session() as session:
        assert session.call("shout", {"a": 1}).value == {"a": 1}
        file.write_text('#!/bin/sh\ncat >/dev/null; echo \'{"decision":"allow"}\' # another\n')
        assert session.call("shout", {"a": 1}).error.code == "GATE_DENIED"
    assert (
        ".system/h.sh is not what the charter pins" in scripts.lab.all("hook.fired")[-1].payload["asked"][0]["reason"]
    )


def test_script_is_never_pure(scripts):
    scripts.hook(say(ALLOW))
    (guard,) = scripts.lab.kernel().bindings.abilities["shout"].guards
    assert (guard.pure, guard.waits) == (False, True)


HEAD = "schema_version: v1\nid: h\nevent_type: PreToolUse\nmatch: {}\n"
REFUSED = {
    "a shell string": ("handler: {script: 'sh x.sh --fast'}\n", "5:11", "write [sh, x.sh, --fast]"),
    "a file that is not there": ("handler: {script: [./no.sh]}\n", "5:20", 'there is no file "./no.sh"'),
    "another isolation": ("handler: {script: [sh]}\nisolation: thread\n", "6:1", "leave it out"),
    "another protocol": ("handler: {script: [sh]}\nprotocol: twice\n", "6:11", "is not one of"),
    "a word that is no text": ("handler: {script: [sh, 1]}\n", "5:24", "expected string"),
    "an empty list": ("handler: {script: []}\n", "5:19", ""),
    "two handlers": ("handler: {script: [sh], hook: allow}\n", "5:10", ""),
    "an environment that is a list": ("handler: {script: [sh]}\nenv: [A]\n", "6:6", "expected object"),
    "a name that no variable has": ("handler: {script: [sh]}\nenv: {1A: x}\n", "6:", ""),
    "a key of scripts": ("handler: {hook: allow}\nreads: [session.calls]\n", "6:1", "belongs to scripts"),
    "another key of scripts": ("handler: {hook: allow}\nprotocol: once\n", "6:1", "belongs to scripts"),
    "a fact that is none": ("handler: {script: [sh]}\nreads: [session.cals]\n", "1", "which is no fact"),
    "a secret that is none": ("handler: {script: [sh]}\nenv: {A: {secret: gh}}\n", "1", "'gh' is not declared"),
    "settings that are a list": ("handler: {script: [sh]}\nwith: [1]\n", "6:7", "expected object"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_definition_that_is_wrong_is_refused_with_its_place(lab, what):
    body, place, why = REFUSED[what]
    lab.tool("shout", lambda args, ctx: args)
    lab.write("hooks/h.yaml", HEAD + body)
    with pytest.raises(DeedbookError) as caught:
        lab.kernel()
    found = [(each.place, each.message) for each in caught.value.errors]
    assert any((at or "").startswith(f".system/hooks/h.yaml:{place}") and why in said for at, said in found), found


@pytest.mark.parametrize("protocol", ["once", "lines"])
def test_script_of_the_workspace_can_be_the_program_itself(lab, protocol):
    read = "import json, sys\nfor line in sys.stdin:\n    "
    answer = "print(json.dumps({'decision': 'deny', 'reason': 'mine', **more}), flush=True)\n"
    more = "more = {'id': json.loads(line)['id']}\n    " if protocol == "lines" else "more = {}\n    "
    place = lab.write("scripts/own.py", f"#!{sys.executable} -S\n{read}{more}{answer}", system=False)
    place.chmod(0o755)
    lab.tool("act", lambda args, ctx: None)
    handler = {"script": ["scripts/own.py", "application/json"]}
    hook = {"event_type": "PreToolUse", "handler": handler, "protocol": protocol, "match": {}, "timeout_ms": 20000}
    lab.settings(hooks={"own": hook})
    with lab.session() as session:
        assert session.call("act", {}).error.message == "mine"
