"""Approvals as people use them: real processes, real keys, real deaths."""

import json
import os
import re
import stat

import pytest
from commandline import Place, ended, until

TAGGED = {"tags": ["approval-gate"]}
KILLER = """
import os, signal
from deedbook import HandlerSpec
class Plugin:
    spec = HandlerSpec(gives={"type": "object"}, effects="write")
    def __init__(self, settings, host): pass
    def __call__(self, args, ctx):
        with open("tried", "a") as file:
            file.write("x")
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def desk(tmp_path):
    """Give a workspace in which echo needs a person, and ada has a key."""
    place = Place(tmp_path / "workspace")
    place.env["XDG_CONFIG_HOME"] = str(tmp_path / "config")
    settings = {
        "schema_version": "v1",
        "default": {"write": "allow"},
        "principals": {"ada": {"key": "ada.pub", "roles": ["approver"]}},
        "abilities": {"echo": {"summary": "Echo.", "handler": {"tool": "echo"}, "tags": ["approval-gate"]}},
    }
    place.system("deedbook.yaml", json.dumps(settings))
    place.run("keys", "new", "ada", "--out", ".system/ada.pub", status=0)
    return place


def parked(place, ability="echo", args='{"text":"hi"}'):
    told = place.run("call", ability, "--args", args, "--json", status=3).fits("output_call_v1")
    return told["denied"][0]["approval"]


def test_key_is_private_and_is_not_made_twice(desk, tmp_path):
    key = tmp_path / "config/deedbook/keys/ada"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert stat.S_IMODE(key.parent.stat().st_mode) == 0o700
    assert "[KEY_REFUSED]" in desk.run("keys", "new", "ada", status=1).err
    key.chmod(0o640)
    assert "0640" in desk.run("keys", "show", "ada", status=1).err
    key.chmod(0o600)
    (key.parent / "eve").symlink_to(key)
    assert "[KEY_REFUSED]" in desk.run("keys", "show", "eve", status=1).err
    assert "PRIVATE+KEY" not in desk.run("keys", "show", "ada", status=0).out


def test_every_reading_command_has_its_schema(desk):
    identity = parked(desk)
    desk.run("approvals", "list", "--json", status=0).fits("output_approvals_v1")
    desk.run("approvals", "show", identity, "--json", status=0).fits("output_approval_v1")
    desk.run("approvals", "approve", identity, "--json", status=0).fits("output_answer_v1")
    desk.run("approvals", "show", identity[:8], "--json", status=0).fits("output_approval_v1")
    desk.run("keys", "show", "--json", status=0).fits("output_keys_v1")
    desk.run("approvals", "run", identity, "--json", status=0).fits("output_call_v1")
    desk.run("verify", status=0)


def test_of_many_who_run_it_at_once_one_does(desk, sample_size):
    many = sample_size(4, 8)
    identity = parked(desk)
    desk.run("approvals", "approve", identity, status=0)
    ran = [ended(process) for process in [desk.start_fork("approvals", "run", identity) for _ in range(many)]]
    assert sorted(each.status for each in ran) == [0, *[1] * (many - 1)]
    assert sum("[APPROVAL_USED]" in each.err for each in ran) == many - 1
    desk.run("verify", status=0)


def test_call_in_a_process_that_waits_goes_on(desk):
    process = desk.start_fork("call", "echo", "--args", '{"text":"hi"}', "--wait", "50")
    until(lambda: "waiting" in desk.here("approvals", "list").out)
    desk.run("approvals", "approve", desk.request(), status=0)
    assert json.loads(ended(process).out) == {"text": "hi"}


def test_process_that_dies_in_the_effect_has_used_the_approval_up(desk):
    desk.offer("tools", "killer", KILLER)
    desk.system(
        "registry/low-level/kill.yaml",
        """\
        schema_version: v1
        id: kill
        summary: Die.
        handler: {tool: killer}
        tags: [approval-gate]
        """,
    )
    identity = parked(desk, "kill", "{}")
    desk.run("approvals", "approve", identity, status=0)
    assert ended(desk.start("approvals", "run", identity)).status == -9
    assert "[APPROVAL_USED]" in desk.run("approvals", "run", identity, status=1).err
    assert (desk.path / "tried").read_text() == "x"
    (died,) = [
        each["id"]
        for each in json.loads(desk.run("sessions", "--json").out)["sessions"]
        if each["state"] == "interrupted"
    ]
    assert "1 open call is unknown" in desk.run("sessions", "close", died, status=0).err


@pytest.mark.parametrize("what", ["a link", "no folder", "no name", "the workspace's settings"])
def test_key_whose_public_half_cannot_be_written_is_not_made(desk, tmp_path, what):
    (desk.path / "link.pub").symlink_to(tmp_path / "elsewhere")
    out = {"a link": "link.pub", "no folder": "nowhere/eve.pub", "no name": ""}.get(what, ".system/deedbook.yaml")
    before = (desk.path / ".system/deedbook.yaml").read_text()
    assert desk.run("keys", "new", "eve", "--out", out).status in (1, 2)
    assert desk.run("keys", "show", "ada", "--out", out).status in (1, 2)
    assert [path.name for path in (tmp_path / "config/deedbook/keys").iterdir()] == ["ada"]
    assert (desk.path / ".system/deedbook.yaml").read_text() == before
    assert not (tmp_path / "elsewhere").exists()


def test_public_key_is_written_over_a_public_key(desk):
    warned = "Workspaces that trust it accept no answer"
    assert warned in desk.run("keys", "new", "ada", "--force", "--out", ".system/ada.pub", status=0).err
    assert warned not in desk.run("keys", "new", "eve", "--force", status=0).err
    assert (desk.path / ".system/ada.pub").read_text() == desk.run("keys", "show", "ada", status=0).out


def test_note_that_is_too_long_is_refused_and_nothing_is_answered(desk):
    identity = parked(desk)
    ran = desk.run("approvals", "approve", identity, "--note", "x" * 501, status=2)
    assert "501 characters; at most 500" in ran.err
    desk.run("approvals", "approve", identity, "--note", "x" * 500, status=0)


def completed(place, *words):
    line = " ".join(("deedbook", *words))
    ran = place.run(status=0, _DEEDBOOK_COMPLETE="bash_complete", COMP_WORDS=line, COMP_CWORD=str(len(words)))
    return [each.removeprefix("plain,") for each in ran.out.split()]


def test_names_of_requests_approvers_and_keys_are_completed(desk):
    identity = parked(desk)
    for verb in ("approve", "deny", "show", "run"):
        assert completed(desk, "approvals", verb, identity[:6]) == [identity]
    assert completed(desk, "approvals", "approve", identity, "--as", "a") == ["ada"]
    assert completed(desk, "keys", "show", "a") == ["ada"]


def test_an_approval_of_an_agents_own_tool_is_left_to_the_agent_and_not_used_up(desk):
    settings = json.loads((desk.path / ".system/deedbook.yaml").read_text())
    desk.system("deedbook.yaml", json.dumps({**settings, "agents": {"claude-code": {"tools": {"Bash": TAGGED}}}}))
    call = ("call", "claude-code/Bash", "--args", '{"command":"ls"}', "--json")
    identity = desk.run(*call, status=3).fits("output_call_v1")["denied"][0]["approval"]
    said = desk.run("approvals", "approve", identity, status=0).err
    assert "let the agent ask again: the same call then uses the approval" in said
    assert "approvals run" not in said
    before = desk.sessions()
    refused = desk.run("approvals", "run", identity, status=1).err
    assert "[EFFECT_ELSEWHERE]" in refused
    assert "let the agent ask again" in refused
    assert desk.sessions() == before
    (left,) = json.loads(desk.run("approvals", "list", "--json").out)["approvals"]
    assert left["state"] == "approved"


def test_who_waits_is_told_at_once_what_answers(desk):
    process = desk.start_fork("call", "echo", "--args", '{"text":"hi"}', "--wait", "50")
    assert process.stderr.readline().startswith(b"echo waits for a person: ")
    said = process.stderr.readline()
    identity = re.search(rb"deedbook approvals approve ([0-9a-f]{32}) --as NAME", said).group(1).decode()
    until(lambda: identity in desk.here("approvals", "list").out)
    desk.run("approvals", "approve", identity, status=0)
    assert json.loads(ended(process).out) == {"text": "hi"}


def test_an_approval_that_is_taken_over_is_not_waited_for(desk):
    desk.run("approvals", "approve", parked(desk), status=0)
    assert "approvals approve" not in desk.run("call", "echo", "--args", '{"text":"hi"}', "--wait", "50", status=0).err


# --- `last`: what is signed was shown ---------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["approve", "deny"])
@pytest.mark.parametrize("yes", [[], ["--yes"]])
def test_last_is_not_signed_where_nobody_was_shown_it(desk, verb, yes):
    identity = parked(desk)
    ran = desk.run("approvals", verb, "last", *yes, stdin=b"y\n", status=2)
    assert "name it by its id" in ran.err
    assert "waiting" in desk.here("approvals", "show", identity, status=0).out


@pytest.mark.parametrize(("typed", "state"), [("y", "approved"), ("n", "waiting")])
def test_last_is_shown_and_asked_about_on_a_terminal(desk, typed, state):
    identity = parked(desk)
    terminal, stdin = os.openpty()
    process = desk.start("approvals", "approve", "last", stdin=stdin)
    os.close(stdin)
    os.write(terminal, f"{typed}\n".encode())
    ran = ended(process)
    os.close(terminal)
    assert f"request      {identity}" in ran.err
    assert "Approve this?" in ran.err
    assert ran.status == (0 if typed == "y" else 1)
    assert state in desk.here("approvals", "show", identity, status=0).out


# --- requests that cannot be answered ---------------------------------------------------------------------------------


def states(place, *options):
    rows = place.here("approvals", "list", "--json", *options, status=0).fits("output_approvals_v1")["approvals"]
    return {row["approval"]: row["state"] for row in rows}


def change(place):
    """Change the charter, and nothing that the request is about."""
    place.configure("Echo.", "Echo a text.")


@pytest.mark.parametrize("approved", [False, True])
def test_request_made_under_another_charter_is_stale_until_that_charter_is_back(desk, approved):
    identity = parked(desk)
    if approved:
        desk.run("approvals", "approve", identity, status=0)
    before = (desk.path / ".system/deedbook.yaml").read_text()
    change(desk)
    ran = desk.run("approvals", "list", status=0)
    assert ran.out == "no request waits for a person\n"
    assert "1 more is stale: the charter has changed since; make the call again" in ran.err
    assert (states(desk), states(desk, "--all")) == ({}, {identity: "stale"})
    told = desk.run("approvals", "show", identity, "--json", status=0).fits("output_approval_v1")
    assert told["state"] == "stale"
    assert "stale: the charter has changed since" in desk.run("approvals", "show", identity, status=0).out
    for verb in ("run", "approve"):
        err = desk.run("approvals", verb, identity).err
        code = "ANSWERED" if approved and verb == "approve" else "CHARTER_CHANGED"
        assert f"[APPROVAL_{code}]" in err
        assert "an approver runs" not in err
    desk.system("deedbook.yaml", before)
    assert states(desk) == {identity: "approved" if approved else "waiting"}


def test_listing_of_requests_imports_no_plugin(desk):
    desk.offer("tools", "fine", KILLER)
    settings = json.loads((desk.path / ".system/deedbook.yaml").read_text())
    settings["abilities"]["kill"] = {"summary": "Die.", "handler": {"tool": "fine"}}
    desk.system("deedbook.yaml", json.dumps(settings))
    identity = parked(desk)
    code = next(desk.path.parent.glob("site-packages/offered_fine.py"))
    code.write_text("raise SystemExit(9)\n")
    assert states(desk, "--all") == {identity: "stale"}


def test_request_that_nobody_has_answered_says_who_runs_what(desk):
    identity = parked(desk)
    err = desk.run("approvals", "run", identity, status=3).err
    assert f"deedbook approvals approve {identity} --as NAME" in err


@pytest.mark.parametrize("named", [[], ["--as", "ada"]])
def test_where_nobody_may_answer_that_is_said_before_any_key_is_spoken_of(desk, named):
    settings = json.loads((desk.path / ".system/deedbook.yaml").read_text())
    desk.system("deedbook.yaml", json.dumps({**settings, "principals": {}}))
    err = desk.run("approvals", "approve", parked(desk), *named, status=3).err
    assert "there is no approver: no principal has the role approver and a key" in err
    assert "private key" not in err
