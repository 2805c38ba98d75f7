"""A pack that hides instructions: no source with a character that a person does not see starts, and lint shows each."""

import pytest
from commandline import Place

HIDDEN = {
    "zero width": "\u200b",
    "tags": "\U000e0069\U000e0067",
    "override": "\u202e",
    "escape": "\x1b[8m",
    "hyphen": "\xad",
}
SKILL = "---\nname: tidy\ndescription: Tidy{0} a folder.\n---\nDo{1} it.\n"
ABILITY = "schema_version: v1\nid: say\nsummary: {0}\nhandler: {{tool: echo}}\nschema_in: {{description: {1}}}\n"
CARD = "identity: orion\ndomain: work\nstate: {skills: skills.md, goals: goals.md}\n"


@pytest.fixture
def small(tmp_path) -> Place:
    place = Place(tmp_path / "workspace")
    place.system("deedbook.yaml", "schema_version: v1\n")
    return place


def lint(place: Place) -> str:
    return place.here("registry", "lint", status=1).out


@pytest.mark.parametrize("char", HIDDEN.values(), ids=HIDDEN)
def test_skill_with_a_hidden_character_is_set_aside_with_its_place(small, char):
    small.system("skills/tidy/SKILL.md", SKILL.format("", char))
    small.system("skills/other/SKILL.md", SKILL.format(char, "").replace("tidy", "other"))
    small.system("skills/fine/SKILL.md", SKILL.format("", "\u2764\ufe0f\u200d\U0001f525").replace("tidy", "fine"))
    shown = small.here("skills", status=0)
    text = shown.out + shown.err
    assert f"skills/tidy/SKILL.md:5:3: the character U+{ord(char[0]):04X}" in text
    assert "skills/other/SKILL.md:3:18: the character" in text
    assert "fine" in text
    assert char not in text


@pytest.mark.parametrize("text", ['"say\\u200bit"', '"say\\U000e0041"', '"\\u202esay"', '"\\e[8msay"'])
def test_escape_for_a_hidden_character_in_a_text_for_models_is_an_error(small, text):
    small.system("registry/low-level/say.yaml", ABILITY.format(text, "Plain."))
    assert "say.yaml:3:1: /summary holds the character U+" in lint(small)
    small.system("registry/low-level/say.yaml", ABILITY.format("Plain.", text))
    assert "/description holds the character U+" in lint(small)
    small.system("skills/tidy/SKILL.md", SKILL.replace("Tidy{0} a folder.", text).format("", ""))
    small.system("registry/low-level/say.yaml", ABILITY.format("Plain.", "Plain."))
    shown = small.here("skills", status=0)
    assert "the character U+" in shown.out + shown.err


def test_pattern_of_a_schema_may_name_a_hidden_character(small):
    small.system("registry/low-level/say.yaml", ABILITY.format("Plain.", 'x, pattern: "[^\\u200b\\u202e]"'))
    small.here("registry", "lint", status=0)


@pytest.mark.parametrize(
    "path", ["agents/lead.md", "agents/orion/persona.md", "registry/low-level/say.yaml", "deedbook.yaml"]
)
@pytest.mark.parametrize("char", HIDDEN.values(), ids=HIDDEN)
def test_source_with_a_hidden_character_does_not_start(small, path, char):
    small.system("agents/orion/.agent", CARD)
    for each in ("skills.md", "goals.md", "persona.md"):
        small.system(f"agents/orion/{each}", "# None yet\n")
    small.system(path, f"# a comment\n# another{char}\n")
    found = lint(small)
    assert f"{path}:2:10: the character U+{ord(char[0]):04X}" in found
    assert char not in found


def test_every_hidden_character_of_a_file_is_shown_and_no_more_than_twenty(small):
    small.system("agents/lead.md", "a\u200b\n" * 30)
    assert lint(small).count("ZERO WIDTH SPACE") == 20


def test_texts_in_other_scripts_start(small):
    persian, family = "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "\U0001f468\u200d\U0001f469\u200d\U0001f467"
    small.system("skills/tidy/SKILL.md", SKILL.format(f" {persian} \u05e9\u05dc\u05d5\u05dd\u200f", f" {family}"))
    small.system("registry/low-level/say.yaml", ABILITY.format(persian, family))
    small.here("registry", "lint", status=0)
    assert "tidy" in small.here("skills", status=0).out
