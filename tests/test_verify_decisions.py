"""The third part of verify: facts, rules and decisions made again; what only a plugin could say is counted."""

import json
import subprocess
import sys

import ledgers
import pytest
from commandline import Place

from deedbook import Decision
from deedbook_audit.charters import CHARTER_MISSING
from deedbook_audit.recheck import recheck
from deedbook_audit.report import Decisions

RULES = [{"match": {"args": {"/n": 2}}, "then": "deny", "reason": "two"}]


@pytest.fixture
def judged(lab):
    """Give a lab with a session of calls that rules decide, of which one counts; its ledger is not sound any more."""
    lab.tool("echo", lambda args, ctx: args)
    lab.policy(
        "quota",
        lambda call: Decision("allow" if call.facts["session.calls"].get("echo", 0) < 3 else "deny", "spent"),
        pure=True,
        reads=["session.calls"],
    )
    lab.settings(policies={"baseline": {"kind": "rules", "rules": RULES, "default": "allow"}})
    session = lab.session()
    for n in range(5):
        session.call("echo", {"n": n})
    session.end(ok=True, reason="done")
    return lab, session


def again(lab, session, *changes):
    """Make everything again of a copy in which each of *changes* took place and all hashes are right."""
    place = lab.path / "copy.jsonl"
    lines = lab.ledger(session).read_bytes().splitlines(keepends=True)
    for before, after in changes:
        assert any(before in line for line in lines)
        lines = [line.replace(before, after) for line in lines]
    place.write_bytes(b"".join(ledgers.forge(lines)))
    return recheck(place, lambda _: session.bindings)


def test_everything_is_the_same_in_an_honest_session(judged):
    told = again(*judged)
    assert (told.calls, told.same, told.failures, dict(told.recorded), dict(told.unknown)) == (5, 5, (), {}, {})


@pytest.mark.parametrize(
    ("before", "after", "line", "check"),
    [
        (b'"args":{"n":2}', b'"args":{"n":1}', 9, "decision"),
        (b'"args":{"n":0}', b'"args":{"n":2}', 3, "decision"),
        (b'"facts":{"session.calls":{"echo":2}}', b'"facts":{"session.calls":{"echo":1}}', 9, "facts"),
        (b'"decision":"allow","digest"', b'"decision":"deny","digest"', 3, "answer"),
    ],
)
def test_what_was_changed_and_hashed_anew_is_found(judged, before, after, line, check):
    lab, session = judged
    told = again(lab, session, (before, after))
    assert (told.failures[0].line, told.failures[0].check) == (line, check)
    assert told.same < told.calls


def test_charter_that_is_not_at_hand_is_said_and_counted(judged):
    lab, session = judged
    assert recheck(lab.ledger(session), lambda _: CHARTER_MISSING) == Decisions(
        calls=5, unknown={CHARTER_MISSING: 5}, unchecked=CHARTER_MISSING
    )


def test_gate_that_is_not_pure_is_taken_at_its_word_and_named(lab):
    lab.tool("echo", lambda args, ctx: args)
    lab.hook("moody", "PreToolUse", lambda call: Decision("deny" if call.args.get("n") == 3 else "allow", "moody"))
    session = lab.session()
    for n in (1, 3):
        session.call("echo", {"n": n})
    told = recheck(lab.ledger(session), lambda _: session.bindings)
    assert (told.same, told.failures) == (2, ())
    (who,) = told.recorded
    assert who.startswith("hook moody, which is not pure (offered ")
    assert told.recorded[who] == 2


def test_verify_judges_again_and_imports_no_plugin_unless_asked(tmp_path):
    place = Place(tmp_path)
    (tmp_path / ".system").mkdir()
    (tmp_path / ".system" / "deedbook.yaml").write_text(
        "schema_version: v1\n"
        "abilities: {echo: {summary: Echo., handler: {tool: echo}}}\n"
        "hooks:\n"
        "  guard: {event_type: PreToolUse, handler: {hook: deny-tools}, with: {names: [rm]}, match: {kind: [tool]}}\n"
        "policies: {baseline: {kind: rules, rules: [{match: {effects: [none]}, then: allow}], default: deny}}\n"
    )
    place.here("call", "echo", "--args", '{"text":"hi"}', status=0)
    code = (
        "import sys; from deedbook.cli import program as cli\n"
        "sys.argv = ['deedbook', 'verify', '--json']\n"
        "status = cli._status(cli.GlobalOptions())\n"
        "print(sorted({name.split('.')[0] for name in sys.modules if name.startswith('deedbook_')}), file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ran.stderr.strip() == "['deedbook_audit', 'deedbook_policy_standard']"
    session = next(report for report in json.loads(ran.stdout)["reports"] if "decisions" in report)
    told = session["decisions"]
    assert (told["calls"], told["same"], told["failed"]) == (1, 1, 0)
    assert told["recorded"][0]["who"].startswith("hook guard of deedbook-hook-standard 0.1.0, ")
