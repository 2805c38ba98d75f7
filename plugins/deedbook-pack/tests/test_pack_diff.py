"""`pack diff` shows what an upgrade changes in the charter and in recorded decisions; `pack test` and `pack list`."""

import importlib_metadata
import packfiles
import packing
import pytest
from commandline import Place, starter

from deedbook import open_kernel
from deedbook_pack.building import build_wheel

STRICTER = packfiles.QUIET.replace(
    "    default",
    "      - {match: {abilities: [echo], args: {/text: secret}}, then: ask, reason: a secret}\n    default",
)
LOOSER = packfiles.QUIET.replace('like: "*!"', 'like: "*!!"')


@pytest.fixture
def place(tmp_path, monkeypatch) -> Place:
    """Give a starter that uses an installed pack, and in which four calls were decided."""
    site = tmp_path / "site"
    packing.unpack(build_wheel(packfiles.write(tmp_path / "house", packfiles.FILES), tmp_path / "dist").path, site)
    monkeypatch.syspath_prepend(str(site))
    importlib_metadata.MetadataPathFinder.invalidate_caches()
    made = starter(tmp_path / "workspace")
    made.configure("schema_version: v1\n", "schema_version: v1\npacks: [house]\n")
    with open_kernel(made.path) as kernel, kernel.session() as session:
        for text in ("hi", "secret", "hi!", "hi!!"):
            session.call("echo", {"text": text})
    return made


@pytest.mark.parametrize(
    ("policy", "totals", "change", "was", "now", "decider", "rule"),
    [
        (STRICTER, {"same": 3, "asks": 1}, "asks", "allow", "ask", "now", 7),
        (LOOSER, {"same": 3, "allowed": 1}, "allowed", "deny", "allow", "was", 6),
    ],
)
def test_an_upgrade_names_the_recorded_decisions_that_change_and_the_rule(
    place, tmp_path, policy, totals, change, was, now, decider, rule
):
    packfiles.write(tmp_path / "next" / "house", {**packfiles.FILES, "policies/quiet.yaml": policy}, version="2.0")
    files = {"policies/quiet.test.yaml": packfiles.CASES.replace("hi!", "hi!!")}
    folder = packfiles.write(tmp_path / "next" / "house", files, version="2.0")
    for new in (str(folder), str(build_wheel(folder, tmp_path / "dist").path)):
        told = place.here("pack", "diff", "house", new, "--json", status=1).fits("output_pack_diff_v1")
        assert {name: count for name, count in told["totals"].items() if count} == totals
        (changed,) = told["changes"]
        assert (changed["change"], changed["was"]["outcome"], changed["now"]["outcome"]) == (change, was, now)
        assert changed[decider]["by"]["policy"] == "house-quiet"
        assert changed[decider]["by"]["rule"].endswith(f"): policies/quiet.yaml:{rule}")
        assert (told["versions"]["old"]["version"], told["versions"]["new"]["version"]) == ("1.0", "2.0")
        assert told["sessions"] == 1
    place.here("pack", "diff", "house", str(folder), "--exit-zero", status=0)
    told = place.here("pack", "diff", "house", str(folder), status=1).out
    assert "house (deedbook-pack-house 1.0) → house (deedbook-pack-house 2.0)" in told
    assert "charter looser: policy house-quiet: rule " in told
    assert f"policy house-quiet, pack house (deedbook-pack-house {'2' if decider == 'now' else '1'}.0): " in told
    back = place.here("pack", "diff", str(folder), "house", "--json", status=1).json
    assert {changed["now"]["outcome"] for changed in back["changes"]} == {was}


def test_a_change_of_the_workspace_is_not_due_to_the_pack(place, tmp_path):
    same = packfiles.write(tmp_path / "next" / "house", packfiles.FILES, version="1.1")
    place.system(
        "policies/silent.yaml", "schema_version: v1\nid: silent\nkind: rules\nmatch: {kind: [tool]}\nrules: []\n"
    )
    told = place.here("pack", "diff", "house", str(same), "--json", status=0).json
    assert (told["totals"]["same"], told["changed"]) == (4, 0)


LOOPS = """\
    schema_version: v1
    id: house-loops
    kind: loop-halt
    rules:
      - {when: generation.number >= 2, then: deny, reason: enough}
    default: allow
"""
CYCLE = "---\nschema_version: v1\nid: turn\nphases: [round]\nentry_phase: round\npolicies: [house-loops]\n---\n"
ROUND = '---\nschema_version: v1\nid: round\nadvance_signal: "false"\n---\n'


@pytest.mark.parametrize(
    ("text", "change", "now"),
    [("number >= 1", "tighter", {"decision": "deny", "reason": "sooner"}), ("number >= 3", "looser", None)],
)
def test_an_upgrade_names_the_decisions_about_subjects_that_change(place, tmp_path, text, change, now):
    """A cycle asked after its first and its second generation."""
    first = packfiles.write(tmp_path / "first" / "house", {**packfiles.FILES, "policies/loops.yaml": LOOPS})
    packing.unpack(build_wheel(first, tmp_path / "dist2").path, tmp_path / "site")
    importlib_metadata.MetadataPathFinder.invalidate_caches()
    place.system("workflows/cycles/turn.md", CYCLE)
    place.system("workflows/phases/round.md", ROUND)
    with open_kernel(place.path) as kernel, kernel.session() as session:
        session.call("workflow/turn", {"request": "go round"})
    policy = LOOPS.replace("number >= 2", text).replace("enough", "sooner" if now else "enough")
    other = packfiles.write(
        tmp_path / "next" / "house", {**packfiles.FILES, "policies/loops.yaml": policy}, version="2.0"
    )
    told = place.here("pack", "diff", "house", str(other), "--json", status=1).fits("output_pack_diff_v1")
    changes = told["subjects"]["changes"]
    assert told["changed"] == 0
    assert [each["change"] for each in changes][:1] == [change]
    assert {each["subject"] for each in changes} == {"generation"}
    assert changes[0]["was"]["decision"] == ("allow" if now else "deny")
    assert changes[0]["now"]["decision"] == ("deny" if now else "allow")
    assert "about subjects judged again: " in place.here("pack", "diff", "house", str(other), status=1).out
    same = place.here("pack", "diff", "house", str(first), "--json", status=0).json
    assert same["subjects"]["totals"]["same"] == 2


def test_without_a_workspace_only_the_rules_are_compared(tmp_path):
    old = packfiles.write(tmp_path / "old", packfiles.FILES)
    packfiles.write(tmp_path / "new", {**packfiles.FILES, "policies/quiet.yaml": STRICTER}, version="2.0")
    told = Place(tmp_path).here("pack", "diff", "./old", "./new", "--json", status=0).fits("output_pack_diff_v1")
    assert (told["in_workspace"], told["sessions"]) == (False, 0)
    assert [text for text in told["charter_changes"]["looser"] if text.startswith("policy house-quiet: rule ")]
    text = (old / "pack.yaml").read_text().replace("name: house", "name: other")
    (old / "pack.yaml").write_text(text)
    refused = Place(tmp_path).here("pack", "diff", "./old", "./new", status=2).err
    assert "other and house are two packs" in refused


def test_list_tells_version_digest_contents_and_effect(place):
    (pack,) = place.here("pack", "list", "--json", status=0).fits("output_pack_list_v1")["packs"]
    assert (pack["name"], pack["version"], pack["rules"], pack["cases"]) == ("house", "1.0", 1, 2)
    assert pack["contains"]["policies"] == ["house-quiet"]
    assert (pack["looser"], pack["tighter"]) == ([], ["policy house-quiet is new"])
    assert len(pack["digest"]) == 64
    assert "house  deedbook-pack-house 1.0  sha256 " in place.here("pack", "list", status=0).out


def test_cases_run_alone_and_in_the_workspace_that_uses_the_pack(place, tmp_path):
    told = place.here("pack", "test", "house", "--json", status=0).fits("output_pack_test_v1")
    assert [(run["where"], run["ok"], len(run["cases"])) for run in told["runs"]] == [
        ("scratch", True, 2),
        ("workspace", True, 2),
    ]
    assert told["runs"][0]["coverage"]["percent"] == 100
    place.system(
        "policies/silent.yaml", "schema_version: v1\nid: silent\nkind: rules\nmatch: {kind: [tool]}\nrules: []\n"
    )
    text = place.here("pack", "test", "house", status=1).out
    assert "house (deedbook-pack-house 1.0), alone: 2 of 2 cases passed; 2 of 2 rules and defaults decided" in text
    assert "FAILED talking (pack house (deedbook-pack-house 1.0): policies/quiet.test.yaml:4)" in text
    assert "in this workspace: 1 of 2 cases passed" in text


def test_cases_about_abilities_that_the_workspace_lacks_are_skipped(place, tmp_path):
    other = Place(tmp_path / "other")
    other.system("deedbook.yaml", "schema_version: v1\npacks: [house]\n")
    told = other.here("pack", "test", "house", "--json", status=0).json
    assert told["runs"][1]["skipped"] == ["shouting", "talking"]
    policy = other.here("policy", "test", "--coverage", "100", status=0)
    assert "2 cases of packs left out: this workspace lacks the abilities" in policy.err
    assert "never decides" not in other.here("policy", "list", status=0).err


def test_pack_without_cases_says_so(tmp_path):
    packfiles.write(tmp_path / "house", {"policies/quiet.yaml": packfiles.QUIET, "pack.test.yaml": packfiles.SETTINGS})
    assert "alone: no cases; 0 of 2 rules" in Place(tmp_path).here("pack", "test", "./house", status=0).out


def test_coverage_is_required_of_the_pack_alone(tmp_path):
    packfiles.write(tmp_path / "house", {**packfiles.FILES, "policies/quiet.yaml": STRICTER})
    place = Place(tmp_path)
    told = place.here("pack", "test", "./house", "--coverage", "90", status=1)
    assert "never decided: rule 2 of house-quiet (house/policies/quiet.yaml:7)" in told.out
    assert "the cases of house cover 67 % of its rules; 90 % are required" in told.err
    place.here("pack", "test", "./house", "--coverage", "60", status=0)
