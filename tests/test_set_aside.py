"""Skills that cannot be read are set aside: not offered, recorded, named at every start; one that is named is not."""

import os

import pytest
import workshop

from deedbook import Skill, open_kernel
from deedbook.charter.shape import wrong_shape
from deedbook.contract import Failed, GateSpec

BAD = "---\nname: bad\n---\n"
GOOD = "---\nname: good\ndescription: Does good.\n---\nBody.\n"
WHY = ".system/skills/bad/SKILL.md:1:1: description: a text of 1 to 1024 characters is needed"


@pytest.fixture
def shop(tmp_path):
    made = workshop.bench(tmp_path)
    yield made
    made.withdraw()


@pytest.fixture
def real(place):
    """Give the starter with one skill that cannot be read."""
    place.system("skills/bad/SKILL.md", BAD)
    return place


def test_a_skill_that_cannot_be_read_is_not_offered_and_the_charter_says_why(real):
    with open_kernel(real.path) as kernel:
        assert sorted(kernel.bindings.skills) == ["fix", "greet", "survey"]
        document = kernel.active_charter.charter.document
    assert document["set_aside"] == {".system/skills/bad/SKILL.md": {"read": True, "why": [WHY]}}
    assert ".system/skills/bad/SKILL.md" in document["sources"]


def test_a_workspace_whose_skills_can_be_read_says_nothing_of_it(place):
    with open_kernel(place.path) as kernel:
        document = kernel.active_charter.charter.document
    assert "set_aside" not in document
    assert set(document["skills"]["greet"]) == {"description", "body", "allowed", "triggers", "metadata", "source"}


def test_every_start_and_every_list_names_it(real):
    told = f"skill set aside: {WHY}"
    for args in (("call", "echo", "--args", '{"text":"x"}'), ("run", "Say hello to Ada"), ("lock",), ("skills",)):
        assert told in real.run(*args, status=0).err
        assert told in real.run(*args, status=0).err, "a start where nothing changed says so, too"
    assert f".system/skills/bad/SKILL.md  set aside\n  {WHY}\n" in real.run("skills", "lint", status=0).out
    aside = real.run("skills", "lint", "--json", status=0).fits("output_skills_v1")["set_aside"]
    assert aside == [{"file": ".system/skills/bad/SKILL.md", "why": [WHY]}]
    assert f"set aside: {WHY}" in real.run("doctor").out


def test_one_that_is_corrected_is_offered_at_the_next_start(real):
    real.run("skills", status=0)
    real.system("skills/bad/SKILL.md", GOOD.replace("good", "bad"))
    again = real.run("run", "bad", status=None)
    assert "set aside" not in again.err
    assert "bad" in real.run("skills", status=0).out


@pytest.mark.parametrize("what", ["link", "pipe", "folder link"])
def test_a_file_that_is_none_is_set_aside_and_noticed_when_it_becomes_one(place, what):
    folder = place.path / ".system/skills/bad"
    if what == "folder link":
        folder.symlink_to(place.path)
    else:
        folder.mkdir()
        file = folder / "SKILL.md"
        os.mkfifo(file) if what == "pipe" else file.symlink_to("/etc/hostname")
    for _ in range(2):
        with open_kernel(place.path) as kernel:
            (entry,) = kernel.active_charter.charter.document["set_aside"].values()
            assert entry["read"] is False
            assert "regular file" in entry["why"][0]
    (folder if what == "folder link" else file).unlink()
    place.system("skills/bad/SKILL.md", GOOD.replace("good", "bad"))
    with open_kernel(place.path) as kernel:
        assert "bad" in kernel.bindings.skills


def test_a_name_that_two_folders_claim_goes_to_neither(place):
    place.system("deedbook.yaml", (place.path / ".system/deedbook.yaml").read_text() + "roots: {skills: [more]}\n")
    (place.path / "more/greet").mkdir(parents=True)
    (place.path / "more/greet/SKILL.md").write_text(GOOD.replace("good", "greet"))
    with open_kernel(place.path) as kernel:
        assert sorted(kernel.bindings.skills) == ["fix", "survey"]
        assert len(kernel.active_charter.charter.set_aside) == 2


def test_with_a_lock_that_is_required_it_is_pinned_and_a_correction_is_a_change(shop):
    shop.offer("skill", "markdown", loader(Failed("SOURCE_INVALID", WHY, source=".system/skills/bad/SKILL.md")))
    shop.skill("bad", BAD)
    shop.settings("lock: required\n")
    shop.lock()
    assert shop.open().charter.set_aside == [WHY]
    shop.skill("bad", GOOD)
    assert [code for code, _, _ in shop.faults(shop.open)] == ["CHARTER_CHANGED"]


# --- one that somebody names ------------------------------------------------------------------------------------------

GUIDE = "# Where\n\n## Bad things\n\nSee [it](skills/bad/SKILL.md).\n"
POLICY = "rules:\n  - {match: {abilities: [echo]}, when: 'skill == \"bad\"', then: allow}\n"


@pytest.mark.parametrize("how", ["required", "linked", "condition", "memory"])
def test_a_skill_that_somebody_names_stops_the_start(real, how):
    if how == "required":
        text = (real.path / ".system/deedbook.yaml").read_text()
        real.system("deedbook.yaml", f"{text}skills: {{required: [greet, bad]}}\n")
    elif how == "linked":
        real.system("ROUTING.md", GUIDE)
    elif how == "memory":
        text = (real.path / ".system/deedbook.yaml").read_text()
        real.system("deedbook.yaml", f"{text}memory: {{zones: {{decision: {{read: [{{skills: [bad]}}]}}}}}}\n")
    else:
        real.system("policies/skilled.yaml", f"schema_version: v1\nid: skilled\nkind: rules\n{POLICY}")
    refused = real.run("lock", status=1).err
    assert f"error: {WHY}" in refused
    assert refused.count("bad") == 1, "one fault, said once"


def test_a_required_skill_that_is_not_there_stops_the_start(real):
    text = (real.path / ".system/deedbook.yaml").read_text()
    real.system("deedbook.yaml", f"{text}skills: {{required: [greeet]}}\n")
    refused = real.run("lock", status=1).err
    line = text.count("\n") + 1
    assert f".system/deedbook.yaml:{line}:21: skill 'greeet' is required and is not offered" in refused
    assert 'did you mean "greet"?' in refused


def test_a_link_to_a_skill_that_is_a_link_stops_the_start(place):
    (place.path / ".system/skills/bad").symlink_to(place.path)
    place.system("ROUTING.md", GUIDE)
    assert "error: .system/skills/bad: is a link" in place.run("lock", status=1).err


# --- what loaders say -------------------------------------------------------------------------------------------------


def loader(*found):
    class Loader:
        spec = GateSpec(settings={"type": "object"})

        def __init__(self, settings, host):
            pass

        def __call__(self):
            return found

    return Loader


def test_a_failure_without_a_file_stops_the_start(shop):
    shop.offer("skill", "more", loader(Failed("SOURCE_INVALID", "the wiki does not answer")))
    shop.settings("skills: {loaders: [more]}\n")
    assert [why for _, _, why in shop.faults()] == ["the wiki does not answer"]


def test_what_fails_beside_it_is_offered(shop):
    shop.write("skills/a.txt", "x")
    aside, good = ".system/skills/b.txt", Skill("a", "d", "", source=".system/skills/a.txt")
    shop.write("skills/b.txt", "x")
    shop.offer("skill", "more", loader(Failed("SOURCE_INVALID", f"{aside}: no", source=aside), good))
    shop.settings("skills: {loaders: [more]}\n")
    document = shop.compile().document
    assert list(document["skills"]) == ["a"]
    assert document["set_aside"] == {aside: {"read": True, "why": [f"{aside}: no"]}}


def test_reasons_are_bounded_in_number_and_length(shop):
    shop.write("skills/b.txt", "x")
    source = ".system/skills/b.txt"
    shop.offer("skill", "more", loader(*(Failed("X", f"{n}{'x' * 600}", source=source) for n in range(30))))
    shop.settings("skills: {loaders: [more]}\n")
    (entry,) = shop.compile().document["set_aside"].values()
    assert (len(entry["why"]), max(map(len, entry["why"]))) == (20, 500)


# --- a kept charter ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("set_aside", []),
        ("set_aside", {"x": {}}),
        ("set_aside", {"x": {"read": True, "why": "text"}}),
        ("skills", {"greet": {"commands": {"shell": ["git:*"]}}}),
        ("skills", {"greet": {"without": ["Bash"]}}),
    ],
)
def test_a_kept_charter_of_another_shape_is_refused_before_anything_of_it_is_used(real, member, value):
    with open_kernel(real.path) as kernel:
        document = dict(kernel.active_charter.charter.document)
    assert wrong_shape(document) == ""
    old = document[member]
    greet = {**old.get("greet", {}), **value["greet"]} if member == "skills" else None
    document[member] = {**old, "greet": greet} if greet else value
    assert wrong_shape(document).startswith(f"$.{member}")
