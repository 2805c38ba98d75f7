"""Skill loaders in YAML: each is given its settings and a host, and what it yields is checked, whoever it is."""

import pytest
import workshop

from deedbook.contract import Failed, GateSpec, HandlerSpec, Skill

SETTINGS = {"type": "object", "properties": {"folder": {"type": "string"}}, "additionalProperties": False}


def loader(answer):
    class Loader:
        spec = GateSpec(settings=SETTINGS)

        def __init__(self, settings, host):
            self.settings, self.host = settings, host

        def __call__(self):
            return answer(self.settings, self.host)

    return Loader


def text_files(settings, host):
    """Make a skill of each text file."""
    for entry in host.scan(settings["folder"]):
        yield Skill(entry.path.rpartition("/")[2].removesuffix(".txt"), "A text.", "Do.", source=entry.path)


@pytest.fixture
def shop(tmp_path):
    made = workshop.bench(tmp_path)
    made.offer("skill", "texts", loader(text_files))
    yield made
    made.withdraw()


def test_a_loader_named_in_yaml_is_given_its_settings_and_a_host(shop):
    shop.write("skills/a.txt", "x")
    shop.settings("skills: {loaders: [{loader: texts, with: {folder: .system/skills}}]}\n")
    document = shop.compile().document
    assert document["skills"]["a"]["source"] == ".system/skills/a.txt"
    assert document["plugins"]["skill/texts"]["distribution"] == "offered"
    assert ".system/skills/a.txt" in document["sources"]


def test_loaders_are_all_asked_and_names_are_unique_over_them(shop):
    shop.offer("skill", "more", loader(lambda settings, host: [Skill("a", "d", "", source=".system/skills/a.txt")]))
    shop.write("skills/a.txt", "x")
    shop.settings("skills: {loaders: [{loader: texts, with: {folder: .system/skills}}, more]}\n")
    ((code, place, why),) = shop.faults()
    assert (code, place) == ("SOURCE_INVALID", ".system/skills/a.txt")
    assert "skill 'a' is also in .system/skills/a.txt" in why


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("skills: {loaders: [texst]}\n", 'did you mean "texts"?'),
        ("skills: {loaders: [{loader: texts, with: {foldr: x}}]}\n", 'unknown key; did you mean "folder"?'),
    ],
)
def test_a_loader_that_is_missing_or_told_nonsense_is_refused_with_its_place(shop, settings, said):
    shop.settings(settings)
    ((_, place, why),) = shop.faults()
    assert place == ".system/deedbook.yaml:2:20"
    assert said in why


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("skills: {loaders: [texts, texts]}\n", "loader texts is listed twice"),
        ("skills: {loaders: [{loader: markdown, with: {roots: [x]}}]}\n", "roots: {skills: […]}"),
        ("skills: {loaders: []}\n", "loaders"),
        ("skills: {loader: [texts]}\n", "loader"),
    ],
)
def test_loaders_that_contradict_each_other_are_refused(shop, settings, said):
    from deedbook.format.errors import SourceError

    shop.settings(settings)
    with pytest.raises(SourceError, match=__import__("re").escape(said)):
        shop.workspace()


@pytest.mark.parametrize("source", ["notes/a.txt", "/etc/passwd", ".system/skills/../../x", ""])
def test_a_skill_from_a_file_that_nobody_recorded_is_refused(shop, source):
    shop.offer("skill", "more", loader(lambda settings, host: [Skill("a", "d", "", source=source)]))
    shop.settings("skills: {loaders: [more]}\n")
    ((code, _, why),) = shop.faults()
    assert code == "BINDING_INVALID"
    assert "not among the sources" in why


def test_a_skill_from_a_file_of_the_loaders_own_distribution_is_recorded_by_its_digest(shop):
    shop.offer("skill", "more", loader(lambda settings, host: [Skill("a", "d", "", source="offered.py")]))
    shop.settings("skills: {loaders: [more]}\n")
    document = shop.compile().document
    assert document["skills"]["a"]["source"] == "offered.py"
    assert document["plugins"]["skill/more"]["digest"]


def test_a_loader_reaches_no_state_no_secret_and_writes_nothing(shop):
    tried = []

    def nosy(settings, host):
        for attempt in (
            lambda: host.open(".deedbook/x"),
            lambda: host.secret("gh"),
            lambda: host.replace(".system/skills/a.txt", b"x", expected=""),
        ):
            try:
                attempt()
            except Exception as problem:
                tried.append(str(problem))
        return []

    shop.offer("skill", "nosy", loader(nosy))
    shop.settings("secrets: {gh: {env: X}}\nskills: {loaders: [nosy]}\n")
    shop.compile()
    assert len(tried) == 3


def test_a_failure_is_a_fault_and_no_skill_is_passed_over(shop):
    shop.offer("skill", "more", loader(lambda settings, host: [Failed("SOURCE_INVALID", "x.txt:3:1: no")]))
    shop.settings("skills: {loaders: [more]}\n")
    assert [(code, why) for code, _, why in shop.faults()] == [("SOURCE_INVALID", "x.txt:3:1: no")]


# --- what a provider says of a skill ----------------------------------------------------------------------------------

RULES = """\
---
name: greet
description: Greets.
metadata:
  deedbook:
    rules:
      - pattern: hello
        steps:
          - {ability: echo, args: {text: '${nobody}'}}
        answer: done
      - pattern: '(?=x)'
        steps: [{ability: echo}]
        answer: done
      - patern: x
---
"""


def test_rules_that_the_provider_cannot_work_with_are_refused_at_the_lock_with_their_place(place):
    place.system("skills/greet/SKILL.md", RULES)
    refused = place.here("lock", status=1).err
    where = "error: .system/skills/greet/SKILL.md"
    assert f"{where}:9:13: provider 'rules': rule 1: step s1: ${{nobody}} is no group of the pattern" in refused
    assert f"{where}:11:9: provider 'rules': rule 2: pattern is not RE2" in refused
    assert f"{where}:14:9: provider 'rules': rule 3: 'patern' is not known" in refused


def test_a_provider_that_fails_while_it_looks_at_a_skill_is_refused(shop):
    def broken(skill):
        raise SystemExit(3)

    shop.offer("provider", "p", type("P", (workshop.Chat,), {"spec": HandlerSpec(effects="read", check_skill=broken)}))
    shop.offer("skill", "more", loader(lambda settings, host: [Skill("a", "d", "", source="offered.py")]))
    shop.settings("skills: {loaders: [more]}\nprofiles: {local: {models: {standard: {provider: p}}}}\n")
    ((code, place, why),) = shop.faults()
    assert (code, place) == ("PLUGIN_BROKEN", "offered.py")
    assert "cannot check skill 'a': SystemExit" in why
