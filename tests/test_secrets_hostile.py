"""Secrets stay out of everything that is printed or kept, however those who were given one fail with it."""

import base64
import json
from urllib.parse import quote

import pytest
from commandline import Place, Ran

from deedbook import Failed, deny
from deedbook.format.errors import Err

SECRET = 'hunter2/Va+lue&=%"x longer than most'
SPELLINGS = {
    "itself": SECRET,
    "quoted for addresses": quote(SECRET, safe=""),
    "quoted for paths": quote(SECRET),
    "base64": base64.b64encode(SECRET.encode()).decode(),
    "base64 for addresses": base64.urlsafe_b64encode(SECRET.encode()).decode().rstrip("="),
    "basic": base64.b64encode(f"ada:{SECRET}".encode()).decode(),
    "hex": SECRET.encode().hex(),
    "JSON": json.dumps(SECRET)[1:-1],
    "repr": repr(SECRET)[1:-1],
}
SAID = """
import base64, json, os, sys
from urllib.parse import quote
s = os.environ["TOKEN"]
said = [s, quote(s, safe=""), quote(s), s.encode().hex(), json.dumps(s), repr(s)]
said += [base64.b64encode(s.encode()).decode(), base64.urlsafe_b64encode(s.encode()).decode().rstrip("=")]
said += [base64.b64encode(f"ada:{s}".encode()).decode()]
"""
PROGRAM = """
    schema_version: v1
    id: tell
    summary: Tell what it was given.
    handler: {tool: process}
    effects: read
    with: {argv: [python3, tell.py], env: {TOKEN: {secret: gh}}}
    schema_in: {type: object, properties: {}, additionalProperties: false}
    schema_out: true
    timeout_ms: 20000
"""
HOOK = """
    schema_version: v1
    id: guard
    event_type: PreToolUse
    handler: {script: [python3, scripts/guard.py]}
    env: {TOKEN: {secret: gh}}
    match: {abilities: echo}
    timeout_ms: 20000
"""
ENDS = {
    "says it and succeeds": "print(*said)",
    "complains and fails": "print(*said, file=sys.stderr); sys.exit(3)",
    "ends with it": "sys.exit(' '.join(said))",
    "says what is no answer": "print(json.dumps({'decision': said}))",
    "denies with it": "print(json.dumps({'decision': 'deny', 'reason': ' '.join(said)}))",
    "asks with it": "print(json.dumps({'decision': 'ask', 'reason': ' '.join(said)}))",
    "signals it": "print(json.dumps({'decision': 'allow', 'signals': {'ability_guard': said}}))",
    "hides it in a key": "print(json.dumps({'decision': 'allow', s: 1}))",
}


@pytest.fixture
def trusted(place: Place) -> Place:
    """Return a workspace with a secret, a program and a script that are given it."""
    place.configure("schema_version: v1", "schema_version: v1\nsecrets: {gh: {env: GH}}")
    place.env["GH"] = SECRET
    return place


def seen(place: Place, *rans: Ran) -> list[str]:
    """Return in which spellings the secret is printed, or kept below the state folder."""
    kept = [path.read_bytes() for path in place.path.glob(".deedbook/**/*") if path.is_file()]
    texts = [*(ran.out.encode() + ran.err.encode() for ran in rans), *kept]
    return [name for name, spelled in SPELLINGS.items() if any(spelled.encode() in text for text in texts)]


def told(place: Place) -> list[Ran]:
    """Return what every reading command says afterwards."""
    last = place.sessions()[-1]
    reading = [["replay", last], ["replay", last, "--json"], ["tree", last], ["doctor", "--json"],
               ["plugins", "--json"],
               ["approvals", "list", "--json"], ["approvals", "show", "last"], ["lock"], ["hooks", "--json"],
               ["explain", "echo", "--args", '{"text": "hi"}', "--json"],
               ["whatif", "--all", "--system", ".", "--json"]]  # fmt: skip
    return [place.run(*args, DEEDBOOK_TRACEBACK="1") for args in reading]


@pytest.mark.campaign(keep=2)
@pytest.mark.parametrize("how", ENDS)
def test_secret_of_a_script_is_printed_and_kept_nowhere(trusted, how, sample_size):
    trusted.write("scripts/guard.py", f"{SAID}sys.stdin.read()\n{ENDS[how]}\n")
    trusted.system("hooks/guard.yaml", HOOK)
    trusted.system(
        "hooks/guard.test.yaml",
        "schema_version: v1\ncases: [{name: a, hook: guard, event: {ability: echo, args: {text: hi}}, "
        "expect: {decision: allow, reason: x, signals: {}}}]\n",
    )
    called = trusted.run("call", "echo", "--args", '{"text": "hi"}', "--json", DEEDBOOK_TRACEBACK="1")
    tested = [trusted.run("hooks", "test", *more, DEEDBOOK_TRACEBACK="1") for more in ([], ["--json"])]
    later = told(trusted) if how in list(ENDS)[:: sample_size(4, 1)] else []
    assert seen(trusted, called, *tested, *later) == []


@pytest.mark.parametrize("how", list(ENDS)[:3])
def test_secret_of_a_program_is_kept_nowhere_and_is_in_no_message(trusted, how, sample_size):
    trusted.write("tell.py", f"{SAID}{ENDS[how]}\n")
    trusted.system("registry/low-level/tell.yaml", PROGRAM)
    called = trusted.run("call", "tell", "--args", "{}", DEEDBOOK_TRACEBACK="1")
    later = told(trusted) if how in list(ENDS)[: sample_size(1, 3)] else []
    assert seen(trusted, Ran(called.status, "", called.err), *later) == []


# --- what fails in the kernel's own process ---------------------------------------------------------------------------


@pytest.mark.parametrize("before", [0, 470, 485, 495])
@pytest.mark.parametrize("who", ["tool", "own failure", "hook", "reason"])
def test_secret_in_a_failure_is_told_to_nobody_not_even_a_part_of_it(lab, monkeypatch, who, before):
    monkeypatch.setenv("GH", SECRET)
    lab.settings(secrets={"gh": {"env": "GH"}})
    said = "." * before + SECRET

    def fails(*_):
        raise Failed("TOOL_ERROR", said) if who == "own failure" else RuntimeError(said)

    lab.tool("t", (lambda args, ctx: args) if who in ("hook", "reason") else fails)
    if who in ("hook", "reason"):
        lab.hook("h", "PreToolUse", fails if who == "hook" else lambda call: deny(said))
    with lab.session() as session:
        result = session.call("t", {})
    assert isinstance(result, Err)
    kept = lab.ledger().read_text()
    assert SECRET[:4] not in result.error.message
    assert SECRET[:4] not in kept
    assert before or "[secret:gh]" in result.error.message


NAMES = {
    "plain": "sk-live-0123456789abcdefghij",
    "with letters that are escaped": 'it\'s/a~secret "of\\some" kind\nand more',
    "longer than what messages show": "".join(f"{number:03}-" for number in range(150)),
    "short": "hunter2",
}


@pytest.mark.parametrize("secret", NAMES.values(), ids=NAMES)
def test_secret_as_the_name_of_an_argument_is_masked_in_every_line(place, secret):
    place.configure("schema_version: v1", "schema_version: v1\nsecrets: {gh: {env: GH}}")
    place.env["GH"] = secret
    deep = {secret: {secret: [float("1e17")]}}
    given = [
        ("echo", {"text": "hi", secret: 1}), ("echo", {"text": {secret: [1]}}), ("echo", {secret: {secret: 1}}),
        ("nothing", {secret: 1}), ("echo", deep), (secret, {}),
    ]  # fmt: skip
    rans = [place.run("call", name, "--args", json.dumps(args)) for name, args in given]
    assert all(ran.status for ran in rans)
    kept = [path.read_text(errors="replace") for path in place.path.glob(".deedbook/**/*") if path.is_file()]
    parts = {form[at : at + 16] for form in (secret, repr(secret)[1:-1], json.dumps(secret)[1:-1])
             for at in range(0, max(1, len(form) - 15), 8)}  # fmt: skip
    assert [part for part in parts for text in kept if part in text] == []
    assert any("[secret:gh]" in text for text in kept)
