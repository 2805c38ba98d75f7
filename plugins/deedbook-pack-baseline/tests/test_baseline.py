"""The three strengths of the baseline: their rules, their tests, and what they decide about real calls."""

import json
from contextlib import ExitStack
from pathlib import Path

import attrs
import pytest
from commandline import Place, starter

from deedbook.kernel import bindings_for_judging
from deedbook.plugins.plugins import discover
from deedbook.policy.gates import RANK
from deedbook.workspace.workspace import load_workspace
from deedbook_author import policy_cases
from deedbook_pack.cases import read_policy_cases
from deedbook_pack.lint import lint_package
from deedbook_pack.packages import open_packs
from deedbook_pack.scratch import open_scratch

PROJECT = Path(__file__).parents[1]
STRENGTHS = ("baseline-observe", "baseline", "baseline-strict")
WRITE = {"text": "x", "expected_hash": "", "who": "ada", "why": "to try"}
CALLS = {
    ("claude-code/Bash", ("command", "ls")): ("allow", "ask", "ask"),
    ("claude-code/Bash", ("command", "npm start"), ("run_in_background", True)): ("allow", "ask", "deny"),
    ("claude-code/Edit", ("file_path", "src/a.py")): ("allow", "allow", "ask"),
    ("claude-code/Edit", ("file_path", "src/../.system/deedbook.yaml")): ("allow", "ask", "deny"),
    ("claude-code/Edit", ("file_path", ".systematic/a.py")): ("allow", "allow", "ask"),
    ("claude-code/Edit", ("file_path", "/etc/hosts")): ("allow", "ask", "deny"),
    ("claude-code/Read", ("file_path", "src/a.py")): ("allow", "allow", "allow"),
    ("claude-code/Read", ("file_path", "src/../.env")): ("allow", "ask", "deny"),
    ("claude-code/WebFetch", ("url", "https://example.org"), ("prompt", "read")): ("allow", "ask", "deny"),
    ("gemini-cli/run_shell_command", ("command", "ls")): ("allow", "ask", "ask"),
    ("codex/apply_patch", ("command", "*** Begin Patch")): ("allow", "ask", "ask"),
    ("file-read", ("path", "README.md")): ("allow", "allow", "allow"),
    ("file-read", ("path", "keys/tls.pem")): ("allow", "ask", "deny"),
    ("file-write", ("path", "reports/a.md"), *WRITE.items()): ("allow", "allow", "ask"),
    ("file-write", ("path", ".git/hooks/pre-commit"), *WRITE.items()): ("allow", "ask", "deny"),
    ("echo", ("text", "hi")): ("allow", "allow", "allow"),
}


@pytest.fixture(scope="module")
def catalogue():
    return discover()


def test_no_rule_is_dead_and_each_has_a_test(catalogue):
    found = lint_package(str(PROJECT), catalogue)
    assert [title.split()[0] for title, _ in found] == sorted(STRENGTHS)
    assert [finding for _, some in found for finding in some] == []


def test_a_stricter_strength_allows_no_more(catalogue):
    """Every case of every strength is decided at least as strictly by the next one."""
    with ExitStack() as held:
        packs = {pack.name: pack for pack in open_packs(str(PROJECT), held, catalogue)}
        cases = {
            (case.ability, str(case.args)): case
            for pack in packs.values()
            for case in read_policy_cases(pack)
            if not case.ability.startswith("lenient/")
        }
        got = [outcomes(packs[name], cases.values(), catalogue, held) for name in STRENGTHS]
    assert len(cases) > 40
    for each in cases:
        assert got[0][each] <= got[1][each] <= got[2][each], each
    # undeclared tools have a tag that asks, whatever a policy says (unknown_tools)
    assert {ability for (ability, _), rank in got[0].items() if rank} == {"claude-code/mcp", "claude-code/other"}


def outcomes(pack, cases, catalogue, held):
    """Return the rank of the outcome of each case, with all policies of *pack*."""
    scratch = held.enter_context(open_scratch(pack, catalogue))
    source = load_workspace(scratch.root, catalogue=scratch.catalogue)
    bindings = held.enter_context(bindings_for_judging(source, scratch.catalogue))
    names = [name for name in bindings.charter.document["policies"] if name.startswith("baseline")]
    found = {}
    for case in cases:
        decided = policy_cases.run_case(bindings, attrs.evolve(case, policies=tuple(names)))
        found[case.ability, str(case.args)] = RANK[decided.got]
    return found


@pytest.mark.parametrize("strength", STRENGTHS)
def test_strengths_decide_about_calls_of_coding_agents_and_tools(tmp_path, strength, catalogue):
    place = Place(tmp_path)
    place.here("init", "--pack", strength, status=0)
    place.configure("abilities:\n", "agents: {claude-code: {}, codex: {}, gemini-cli: {}}\nabilities:\n")
    with bindings_for_judging(load_workspace(tmp_path, catalogue=catalogue), catalogue) as bindings:
        for (ability, *args), expected in CALLS.items():
            case = policy_cases.Case(name="", place="", ability=ability, args=dict(args), expect="allow")
            assert policy_cases.run_case(bindings, case).got == expected[STRENGTHS.index(strength)], (ability, args)
    told = place.here("explain", "claude-code/Bash", "--args", '{"command": "ls"}', "--json").json
    assert told["outcome"] == CALLS["claude-code/Bash", ("command", "ls")][STRENGTHS.index(strength)]
    tested = place.here("policy", "test", status=0)
    assert "left out" in tested.err  # some cases are about an agent and abilities that are not declared here


def test_a_policy_of_the_workspace_and_the_baseline_are_asked_together(tmp_path):
    place = starter(tmp_path / "workspace")
    place.configure("schema_version: v1\n", "schema_version: v1\npacks: [baseline]\n")
    args = json.dumps({"path": "notes/a.md", **WRITE})
    assert "policy baseline" in place.here("call", "file-write", "--args", args, status=3).err


def test_only_one_strength_is_in_force(tmp_path):
    place = starter(tmp_path / "workspace")
    place.configure("schema_version: v1\n", "schema_version: v1\npacks: [baseline, baseline-strict]\n")
    refused = place.here("lock", status=1).err
    assert '"baseline-files" is also in pack baseline (deedbook-pack-baseline ' in refused


def test_init_writes_a_workspace_whose_first_call_is_gated(tmp_path):
    place = Place(tmp_path)
    assert "deedbook call file-read path=server.key" in place.here("init", "--pack", "baseline", status=0).err
    place.write("notes.md", "hi\n")
    place.write(".env", "TOKEN=1\n")
    assert place.here("call", "file-read", "path=notes.md", status=0).json["text"] == "hi\n"
    asked = place.here("call", "file-read", "path=.env", status=3).err
    assert "this file usually contains secrets" in asked
    assert "(by policy baseline-files, pack baseline (deedbook-pack-baseline " in asked
    place.here("policy", "test", "--coverage", "100", status=0)
    place.configure("packs: [baseline]", "packs: [baseline-strict]")
    assert (
        "denied: file-read: this file usually contains secrets"
        in place.here("call", "file-read", "path=.env", status=3).err
    )


@pytest.mark.parametrize("strength", STRENGTHS)
def test_init_adds_a_pack_to_the_starter(tmp_path, strength):
    place = Place(tmp_path)
    place.here("init", "--full", "--pack", strength, status=0)
    assert place.here("pack", "list", "--json", status=0).fits("output_pack_list_v1")["packs"][0]["name"] == strength
    place.here("policy", "test", "--coverage", "100", status=0)


def test_init_with_an_unknown_pack_writes_nothing(tmp_path):
    place = Place(tmp_path)
    assert 'did you mean "baseline"?' in place.here("init", "--pack", "basline", status=1).err
    assert list(tmp_path.iterdir()) == []
