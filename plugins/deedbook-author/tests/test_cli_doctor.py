"""``deedbook doctor`` and ``deedbook plugins``: what is there, what is at fault, and how to mend it."""

import json
import os
from pathlib import Path
from shutil import copytree, rmtree

import pytest
from commandline import Place, starter
from importlib_metadata import distributions

from deedbook.plugins.plugins import discover
from deedbook.policy.charter import Charter
from deedbook.workspace.workspace import read_workspace
from deedbook_author.health import examine

GUARD = """
    from deedbook import GateSpec, allow, hookimpl


    class Plugin:
        spec = GateSpec(pure=True)

        def __init__(self, settings, host):
            pass

        @hookimpl
        def pre_tool_use(self, call):
            return allow()
"""
PROVIDER = """
    from deedbook import HandlerSpec


    class Plugin:
        spec = HandlerSpec(effects="read", requires={"MODULE": "pip install far[sdk]"})

        def __init__(self, settings, host):
            pass

        def __call__(self, request, ctx):
            raise AssertionError
"""
HOOK = "schema_version: v1\nid: guard\nevent_type: PreToolUse\nhandler: {hook: guard}\nmatch: {}\n"


@pytest.fixture
def place(tmp_path):
    return starter(tmp_path / "workspace")


def checks(place, status=0):
    found = place.here("doctor", "--json", status=status).fits("output_doctor_v1")
    assert found["ok"] == (status == 0)
    return found["checks"]


def faults(place):
    found = [check for check in checks(place, 1) if check["level"] == "fault"]
    assert all(check["fix"] for check in found)
    return found


def test_sound_workspace_has_no_faults_and_keeps_no_trace(place):
    before = sorted(place.path.rglob("*"))
    ran = place.here("doctor", status=0)
    assert ran.out.splitlines()[-1] == "all is well"
    assert sorted(place.path.rglob("*")) == before
    names = {check["name"] for check in checks(place)}
    assert names >= {"python", "plugins", "workspace", "binding", "lock", "ledger", "disk", "locks", "clock"}


def test_without_a_workspace_the_rest_is_checked(tmp_path):
    found = checks(Place(tmp_path))
    assert ("workspace", "note", "deedbook init") in {(each["name"], each["level"], each["fix"]) for each in found}


def test_every_fault_of_the_sources_is_listed_with_its_place(place):
    place.system("hooks/one.yaml", "id: [\n")
    place.system("hooks/two.yaml", HOOK.replace("PreToolUse", "PreToolUze"))
    found = [check["found"] for check in faults(place)]
    assert len([each for each in found if ".system/hooks/" in each]) == 2


def test_plugin_that_breaks_is_named_with_its_distribution(place):
    place.offer("hooks", "guard", "raise SystemExit(0)\n")
    place.system("hooks/guard.yaml", HOOK)
    (found,) = faults(place)
    assert "offered_guard 1.0" in found["found"].replace("-", "_")


def test_plugin_without_a_module_it_imports_is_mended_by_installing_that(place):
    place.offer("hooks", "guard", "\nimport nothing_of_that.name\n")
    place.system("hooks/guard.yaml", HOOK)
    (found,) = faults(place)
    assert found["fix"] == "pip install the distribution that provides the module nothing_of_that"
    assert "(offered_guard.py:2)" in found["found"]


def test_missing_plugin_is_a_fault_with_the_nearest_name(place):
    place.system("hooks/guard.yaml", HOOK.replace("hook: guard", "hook: alow"))
    (found,) = faults(place)
    assert 'did you mean "allow"' in found["found"]


@pytest.mark.parametrize("installed", [True, False])
def test_module_that_a_provider_imports_at_its_first_call_is_a_fault_if_it_is_missing(place, installed):
    name = "json.decoder" if installed else "nothing_of_that.name"
    place.offer("providers", "far", PROVIDER.replace("MODULE", name))
    place.configure("provider: rules", "provider: far")
    found = [
        (check["name"], check["level"], check["found"], check["fix"]) for check in checks(place, int(not installed))
    ]
    missing = "provider 'far' needs the module nothing_of_that.name: not installed"
    assert (("requires", "fault", missing, "pip install far[sdk]") in found) != installed


def test_secret_that_is_not_set_is_a_fault(place):
    place.offer("hooks", "guard", GUARD.replace("pass", 'host.secret("token")'))
    place.system("hooks/guard.yaml", HOOK)
    place.configure("profile: local\n", "profile: local\nsecrets: {token: {env: DOCTOR_TOKEN}}\n")
    (found,) = faults(place)
    assert "token" in found["found"]
    place.env["DOCTOR_TOKEN"] = "s3cret-value"
    assert "s3cret-value" not in place.here("doctor", status=0).out


def test_inline_hook_of_a_third_party_is_noted(place):
    place.offer("hooks", "guard", GUARD)
    place.system("hooks/guard.yaml", HOOK)
    (found,) = [check for check in checks(place) if check["name"] == "isolation"]
    assert "guard" in found["found"]
    assert "isolation: worker" in found["fix"]


def test_tampered_ledger_and_lost_session_are_faults(place):
    for _ in range(2):
        place.here("call", "echo", "--args", '{"text":"hi"}', status=0)
    one, two = place.sessions()
    file = place.ledger(one)
    file.write_bytes(file.read_bytes().replace(b'"hi"', b'"ho"', 1))
    place.ledger(two).unlink()
    found = faults(place)
    assert {check["name"] for check in found} == {"ledger"}
    assert any(one in check["found"] for check in found)
    assert any(two in check["found"] for check in found)


@pytest.fixture(scope="module")
def used(tmp_path_factory):
    """Give a workspace in which something was called."""
    place = starter(tmp_path_factory.mktemp("used") / "workspace")
    place.here("call", "echo", "text=hi", status=0)
    return place


def cut(ledger):
    ledger.write_bytes(b"".join(ledger.read_bytes().splitlines(keepends=True)[:2]))


@pytest.mark.parametrize("harm", [Path.unlink, cut])
def test_workspace_ledger_that_was_taken_away_or_cut_is_a_fault_as_verify_says(used, tmp_path, harm):
    place = Place(Path(copytree(used.path, tmp_path / "workspace")))
    harm(place.path / ".deedbook/workspace/.events.jsonl")
    assert place.here("verify").status == 4
    found = json.loads(place.here("doctor", "--json", status=1).out)["checks"]
    (fault,) = [check for check in found if check["level"] == "fault"]
    assert fault["name"] == "ledger"
    assert "head: expected a record of the session in the workspace ledger" in fault["found"]


def test_charters_that_are_gone_are_a_fault_and_verify_says_first_that_decisions_were_not_checked(used, tmp_path):
    place = Place(Path(copytree(used.path, tmp_path / "workspace")))
    rmtree(place.path / ".deedbook/charters")
    (fault,) = faults(place)
    assert fault["name"] == "charter"
    assert "is named, and is not kept here" in fault["found"]
    said = place.here("verify", status=0).out
    assert "decisions not checked: charter " in said.splitlines()[0]


@pytest.mark.parametrize("text", ["{\n", '{"charter": "none"}'])
def test_unreadable_record_of_the_charter_in_force_is_a_note_since_a_start_makes_it_anew(used, tmp_path, text):
    place = Place(Path(copytree(used.path, tmp_path / "workspace")))
    (place.path / ".deedbook/charters/current.json").write_text(text)
    found = charter(place, 0)
    assert (found["level"], "the next start writes it again" in found["found"]) == ("note", True)
    place.here("call", "echo", "text=hi", status=0)
    assert charter(place, 0)["level"] == "ok"


def test_required_lock_without_pins_is_a_fault(place):
    place.configure("lock: auto", "lock: required")
    (found,) = faults(place)
    assert (found["name"], found["fix"]) == ("lock", "deedbook lock")
    place.run("lock", "--editable", status=0)
    assert checks(place)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_state_that_cannot_be_written_is_a_fault(place):
    place.path.chmod(0o500)
    try:
        assert "disk" in {check["name"] for check in faults(place)}
    finally:
        place.path.chmod(0o700)


# --- plugins ----------------------------------------------------------------------------------------------------------


def test_plugins_are_listed_with_who_uses_them_and_none_is_imported(place):
    place.offer("hooks", "guard", "raise SystemExit(9)\n")
    place.system("hooks/guard.yaml", HOOK)
    rows = place.run("plugins", "--json", status=0).fits("output_plugins_v1")["plugins"]
    by_name = {(row["kind"], row["name"]): row for row in rows}
    assert by_name["hook", "guard"]["used"] == ["guard"]
    assert by_name["tool", "echo"]["used"] == ["echo"]
    assert by_name["policy", "rules"]["used"] == ["baseline"]
    assert by_name["provider", "rules"]["used"] == ["model/standard"]
    assert by_name["skill", "markdown"]["used"] == ["the workspace's skills"]


def test_plugins_of_one_kind(place):
    ran = place.run("plugins", "--kind", "flow", status=0)
    rows = [line.split() for line in ran.out.splitlines()]
    assert {row[0] for row in rows} == {"flow"}
    assert "review" in {row[1] for row in rows}
    assert place.run("plugins", "--kind", "flows").status == 2


def test_name_that_two_distributions_offer_is_said(place):
    place.offer("tools", "echo", GUARD)
    ran = place.run("plugins", status=0)
    assert "'echo' is offered by" in ran.err
    assert "'echo' is offered by" in " ".join(check["found"] for check in faults(place))


def test_plugins_are_listed_without_a_workspace(tmp_path):
    assert "tool" in Place(tmp_path).run("plugins", status=0).out


# --- completion -------------------------------------------------------------------------------------------------------


def complete(place, *words):
    """Return what bash is offered after these words, the last of which is begun."""
    line = " ".join(["deedbook", *words])
    ran = place.run(status=0, _DEEDBOOK_COMPLETE="bash_complete", COMP_WORDS=line, COMP_CWORD=str(len(words)))
    return {row.partition(",")[2] for row in ran.out.splitlines() if row}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_asks_the_command(place, shell):
    script = place.run("completion", shell, status=0).out
    assert "_DEEDBOOK_COMPLETE" in script
    assert f"{shell}_complete" in script


def test_commands_and_names_are_completed(place):
    place.here("call", "echo", "--args", '{"text":"hi"}', status=0)
    (session,) = place.sessions()
    assert complete(place, "rep") == {"replay"}
    assert complete(place, "call", "ech") == {"echo"}
    assert complete(place, "replay", session[:5]) == {session}
    assert complete(place, "tree", "la") == {"last"}
    assert complete(place, "run", "--profile", "lo") == {"local", "local-model"}


def test_completion_in_a_broken_workspace_offers_nothing_and_says_nothing(place):
    place.system("deedbook.yaml", "id: [\n")
    assert complete(place, "call", "ech") == set()


@pytest.mark.parametrize("kind", ["fifo", "folder"])
def test_ledger_that_is_no_file_is_a_fault_among_the_others_and_is_not_passed_over(place, kind):
    place.here("call", "echo", "--args", '{"text": "hi"}', status=0)
    ledger = place.ledger()
    ledger.rename(ledger.with_name("moved"))
    {"fifo": lambda: os.mkfifo(ledger), "folder": ledger.mkdir}[kind]()
    assert any("expected a regular file" in str(check) for check in faults(place))
    assert "[PATH_REFUSED]" in place.run("whatif", "--all", "--system", ".", status=1).err


# --- what a workspace stands on ---------------------------------------------------------------------------------------


def test_script_hook_is_no_fault(place):
    place.write("scripts/yes.sh", """echo '{"decision": "allow"}'\n""")
    place.system(
        "hooks/yes.yaml",
        HOOK.replace("{hook: guard}", "{script: [sh, scripts/yes.sh]}").replace("id: guard", "id: yes"),
    )
    assert place.here("doctor", status=0).out.splitlines()[-1] == "all is well"


def test_changed_code_of_a_plugin_is_a_fault_where_it_is_pinned(place):
    place.offer("hooks", "guard", GUARD)
    place.system("hooks/guard.yaml", HOOK)
    place.configure("lock: auto", "lock: required")
    place.run("lock", "--editable", status=0)
    checks(place)
    code = next(place.path.parent.glob("site-packages/offered_guard.py"))
    code.write_text(code.read_text() + "# other\n")
    (found,) = faults(place)
    assert found["name"] == "lock"
    assert "offered" in found["found"]


def test_variable_of_a_secret_that_is_not_set_is_named(place):
    place.offer("hooks", "guard", GUARD.replace("pass", 'host.secret("token")'))
    place.system("hooks/guard.yaml", HOOK)
    place.configure("profile: local\n", "profile: local\nsecrets: {token: {env: DOCTOR_TOKEN}}\n")
    (found,) = faults(place)
    assert "DOCTOR_TOKEN" in found["found"]
    assert "set the environment variable" in found["fix"]


def test_session_without_an_end_is_named_with_how_to_close_it(used, tmp_path):
    place = Place(Path(copytree(used.path, tmp_path / "workspace")))
    (session,) = place.sessions()
    ledger = place.ledger(session)
    *lines, _ = ledger.read_bytes().splitlines(keepends=True)
    ledger.write_bytes(b"".join(lines))
    found = json.loads(place.here("doctor", "--json").out)["checks"]
    (note,) = [check for check in found if check["name"] == "session"]
    assert (note["level"], session in note["found"]) == ("note", True)
    assert note["fix"] == f"deedbook sessions close {session}"


ASKING = """
    schema_version: v1
    principals: {ada: {roles: [reader]}}
    abilities:
      echo: {summary: Echo a text back., handler: {tool: echo}, tags: [approval-gate]}
    policies:
      baseline: {kind: rules, rules: [{match: {effects: [write]}, then: ask}], default: allow}
"""


def test_ask_that_nobody_can_answer_is_noted(tmp_path):
    place = Place(tmp_path / "asking")
    place.system("deedbook.yaml", ASKING)
    (note,) = [check for check in checks(place) if check["name"] == "approval"]
    assert note["level"] == "note"
    assert ".system/deedbook.yaml:7, .system/deedbook.yaml:5" in note["found"]
    place.configure("policies:", "agents: {claude-code: {}}\npolicies:")
    assert "approval" not in {check["name"] for check in checks(place)}


def test_records_are_not_checked_without_the_audit(place):
    """Doctor names the distribution; the checks of the kernel itself are made all the same."""
    place.here("call", "echo", "--args", '{"text": "hi"}', status=0)
    others = discover(each for each in distributions() if each.name != "deedbook-audit")
    found = list(examine(place.path, others, lambda: read_workspace(place.path)))
    (check,) = [each for each in found if each.name == "audit"]
    assert (check.level, check.found, check.fix) == ("note", "not checked", "pip install deedbook-audit")
    assert {each.name: each.level for each in found}["charter"] == "ok"


def charter(place, status=1):
    return next(check for check in checks(place, status) if check["name"] == "charter")


def test_charter_in_force_that_no_event_names_is_a_fault(place):
    place.here("call", "echo", "--args", '{"text": "hi"}', status=0)
    assert charter(place, 0)["level"] == "ok"
    current = place.path / ".deedbook/charters/current.json"
    digest = json.loads(current.read_bytes())["charter"]
    charters = current.parent
    document = json.loads((charters / digest / "charter.json").read_bytes())
    forged = Charter.of({**document, "enforcement": "observe"})
    (charters / forged.digest).mkdir()
    (charters / forged.digest / "charter.json").write_bytes(forged.raw)
    current.write_text(json.dumps({"charter": forged.digest}))
    (found,) = faults(place)
    assert found["name"] == "charter"
    assert f"a ledger.charter that names {forged.digest}, found none" in found["found"]


def test_charter_whose_record_is_not_authentic_is_noted(place):
    place.here("call", "echo", "--args", '{"text": "hi"}', status=0)
    current = place.path / ".deedbook/charters/current.json"
    current.write_text(json.dumps({"charter": json.loads(current.read_bytes())["charter"]}))
    found = charter(place, 0)
    assert (found["level"], "your key does not authenticate" in found["found"]) == ("note", True)
