"""`deedbook workflow list|show|lint`, as a person calls them."""

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from commandline import Place

W = ".system/workflows"


@pytest.fixture
def shop(place: Any) -> Place:
    """Return the example workspace."""
    return Place(place("two-phases"))


def edit(shop: Place, path: str, old: str, new: str) -> None:
    file = shop.path / W / path
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))


class Page(HTMLParser):
    """The texts and the tags of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        assert not {"src", "href", "onclick"} & {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


# --- list -------------------------------------------------------------------------------------------------------------


def test_list_shows_each_file_with_its_place(shop):
    lines = shop.here("workflow", "list", status=0).out.splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["cycles", "check"], ["phases", "look"], ["phases", "settle"], ["policies", "gate"],
        ["personas", "reviewer/style"], ["artifacts", "lesson"],
    ]  # fmt: skip
    assert "Check a page and write down what was found" in lines[0]
    assert lines[0].endswith("  .system/workflows/cycles/check.md:3")
    files = shop.here("workflow", "list", "--json", status=0).fits("output_workflow_list_v1")["files"]
    assert files[4]["title"] == "Looks for placeholders that were left in a page."


def test_list_of_a_workspace_without_workflows_says_where_they_go(shop):
    (shop.path / W).rename(shop.path / "elsewhere")
    assert "add a cycle in .system/workflows/cycles/" in shop.here("workflow", "list", status=0).out
    assert shop.here("workflow", "list", "--json", status=0).fits("output_workflow_list_v1")["files"] == []


# --- show -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["check", "workflow/check"])
def test_show_describes_the_phases_in_their_order(shop, name):
    out = shop.here("workflow", "show", name, status=0).out
    assert out.index("1. look: Look for mistakes") < out.index("2. settle: Write down the lesson")
    assert 'advances when  review_aggregate.verdict == "pass"' in out
    assert "bounds     2 runs of a phase in a row, 6 runs in all" in out


def test_show_as_json_fits_its_schema(shop):
    told = shop.here("workflow", "show", "check", "--json", status=0).fits("output_workflow_show_v1")
    assert [phase["id"] for phase in told["phases"]] == ["look", "settle"]
    assert told["phases"][0]["personas"] == ["reviewer/style"]
    assert told["personas"][0]["skill"] == "reviewer-style"


def test_show_as_mermaid_has_an_arrow_for_each_condition(shop):
    out = shop.here("workflow", "show", "check", "--mermaid", status=0).out
    assert out.startswith("flowchart TD\n")
    assert '  p0 -->|"review_aggregate.verdict == #34;pass#34;"| p1\n' in out
    assert '  p0 -->|"review_aggregate.p0_unresolved #62; 10"| abort\n' in out
    assert '  p1["settle<br/>reviewer/style<br/>writes lesson"]\n' in out


def test_show_writes_one_page_that_loads_nothing(shop):
    shop.here("workflow", "show", "check", "--html", "check.html", status=0)
    page = Page((shop.path / "check.html").read_text())
    assert not {"script", "link", "img", "iframe"} & {*page.tags}
    assert {"look", "reviewer/style", "lessons/{date}-{slug}.md"} <= {*page.texts} | {text[3:] for text in page.texts}


@pytest.mark.parametrize(
    ("said", "shown", "limits"),
    [
        ("", "what its tools and the policies allow", False),
        ("    writes: []\n", "nothing", True),
        ("    writes: [docs/**, a]\n", "docs/**, a", True),
    ],
)
def test_show_says_where_a_persona_may_write_as_the_door_decides_it(shop, said, shown, limits):
    persona = shop.path / W / "personas/reviewer/style.md"
    kept = [line for line in persona.read_text().splitlines(keepends=True) if "writes:" not in line]
    persona.write_text("".join(line.replace("  deedbook:\n", f"  deedbook:\n{said}") for line in kept))
    shop.here("workflow", "show", "check", "--html", "check.html", status=0)
    assert shown in Page((shop.path / "check.html").read_text()).texts
    told = shop.here("workflow", "show", "check", "--json", status=0).fits("output_workflow_show_v1")
    assert told["personas"][0]["limits_writes"] is limits
    judged = shop.here("lock", status=0) and shop.here("policy", "list", status=0).out
    assert ("persona-writes" in judged) is limits


def test_text_of_files_cannot_become_markup_or_control_a_terminal(shop):
    edit(shop, "cycles/check.md", "title: Check", 'title: "<script>\\e[2J</script> ')
    edit(shop, "cycles/check.md", "was found", 'was found"')
    edit(shop, "phases/look.md", "Look at the page", "<img src=x> at the page")
    shop.here("workflow", "show", "check", "--html", "check.html", status=0)
    page = (shop.path / "check.html").read_text()
    assert "&lt;script&gt;" in page
    assert "&lt;img src=x&gt;" in page
    assert "\x1b" not in page
    for words in (["show", "check"], ["show", "check", "--json"], ["show", "check", "--mermaid"], ["list"]):
        assert "\x1b" not in shop.here("workflow", *words, status=0).out


@pytest.mark.parametrize(
    ("words", "status", "why"),
    [
        (["show"], 2, "Missing argument"),
        (["show", "chek"], 2, 'did you mean "check"?'),
        (["show", "check", "--mermaid", "--json"], 2, "--mermaid prints a diagram"),
        (["show", "check", "--html", "none/x.html"], 1, "none/x.html: cannot be written"),
        (["lst"], 2, "lst"),
    ],
)
def test_workflow_called_wrongly_says_what_is_wrong(shop, words, status, why):
    assert why in shop.here("workflow", *words, status=status).err


# --- lint -------------------------------------------------------------------------------------------------------------


def test_lint_of_sound_files_has_no_faults(shop):
    assert shop.here("workflow", "lint", status=0).out == "6 workflow files, no faults\n"
    told = shop.here("workflow", "lint", "--json", status=0).fits("output_workflow_lint_v1")
    assert told == {"schema_version": "v1", "ok": True, "files": 6, "faults": [], "notes": []}


def test_lint_reports_every_fault_with_its_place(shop):
    edit(shop, "phases/look.md", "p0_unresolved", "p0_unresolvd")
    edit(shop, "phases/settle.md", "artifact: lesson", "artifact: leson")
    ran = shop.here("workflow", "lint", status=1)
    assert ".system/workflows/phases/look.md:6:31: halt_signal:" in ran.err
    assert ".system/workflows/phases/settle.md:7:11: artifact: leson" in ran.err
    told = shop.here("workflow", "lint", "--json", status=1).fits("output_workflow_lint_v1")
    assert (told["ok"], len(told["faults"])) == (False, 2)


def test_lint_reports_faults_that_only_compiling_finds(shop):
    edit(shop, "policies/gate.md", "effects: [none, read]}", "effects: [none, read]}\n    when: call.abilty == 'x'")
    (fault,) = shop.here("workflow", "lint", "--json", status=1).json["faults"]
    assert fault["place"].startswith(".system/workflows/policies/gate.md:8:")
    assert 'did you mean "ability"?' in fault["message"]


def hear_subjects(shop: Place, kind: str) -> None:
    """Make the policy ``gate`` one of a kind that judges no calls."""
    edit(shop, "policies/gate.md", "match: {kind: tool}\n", "")
    edit(shop, "policies/gate.md", "kind: rules\n", f"kind: {kind}\n")
    edit(shop, "policies/gate.md", "  - match: {effects: [none, read]}\n    then", '  - when: "true"\n    then')


def test_lint_refuses_a_policy_of_calls_without_a_match_that_no_ability_names(shop):
    edit(shop, "policies/gate.md", "match: {kind: tool}\n", "")
    (fault,) = shop.here("workflow", "lint", "--json", status=1).fits("output_workflow_lint_v1")["faults"]
    assert "policy 'gate' guards nothing" in fault["message"]


def test_lint_notes_files_that_nothing_names(shop):
    edit(shop, "phases/settle.md", "artifact: lesson\n", "")
    edit(shop, "cycles/check.md", "policies: [gate]\n", "")
    hear_subjects(shop, "coverage-gating")
    notes = shop.here("workflow", "lint", "--json", status=0).fits("output_workflow_lint_v1")["notes"]
    assert [note["message"] for note in notes] == [
        "no phase names artifacts/lesson", "no cycle or phase names policies/gate",
    ]  # fmt: skip
    assert "lesson-template.md:3: no phase names" in shop.here("workflow", "lint", status=0).out


def test_lint_notes_a_policy_that_is_never_asked(shop):
    hear_subjects(shop, "review-gating")
    (note,) = shop.here("workflow", "lint", "--json", status=0).fits("output_workflow_lint_v1")["notes"]
    assert note["place"] == ".system/workflows/cycles/check.md:10:12"
    assert (
        "gate is never asked here: its kind review-gating judges none of coverage, dispatch, finding" in note["message"]
    )


def test_lint_needs_a_workspace(tmp_path: Path):
    assert "WORKSPACE_NOT_FOUND" in Place(tmp_path).here("workflow", "lint", status=2).err
