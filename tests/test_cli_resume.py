"""`deedbook resume`, and what the other commands say of a run that waits: as a user meets them."""

import json
import signal
from pathlib import Path

import pytest
from commandline import Place, ended, starter, until
from payments import BOTH, SKILL, SLOW


@pytest.fixture
def desk(tmp_path: Path) -> Place:
    """Give a workspace with a run whose echo needs a person; ada has a key."""
    place = starter(tmp_path / "workspace")
    place.env["XDG_CONFIG_HOME"] = str(tmp_path / "config")
    settings = (place.path / ".system/deedbook.yaml").read_text()
    place.write(".system/deedbook.yaml", f"{settings}\nprincipals:\n  ada: {{key: ada.pub, roles: [approver]}}\n")
    place.system(
        "policies/people.yaml",
        """\
        schema_version: v1
        id: people
        kind: rules
        match: {abilities: [echo]}
        rules: [{match: {}, then: ask, reason: a person decides}]
        """,
    )
    place.offer("tools", "slow", SLOW)
    place.system(
        "registry/low-level/slow.yaml", "schema_version: v1\nid: slow\nsummary: Wait.\nhandler: {tool: slow}\n"
    )
    place.system("skills/pay/SKILL.md", SKILL)
    place.run("keys", "new", "ada", "--out", ".system/ada.pub", status=0)
    return place


def suspend(place: Place) -> str:
    """Begin the run that needs a person; return its session."""
    return place.run("run", "pay", status=3).session


def suspend_again(place: Place) -> str:
    """Begin the run for another principal, so that it waits for a request of its own."""
    return place.run("run", "pay", "--as", "ada", status=3).session


def test_run_that_waits_says_for_what_and_how_to_go_on(desk: Place):
    ran = desk.run("run", "pay", status=3)
    assert "waits for a person: a person decides" in ran.err
    request, session = desk.request(), ran.session
    lines = ran.err.splitlines()
    assert f"an approver answers with: deedbook approvals approve {request} --as NAME" in lines
    assert f"the run is suspended; go on with: deedbook resume {session}" in lines


def test_json_answer_of_a_run_that_waits_fits_its_schema(desk: Place):
    told = desk.run("run", "pay", "--json", status=3).fits("output_run_v1")
    assert (told["ok"], told["state"]) == (False, "NEEDS_HUMAN")
    assert told["suspended"]["approval"] == desk.request()
    listed = desk.run("sessions", "--json", status=0).fits("output_sessions_v1")["sessions"]
    assert [(each["state"], each["approval"]) for each in listed] == [("suspended", desk.request())]


def test_approved_run_goes_on_and_answers(desk: Place):
    session = suspend(desk)
    desk.run("approvals", "approve", desk.request(), "--as", "ada", status=0)
    told = desk.run("resume", session[:12], status=0)
    assert told.out == "paid\n"
    assert f"session {session}\n" in told.err
    assert "[SESSION_ENDED]" in desk.run("resume", session, status=1).err
    assert desk.run("verify", status=0)


def test_run_that_nobody_has_answered_still_waits(desk: Place):
    session = suspend(desk)
    ran = desk.run("resume", session, status=3)
    assert "[NEEDS_HUMAN]" in ran.err
    assert f"deedbook approvals approve {desk.request()}" in ran.err
    told = desk.run("resume", session, "--json", status=3).fits("output_error_v1")
    assert told["errors"][0]["code"] == "NEEDS_HUMAN"


def test_resume_waits_for_the_answer(desk: Place):
    session = suspend(desk)
    process = desk.start_fork("resume", session, "--wait", "50")
    desk.run("approvals", "approve", desk.request(), status=0)
    assert ended(process).out == "paid\n"


def test_changed_charter_is_refused_with_the_difference_and_the_digest(desk: Place):
    session = suspend(desk)
    desk.run("approvals", "approve", desk.request(), status=0)
    desk.system(
        "registry/low-level/slow.yaml",
        "schema_version: v1\nid: slow\nsummary: Wait.\nhandler: {tool: slow}\ntags: [t]\n",
    )
    ran = desk.run("resume", session, status=1)
    assert "[RESUME_CHARTER_CHANGED]" in ran.err
    assert "ability slow" in ran.err
    digest = ran.err.split("--accept-charter ")[1].split()[0]
    again = desk.run("resume", session, "--accept-charter", digest, status=3)
    assert "waits for a person" in again.err, "an approval under another charter does not count"
    desk.run("approvals", "approve", desk.request(), status=0)
    assert desk.run("resume", session, status=0).out == "paid\n"
    desk.run("verify", status=0)


def test_refusal_is_the_answer_that_the_run_gets(desk: Place):
    session = suspend(desk)
    desk.run("approvals", "deny", desk.request(), "--note", "not today", status=0)
    ran = desk.run("resume", session, status=3)
    assert "not today" in ran.err
    after = desk.types(session)[desk.types(session).index("session.resumed") :]
    assert after[:4] == ["session.resumed", "context.resumed", "approval.refused", "tool.denied"]
    assert "tool.call" not in after


@pytest.mark.parametrize("name", ["nothing", "last!"])
def test_session_that_is_not_there_is_named(desk: Place, name: str):
    assert "[SESSION_NOT_FOUND]" in desk.run("resume", name, status=2).err


def test_interrupted_run_says_how_to_go_on_and_does(desk: Place):
    process = desk.start("run", "pay slowly")
    until(lambda: (desk.path / "begun").exists() or process.poll() is not None)
    process.send_signal(signal.SIGINT)
    ran = ended(process)
    assert ran.status == 130
    session = ran.session
    assert f"the run is suspended; go on with: deedbook resume {session}" in ran.err
    (desk.path / "go").touch()
    assert desk.run("resume", session, status=0).out == "paid slowly\n"
    desk.run("verify", status=0)


def test_request_of_a_fork_says_so_wherever_it_is_told_and_pays_nothing(desk: Place):
    session = suspend(desk)
    own, at = desk.request(), str(len(desk.events(session)) - 1)
    desk.run("fork", session, "--at", at, status=0)
    assert desk.request() == own, "a fork that runs no handler asks nobody"
    fork = desk.run("fork", session, "--at", at, "--run", status=3).session
    asked = desk.request()
    assert asked != own
    rows = desk.run("approvals", "list", "--all", "--json", status=0).fits("output_approvals_v1")["approvals"]
    assert [(row["state"], row["fork_of"]) for row in rows if row["approval"] == asked] == [("withdrawn", session)]
    named = f"fork of session {session}"
    assert named in desk.run("approvals", "list", "--all", status=0).out
    assert named not in desk.run("approvals", "list", status=0).out
    assert named in desk.run("approvals", "show", asked, status=0).out
    assert named in desk.run("tree", fork, status=0).out
    assert "[APPROVAL_WITHDRAWN]" in desk.run("approvals", "run", asked, status=3).err
    desk.run("verify", status=0)


# --- other commands ---------------------------------------------------------------------------------------------------


def test_sessions_says_what_a_suspended_one_waits_for(desk: Place):
    suspend(desk)
    assert f"approval {desk.request()} waits" in desk.run("sessions", status=0).out


def test_every_call_at_which_a_run_waits_is_named(desk: Place):
    desk.offer("flows", "both", BOTH)
    desk.system("registry/high-level/both.yaml", "schema_version: v1\nid: both\nsummary: Pay.\nhandler: {flow: both}\n")
    settings = (desk.path / ".system/deedbook.yaml").read_text()
    desk.write(
        ".system/deedbook.yaml",
        settings.replace("profiles:", "profiles:\n  two: {flow: both, models: {standard: {provider: rules}}}", 1),
    )
    ran = desk.run("run", "--profile", "two", "pay", "--json", status=3)
    told, session = ran.fits("output_run_v1")["suspended"], ran.json["session"]
    asked = [payload["approval"] for payload in desk.payloads("approval.requested", session)]
    assert len(asked) == 2
    assert told["approvals"] == asked
    (row,) = desk.run("sessions", "--json", status=0).fits("output_sessions_v1")["sessions"]
    assert row["approvals"] == asked
    listed = desk.run("sessions", status=0).out
    waits = desk.run("resume", session, status=3).err
    for each in asked:
        assert f"(approval {each})" in listed
        assert f"deedbook approvals approve {each}" in waits
    assert "2 calls wait for a person: echo" in listed
    answered = desk.run("approvals", "approve", asked[0], "--as", "ada", status=0)
    assert f"It also waits at a call of echo: deedbook approvals show {asked[1]}" in answered.err
    again = desk.run("resume", session, status=3).err
    assert f"deedbook approvals approve {asked[1]} --as NAME" in again
    assert f"deedbook approvals approve {asked[0]} --as NAME" not in again
    assert "It also waits" not in desk.run("approvals", "approve", asked[1], "--as", "ada", status=0).err
    assert desk.run("resume", session, status=0).out == "paid both\n"


def test_session_that_is_closed_gives_its_run_up(desk: Place):
    session = suspend(desk)
    desk.run("sessions", "close", session, status=0)
    assert desk.types(session)[-3:] == ["context.halted", "approval.withdrawn", "session.end"]
    assert "no request waits" in desk.run("approvals", "list", status=0).out
    assert "[SESSION_ENDED]" in desk.run("resume", session, status=1).err
    desk.run("verify", status=0)


def test_verify_says_what_a_suspended_session_waits_for(desk: Place):
    session = suspend(desk)
    told = desk.run("verify", session, status=0).out
    assert f"suspended, waits for approval {desk.request()}" in told
    assert "calls without an outcome" not in told
    desk.run("verify", status=0)


def test_doctor_names_a_run_that_can_be_resumed(desk: Place):
    session = suspend(desk)
    checks = json.loads(desk.run("doctor", "--json").out)["checks"]
    (found,) = (each for each in checks if session in each["found"])
    assert (found["level"], found["fix"]) == ("note", f"deedbook resume {session}")


def test_approvals_run_goes_on_with_the_run_instead_of_the_call_alone(desk: Place):
    session = suspend(desk)
    assert "[APPROVAL_NOT_GRANTED]" in desk.run("approvals", "run", desk.request(), status=3).err
    approved = desk.run("approvals", "approve", desk.request(), status=0)
    assert f"go on with: deedbook resume {session}" in approved.err
    ran = desk.run("approvals", "run", desk.request(), status=0)
    assert (ran.out, ran.session) == ("paid\n", session)
    assert desk.sessions() == [session]
    desk.run("verify", status=0)


def test_serve_goes_on_with_the_runs_that_are_answered_and_leaves_the_others(desk: Place):
    answered, waiting = suspend(desk), suspend_again(desk)
    first = desk.payloads("approval.requested", answered)[0]["approval"]
    desk.run("approvals", "approve", first, status=0)
    process = desk.start_fork("serve")
    try:
        assert process.stderr
        said = []
        for line in process.stderr:
            said.append(line.decode().strip())
            if "was resumed" in said[-1]:
                break
        assert f"session {answered} was resumed; its run is COMPLETED" in said
        assert f"session {waiting} can be resumed: deedbook resume {waiting}" in said
    finally:
        process.send_signal(signal.SIGTERM)
        assert ended(process).status == 0
    assert desk.types(answered)[-1] == "session.end"
    assert desk.types(waiting)[-1] == "session.suspended"
    desk.run("verify", status=0)


def test_result_of_a_person_is_given_on_the_command_line(desk: Place):
    session = suspend(desk)
    assert "[APPROVAL_NO_APPROVER]" in desk.run("resume", session, "--result", "{}", "--as", "eve", status=3).err
    assert "--for and --as belong to --result" in desk.run("resume", session, "--as", "ada", status=2).err
    assert desk.run("resume", session, "--result", '{"text": "by hand"}', status=0).out == "paid\n"
    assert "tool.call" not in desk.types(session)
    desk.run("verify", status=0)


def test_approvals_run_on_a_refused_request_leaves_the_run_suspended(desk: Place):
    session = suspend(desk)
    desk.run("approvals", "deny", desk.request(), status=0)
    assert "[APPROVAL_ANSWERED]" in desk.run("approvals", "run", desk.request(), status=1).err
    assert desk.types(session)[-1] == "session.suspended"
