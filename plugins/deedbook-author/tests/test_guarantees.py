"""`deedbook doctor --guarantees`: what it finds in sound and in weakened workspaces, and what it leaves alone."""

import hashlib
import json
import socket
import subprocess
import sys
from pathlib import Path
from shutil import copytree

import pytest
from commandline import ROOT, Place, starter

from deedbook.call import pending_calls
from deedbook.call.door import Door
from deedbook.charter import bindings, judging
from deedbook.contract import ALLOW
from deedbook.format.errors import Ok
from deedbook.format.notes import SigningKey
from deedbook.format.sealed import Sealer
from deedbook.policy import gates, judge
from deedbook.policy.bound import Scope
from deedbook_audit import selection
from deedbook_author.guarantees import runner
from deedbook_author.guarantees.attacks import ENFORCEMENT, Attack, AttackResult
from deedbook_author.guarantees.report import describe_results, format_junit
from deedbook_author.guarantees.runner import ATTACKS, Examination, examine_guarantees
from deedbook_flow_swe.tools.reports.junit import read_junit

WORKSPACE = """
    schema_version: v1
    principals:
      ada: {key: ada.pub, roles: [approver]}
    secrets: {token: {env: GUARANTEES_TOKEN}}
    agents:
      reader: {expose: {abilities: [read]}}
    abilities:
      read: {summary: Read a text file., handler: {tool: file-read}}
      write: {summary: Write a whole file., handler: {tool: file-write}}
      act: {summary: Write a marker., handler: {tool: process}, effects: write, with: {argv: [touch, "{name}"]},
            schema_in: {type: object, required: [name], properties: {name: {type: string}}},
            schema_out: {type: object, required: [status]}}
    hooks:
      allow: {event_type: PreToolUse, handler: {hook: allow}, match: {kind: [tool]}}
    policies:
      files:
        kind: rules
        rules:
          - {match: {paths: "private/**"}, then: deny, reason: it is private}
          - {match: {abilities: write}, then: ask, reason: a person looks first}
        default: allow
"""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """Give a workspace to which nearly every promise applies."""
    place = Place(tmp_path_factory.mktemp("guarded") / "workspace")
    place.write(".system/deedbook.yaml", WORKSPACE)
    place.write(".system/ada.pub", f"{SigningKey.generate('ada').public}\n")
    return place


def statuses(place, tmp_path, *only):
    """Attack a copy in this process; return the status of each attack that does not hold or apply, by its id."""
    found = examine_guarantees(place.path, tmp_path / "scratch", only=only)
    return {result.id: result.status for result in found.results if not result.well}


def result(place, tmp_path, name):
    (found,) = examine_guarantees(place.path, tmp_path / "scratch", only=[name]).results
    return found


def snapshot(path):
    """Return every name below *path*, with the digest, mode and times of each file."""
    found = {}
    for each in sorted(path.rglob("*")):
        about = each.lstat()
        digest = hashlib.sha256(each.read_bytes()).hexdigest() if each.is_file() else ""
        found[str(each.relative_to(path))] = (digest, about.st_mode, about.st_mtime_ns)
    return found


# --- a sound workspace ------------------------------------------------------------------------------------------------


def test_starter_holds_and_is_left_as_it_is(tmp_path):
    """The state, the keys and every file of the original stay as they are, and CI can read the report."""
    place = starter(tmp_path / "workspace")
    place.here("call", "echo", "text=hi", status=0)
    before = snapshot(place.path)
    ran = place.here("doctor", "--guarantees", "--json", "--junit", str(tmp_path / "junit.xml"), status=0)
    said = ran.fits("output_guarantees_v1")
    assert snapshot(place.path) == before
    assert [each["id"] for each in said["results"]] == [attack.id for attack in ATTACKS]
    held = [each["id"] for each in said["results"] if each["status"] == "holds"]
    assert len(held) > 35
    suite = read_junit((tmp_path / "junit.xml").read_text(encoding="utf-8"), 0)
    assert suite.count("passed") == len(held) + 1
    assert suite.count("skipped") == len(ATTACKS) - len(held)
    assert suite.count("failed", "error") == 0


def test_approvals_secrets_and_clients_are_attacked_where_there_are_some(guarded, tmp_path):
    only = [attack.id for attack in ATTACKS if attack.id.startswith(("approval-", "secret-", "outside-"))]
    found = examine_guarantees(guarded.path, tmp_path / "scratch", only=only)
    assert {each.id: each.status for each in found.results} == dict.fromkeys(only, "holds")


@pytest.mark.campaign
def test_attacks_apply_to_a_workspace_that_uses_much(guarded, tmp_path):
    found = examine_guarantees(guarded.path, tmp_path / "scratch")
    idle = {each.id for each in found.results if each.status == "not applicable"}
    assert idle <= {"card-in-arguments", "changed-source", "unwritable-state", "copied-checkpoint", "budget-overrun"}
    assert found.well, [each for each in found.results if not each.well]


def test_effects_are_inert(guarded, tmp_path):
    """The program of an ability would leave a file; nothing in the original or the copy has it."""
    found = result(guarded, tmp_path, "failed-sync")  # before the attack, the call is made as it is
    assert found.found.startswith("act was refused")
    marked = [each for each in (*tmp_path.rglob("*"), *guarded.path.rglob("*")) if each.name in ("a", "A", "0")]
    assert not marked
    guarded.here("call", "act", "name=a", status=0)
    (guarded.path / "a").unlink()


def test_lock_and_account_and_log_are_attacked_where_there_are_some(guarded, tmp_path):
    place = Place(Path(copytree(guarded.path, tmp_path / "workspace")))
    place.configure("schema_version: v1", "schema_version: v1\nlock: required\nstate: ../elsewhere")
    place.configure(
        "policies:", "policies:\n  spending: {kind: budget, per: workspace, account: all, limits: {calls: {act: 1000}}}"
    )
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/checkpoint").write_text("a log")
    only = ("changed-source", "budget-overrun", "copied-checkpoint")
    found = examine_guarantees(place.path, tmp_path / "scratch", only=only)
    assert {each.id: each.status for each in found.results} == dict.fromkeys(only, "holds")
    assert sorted(path.name for path in (tmp_path / "elsewhere").iterdir()) == ["checkpoint"]


EXAMPLES = (
    "approval", "greeting", "guarded-files", "human-review", "killed-run", "mcp-git", "process-ability", "swe",
    "waiting-run",
)  # fmt: skip


@pytest.mark.campaign
@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_raise_no_alarm(name, tmp_path):
    place = Place(Path(copytree(ROOT / "examples" / name, tmp_path / "workspace")))
    if "ada.pub" in (place.path / ".system/deedbook.yaml").read_text():
        place.write(".system/ada.pub", f"{SigningKey.generate('ada').public}\n")
    assert place.run("doctor", "--guarantees").status == 0


# --- weakened workspaces and kernels ----------------------------------------------------------------------------------


def test_observed_policies_are_an_alarm_with_the_place_to_change(guarded, tmp_path):
    place = Place(Path(copytree(guarded.path, tmp_path / "workspace")))
    place.configure("schema_version: v1", "schema_version: v1\nenforcement: observe")
    only = ["denied-call", "denied-path-spelling", "own-policy-crashes", "exchanged-charter", "approval-replayed"]
    made = examine_guarantees(place.path, tmp_path / "scratch", only=only)
    found = [each for each in made.results if not each.well]
    assert [(each.id, each.status, each.change) for each in found] == [("denied-call", "broken", ENFORCEMENT)]


def nothing(*_args, **_how):
    return None


def undone(verdict, *_args):
    return verdict


WEAKER = {
    "denied-call": [(bindings.Binder, "policy", nothing)],
    "own-hook-nonsense": [(gates, "_explain_refusal", lambda *_: ALLOW)],
    "outside-scope": [(Scope, "allows", lambda *_: True)],
    "approval-replayed": [
        (pending_calls.PendingCalls, "use", nothing),
        (pending_calls, "refuse_performed", nothing),
    ],
    "approval-forged": [(pending_calls, "answer_faults", lambda *_: iter(()))],
    "approval-own": [(pending_calls, "refuse_approver", nothing)],
    "arguments-schema": [(judge, "_deny_violation", undone)],
    "result-schema": [(Door, "_check", lambda _door, _ticket, value: Ok(value))],
    "secret-in-arguments": [(Sealer, "scrub", lambda _sealer, payload: payload)],
    "failed-sync": [(judging, "DURABLE", frozenset())],
    "cut-workspace-ledger": [(selection, "find_unrecorded", nothing)],
}
"""For each attack what takes the protection away that it tests."""
NEIGHBOURS = ("unknown-ability", "own-policy-crashes", "not-a-number", "full-disk")
"""Attacks that each weaker kernel withstands."""


def weaken(monkeypatch, changes):
    for owner, name, weaker in changes:
        assert hasattr(owner, name)
        monkeypatch.setattr(owner, name, weaker)


@pytest.mark.parametrize("name", WEAKER)
def test_weaker_kernel_fails_the_attack_on_what_was_taken_away(guarded, tmp_path, monkeypatch, name):
    weaken(monkeypatch, WEAKER[name])
    assert statuses(guarded, tmp_path, name, *NEIGHBOURS) == {name: "broken"}


@pytest.mark.campaign
def test_observed_policies_raise_no_other_alarm(guarded, tmp_path):
    place = Place(Path(copytree(guarded.path, tmp_path / "workspace")))
    place.configure("schema_version: v1", "schema_version: v1\nenforcement: observe")
    assert statuses(place, tmp_path) == {"denied-call": "broken"}


@pytest.mark.campaign
@pytest.mark.parametrize("name", WEAKER)
def test_weaker_kernel_fails_no_other_attack(guarded, tmp_path, monkeypatch, name):
    weaken(monkeypatch, WEAKER[name])
    more = {"outside-scope": {"outside-client"}, "denied-call": {"sound-records"}}.get(name, set())
    assert statuses(guarded, tmp_path) == dict.fromkeys({name, *more}, "broken")


def test_rule_that_another_spelling_evades_is_named(tmp_path):
    place = Place(tmp_path / "workspace")
    place.write(
        ".system/deedbook.yaml",
        """
        schema_version: v1
        abilities: {read: {summary: Read a text file., handler: {tool: file-read}}}
        policies:
          files:
            kind: rules
            rules: [{match: {args: {/path: private/a}}, then: deny}]
            default: allow
        """,
    )
    found = result(place, tmp_path, "denied-path-spelling")
    assert (found.status, found.change.startswith(".system/deedbook.yaml:7")) == ("broken", True)
    assert "under:" in found.change


def test_attack_that_fails_itself_is_an_error_and_no_success(guarded, tmp_path, monkeypatch):
    def run(_target):
        raise SystemExit(0)

    monkeypatch.setattr(runner, "ATTACKS", (Attack(id="one", promise="One.", run=run),))
    found = examine_guarantees(guarded.path, tmp_path / "scratch")
    assert [(each.status, "SystemExit" in each.found) for each in found.results] == [("error", True)]
    assert not found.well


def test_original_that_changes_meanwhile_is_an_alarm(tmp_path, monkeypatch):
    place = starter(tmp_path / "workspace")

    def run(_target):
        place.write("notes.txt", "other")
        return "changed"

    place.write("notes.txt", "one")
    monkeypatch.setattr(runner, "ATTACKS", (Attack(id="one", promise="One.", run=run),))
    found = examine_guarantees(place.path, tmp_path / "scratch")
    assert not found.unchanged
    assert not found.well
    assert any("CHANGED MEANWHILE" in line for _, line in describe_results(found))


# --- bad input --------------------------------------------------------------------------------------------------------


def test_workspace_that_does_not_open_is_one_error_with_its_place(tmp_path):
    place = starter(tmp_path / "workspace")
    place.write(".system/hooks/one.yaml", "id: [\n")
    old = tmp_path / "junit.xml"
    old.write_text("<testsuite failures='0'/>")
    ran = place.here("doctor", "--guarantees", "--junit", str(old), status=1)
    assert ran.out == ""
    assert ran.err.startswith("error: .system/hooks/one.yaml:2:1: ")
    assert not old.exists(), "the report of an earlier examination would be taken for this one's"


def test_missing_plugin_is_one_error_that_names_it(tmp_path):
    place = starter(tmp_path / "workspace")
    place.configure("provider: rules", "provider: rulez")
    ran = place.here("doctor", "--guarantees", status=1)
    assert [line[:6] for line in ran.err.splitlines()] == ["error:"]
    assert "'rulez' is not installed" in ran.err
    assert "Traceback" not in ran.err


def test_usage(tmp_path):
    place = Place(tmp_path)
    assert "--junit needs --guarantees" in place.here("doctor", "--junit", "x.xml", status=2).err
    assert "deedbook init" in place.here("doctor", "--guarantees", status=2).err
    assert place.here("doctor", "--guarantees", "--junit", "", status=2).out == ""
    started = starter(tmp_path / "workspace")
    ran = started.here("doctor", "--guarantees", "--junit", "no/such/folder/j.xml", status=2)
    assert (ran.out, "no/such/folder" in ran.err) == ("", True)


# --- reports and isolation --------------------------------------------------------------------------------------------


def test_reports_survive_odd_texts():
    odd = AttackResult(id="one", promise="A <promise> & more.", status="broken", found="a\x00\x1b[31m]]>b", change="c")
    failed = AttackResult(id="two", promise="Two.", status="error", found="\ud800")
    made = Examination(workspace="w", results=(odd, failed), digest="0" * 64, unchanged=True, files=1, left_out=2)
    suite = read_junit(format_junit(made).decode(), 1)
    assert sorted(suite.tests.values()) == ["error", "failed", "passed"]
    lines = [line for _, line in describe_results(made)]
    assert not any("\x1b" in line or "\x00" in line for line in lines)
    assert lines[0].startswith("BROKEN  A <promise>")
    assert Examination.restore(json.loads(json.dumps(made.as_json()))) == made


def in_a_process(code, *given):
    ran = subprocess.run([sys.executable, "-c", code, *given], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


REACH = """
import socket, sys
from deedbook_author.guarantees.network import block_sockets, cut_network
cut = cut_network() if sys.argv[2] == "cut" else block_sockets() or True
try:
    socket.create_connection(("127.0.0.1", int(sys.argv[1])), 5).close()
    print("reached" if cut else "not cut")
except OSError:
    print("refused")
here, there = socket.socketpair()
here.sendall(b"local")
"""


@pytest.mark.parametrize("how", ["cut", "block"])
def test_process_of_the_attacks_reaches_no_address(how):
    with socket.create_server(("127.0.0.1", 0)) as server:
        found = in_a_process(REACH, str(server.getsockname()[1]), how)
    assert found in ({"refused", "not cut"} if how == "cut" else {"refused"})


def test_programs_of_hooks_are_not_asked_where_the_network_cannot_be_cut_off(tmp_path):
    place = starter(tmp_path / "workspace")
    place.write("hook.sh", f'touch {tmp_path}/asked\necho \'{{"decision": "allow"}}\'\n')
    place.write(
        ".system/hooks/program.yaml",
        """
        schema_version: v1
        id: program
        event_type: PreToolUse
        handler: {script: [sh, hook.sh]}
        match: {kind: [tool]}
        timeout_ms: 20000
        """,
    )
    place.write(
        ".system/hooks/end.yaml",
        "{schema_version: v1, id: end, event_type: SessionStop, handler: {script: [sh, hook.sh]}, timeout_ms: 20000}\n",
    )
    only = ["outside-scope", "own-hook-crashes", "hook-program-nonsense"]
    found = examine_guarantees(place.path, tmp_path / "scratch", only=only, silence=True)
    assert found.well
    assert not (tmp_path / "asked").exists()
    assert any("were not asked" in line for _, line in describe_results(found))
