"""What policies of a pack may loosen: only what the workspace names for that pack."""

import packing
import pytest
from commandline import Place

from deedbook.charter.changes import _policy
from deedbook.policy.gates import LOOSENABLE

BY_MATCH = """\
    schema_version: v1
    id: cleaning
    kind: rules
    match: {tags: [destructive]}
    rules: []
    default: allow
"""
BY_RULE = """\
    schema_version: v1
    id: cleaning
    kind: rules
    match: {kind: [tool]}
    rules:
      - {match: {tags: [destructive]}, then: allow}
      - {match: {}, then: allow}
"""
DENYING = """\
    schema_version: v1
    id: cleaning
    kind: rules
    match: {kind: [tool]}
    rules:
      - {match: {tags: [destructive]}, then: deny, reason: never}
    default: allow
"""
MEMORY = """\
    schema_version: v1
    id: remembering
    kind: rules
    match: {kind: [memory]}
    rules: []
    default: allow
"""
OWN = "policies: {own: {kind: rules, match: {tags: [destructive]}, rules: [], default: allow}}\n"


@pytest.fixture
def small(tmp_path):
    """Give a workspace with an ability that asks because of its tag."""
    place = Place(tmp_path / "workspace")
    place.system("deedbook.yaml", "schema_version: v1\n")
    place.system(
        "registry/low-level/drop.yaml",
        "schema_version: v1\nid: drop\nsummary: Drop.\nhandler: {tool: echo}\ntags: [destructive]\n",
    )
    return place


def use(place, entry, more="", **files):
    packing.installed(place, "acme-policies", {f"policies/{name}.yaml": text for name, text in files.items()})
    place.system("deedbook.yaml", f"schema_version: v1\npacks: [{entry}]\n{more}")


def drop(place, status):
    return place.run("call", "drop", "--args", '{"text": "x"}', status=status)


def loosening(*what):
    return f"{{pack: acme-policies, may_loosen: [{', '.join(what)}]}}"


@pytest.mark.parametrize("policy", [BY_MATCH, BY_RULE])
def test_policy_of_a_pack_lifts_the_question_of_a_tag_only_if_the_workspace_says_so(small, policy):
    for entry in ("acme-policies", loosening(), loosening("irreversible", "memory")):
        use(small, entry, cleaning=policy)
        assert small.run("explain", "drop", "text=x", "--json", status=3).json["code"] == "NEEDS_HUMAN"
    use(small, loosening("destructive"), cleaning=policy)
    drop(small, 0)


def test_policy_of_the_workspace_lifts_the_question_beside_a_pack_that_may_not(small):
    use(small, "acme-policies", OWN, cleaning=BY_MATCH)
    drop(small, 0)


def test_denial_of_a_pack_stays_in_force_whatever_it_may_loosen(small):
    use(small, loosening("destructive"), OWN, cleaning=DENYING)
    assert "never" in drop(small, 3).err


def test_pack_cannot_loosen_what_the_workspace_denies(small):
    use(small, loosening("destructive"), OWN.replace("default: allow", "default: deny"), cleaning=BY_MATCH)
    assert "denied" in drop(small, 3).err


def test_memory_is_denied_if_only_a_pack_allows_it_that_may_not_loosen_it(small):
    memory = "schema_version: v1\nid: memory/read\nkind: memory\nsummary: Read.\nhandler: {tool: memory-read}\n"
    small.system("registry/low-level/read.yaml", memory)
    args = ("explain", "memory/read", "zone=decision", "key=a", "--json")
    use(small, "acme-policies", remembering=MEMORY)
    found = small.run(*args, status=3).json
    assert (found["code"], "add may_loosen: [memory] to the pack" in found["reason"]) == ("GATE_DENIED", True)
    use(small, loosening("memory"), remembering=MEMORY)
    assert small.run(*args, status=0).json["outcome"] == "allow"


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (loosening("approval-gate"), "may_loosen"),
        ("{plugin: acme-policies, may_loosen: [memory]}", "may_loosen"),
        ("{pack: acme-policies, skills: [a]}", "skills"),
        ("{may_loosen: [memory]}", "plugin"),
        ("acme-policies, {pack: acme-policies}", "listed twice"),
    ],
)
def test_wrong_entry_is_refused_with_its_place(small, entry, words):
    use(small, entry, cleaning=BY_MATCH)
    err = small.run("lock", status=1).err
    assert ".system/deedbook.yaml:2:" in err
    assert words in err


def test_lock_shows_what_each_pack_loosens_and_tightens(small):
    use(small, "acme-policies", cleaning=BY_RULE)
    out = small.run("lock", status=0).out
    assert "pack acme-policies (acme-policies 1.0): 0 looser, 1 tighter\n  tighter policy cleaning is new\n" in out
    refused = (
        "  policy cleaning may not lift the question of the tag destructive; to let it, add may_loosen: [destructive]"
    )
    assert refused in out
    use(small, loosening("destructive"), cleaning=BY_RULE)
    out = small.run("lock", status=0).out
    assert "looser  policy cleaning: may loosen destructive" in out
    assert "  looser policy cleaning may lift the question of the tag destructive\n" in out
    (pack,) = small.run("lock", "--json", status=0).fits("output_lock_v1")["packs"]
    assert (pack["name"], pack["may_loosen"]) == ("acme-policies", ["destructive"])


def test_explain_says_why_a_policy_of_a_pack_does_not_lift_the_question(small):
    use(small, "acme-policies", cleaning=BY_MATCH)
    steps = small.run("explain", "drop", "text=x", "--json", status=3).json["steps"]
    assert steps[-1]["step"] == "tag"
    assert "policy cleaning names it, and its pack may not loosen it" in steps[-1]["reason"]


def test_policy_without_the_member_in_an_old_charter_may_loosen_everything():
    entry = {
        "plugin": ["policy", "rules"], "settings": {"rules": []}, "match": None, "reads": [], "pure": True,
        "rewrites": False, "place": "x", "rules": [],
    }  # fmt: skip
    old = {"policies": {"p": entry}}
    new = {"policies": {"p": {**entry, "loosens": ["memory"]}}}
    told = list(_policy("policy p", old["policies"]["p"], new["policies"]["p"]))
    assert [way for way, _ in told] == ["tighter"] * (len(LOOSENABLE) - 1)
