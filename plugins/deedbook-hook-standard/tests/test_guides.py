"""`ROUTING.md` and `ABILITY.md`: sections by headings, read with the care that all sources get."""

import os

import pytest

from deedbook.contract import GateSpec, hookimpl
from deedbook.format.errors import BindingError, SourceError
from deedbook.format.schema import Schemas, data_folder
from deedbook.workspace.workspace import load_workspace

HEAD = "schema_version: v1\n"
ROUTING = """\
Before the first heading nothing is a section.

# Where things are

- **Triggers:** reports, `monthly figures`, "the numbers", reports

Look into [the reports](../reports/README.md "read me"), [them again](../reports/README.md#june)
and [this](notes.md).

## Empty

## Code: `git/push` & *more*

```sh
# no heading
[no link in here, either](../x)
```

~~~
# none
```
~~~

## Where things are

[out](../../secret) [site](https://example.com/a.md) [root](/etc/passwd) [part](#empty) [up](..) [mail](mailto:a@b)

Setext is no heading
====================
"""


def guides_of(workspace):
    return workspace.sections["routing"].sections


@pytest.fixture(scope="module")
def schemas():
    return Schemas.load(data_folder("schemas"))


@pytest.fixture
def load(tmp_path, schemas):
    """Write files and load the workspace."""

    def loaded(said=HEAD, files=None):
        for path, text in {".system/deedbook.yaml": said, **(files or {})}.items():
            where = tmp_path / path
            where.parent.mkdir(parents=True, exist_ok=True)
            where.write_bytes(text if isinstance(text, bytes) else text.encode())
        return load_workspace(tmp_path, schemas)

    return loaded


def refused(load, *args):
    with pytest.raises(SourceError) as caught:
        load(*args)
    return [str(error) for error in caught.value.errors]


def test_a_section_is_what_stands_under_one_heading(load):
    found = load(files={".system/ROUTING.md": ROUTING})
    assert list(guides_of(found)) == [
        ".system/ROUTING.md#where-things-are",
        ".system/ROUTING.md#code-gitpush--more",
        ".system/ROUTING.md#where-things-are-1",
    ]
    first, code, last = guides_of(found).values()
    assert (first.title, code.title, last.title) == ("Where things are", "Code: git/push & more", "Where things are")
    assert first.text.startswith("- **Triggers:** reports")
    assert "# no heading" in code.text
    assert "=====" in last.text
    assert [each.place for each in (first, code, last)] == [f".system/ROUTING.md:{line}" for line in (3, 12, 24)]


def test_a_section_has_triggers_names_and_links_within_the_workspace(load):
    first, code, last = guides_of(load(files={".system/ROUTING.md": ROUTING})).values()
    assert first.triggers == ("reports", "monthly figures", "the numbers")
    assert first.links == ("reports/README.md", ".system/notes.md")
    assert code.names == ("git/push",)
    assert (last.triggers, last.links, last.lends) == ((), (), False)


def test_documents_are_sources_and_only_ability_md_lends(load):
    text = "# Saving\n\nUse `echo`.\n"
    found = load(files={".system/ABILITY.md": text})
    assert guides_of(found)[".system/ABILITY.md#saving"].lends
    assert ".system/ABILITY.md" in found.digests


def test_more_folders_may_have_documents(load):
    said = HEAD + "roots: {routing: [docs, team/a]}\n"
    found = load(
        said, {"docs/ROUTING.md": "# A\n\nx", "team/a/ABILITY.md": "# B\n\ny", ".system/ROUTING.md": "# C\n\nz"}
    )
    assert list(guides_of(found)) == [
        ".system/ROUTING.md#c",
        "docs/ROUTING.md#a",
        "team/a/ABILITY.md#b",
    ]
    assert set(found.folders) == {".system", "docs", "team/a"}


def test_a_folder_without_a_document_is_a_fault(load):
    said = HEAD + "roots: {routing: [docs]}\n"
    assert refused(load, said, {"docs/README.md": "# A"}) == [
        '.system/deedbook.yaml:2:19: there is neither ROUTING.md nor ABILITY.md in "docs"'
    ]


def test_a_folder_outside_the_workspace_is_a_fault(load):
    (fault,) = refused(load, HEAD + "roots: {routing: [../docs]}\n")
    assert '"../docs" leads outside the workspace' in fault


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"---\ntriggers: [x]\n---\n# A\n", "front matter is not read here"),
        (b"# A\n" + b"x" * 65536, "more than 65536 bytes"),
        (b"# \xff\n", "UTF-8"),
        (b"# A\x00\n", "U+0000"),
    ],
)
def test_a_document_that_is_not_what_it_should_be_is_a_fault(load, raw, why):
    (fault,) = refused(load, HEAD, {".system/ROUTING.md": raw})
    assert why in fault
    assert ".system/ROUTING.md" in fault


@pytest.mark.parametrize("folder", [".system", "docs"])
def test_a_document_that_is_a_link_is_refused(load, tmp_path, folder):
    (tmp_path / "secret.md").write_text("# A\n\nsecret\n")
    (tmp_path / folder).mkdir()
    os.symlink(tmp_path / "secret.md", tmp_path / folder / "ROUTING.md")
    found = refused(load, HEAD + "roots: {routing: [docs]}\n" if folder == "docs" else HEAD)
    assert all(f"{folder}/ROUTING.md" in fault for fault in found)


def test_a_misspelt_name_is_no_document_that_is_passed_over(load):
    (fault,) = refused(load, HEAD, {".system/ROUTNG.md": "# A\n"})
    assert "did you mean" in fault


def test_every_section_has_an_id_of_its_own(load):
    found = load(files={".system/ROUTING.md": "# A\n\n1\n# A-1\n\n2\n# A ##\n\n3\n# A 1\n\n4\n"})
    assert {name.partition("#")[2]: each.text for name, each in guides_of(found).items()} == {
        "a": "1", "a-1": "2", "a-2": "3", "a-1-1": "4",
    }  # fmt: skip


@pytest.mark.parametrize("filler", [" ", "#", "](", "[](", "](x ", "`", "*", "- ", "](<"])
def test_hostile_lines_are_read_in_time(load, filler):
    text = filler * (30_000 // len(filler))
    found = load(files={".system/ROUTING.md": f"# A{text}\n\n{text}\n"})
    assert all(len(each.title) <= 200 for each in guides_of(found).values())


def test_many_headings_are_read_in_time(load):
    found = load(files={".system/ROUTING.md": "# a\nb\n" * 10_000})
    assert len(guides_of(found)) == 10_000
    assert list(guides_of(found))[-1] == ".system/ROUTING.md#a-9999"


# --- in the charter ---------------------------------------------------------------------------------------------------


def test_charter_has_the_sections_and_says_which_changed(lab):
    lab.tool("echo", lambda args, ctx: args)
    lab.guide("# A\n\n`echo` and `no-ability`\n")
    first = lab.kernel()
    entry = first.bindings.charter.document["guides"][".system/ROUTING.md#a"]
    assert (entry["abilities"], entry["place"]) == (["echo"], ".system/ROUTING.md:1")
    lab.guide("# A\n\n`echo`!\n\n# B\n\nnew\n")
    told = lab.kernel().active_charter.changes
    assert "guide .system/ROUTING.md#a changed" in told.other
    assert "guide .system/ROUTING.md#b is new" in told.other
    assert not told.looser


def test_the_catalogue_is_there_for_a_hook_when_it_is_constructed(lab):
    taken = []

    class Hook:
        spec = GateSpec()

        def __init__(self, settings, host):
            taken.append(host.catalogue())

        @hookimpl
        def session_stop(self, session, ok, now, facts): ...

    lab.tool("echo", lambda args, ctx: args)
    lab.guide("# A\n\nb\n")
    lab.offer("hook", "looks", Hook)
    lab.settings(hooks={"looks": {"event_type": "SessionStop", "handler": {"hook": "looks"}}})
    lab.kernel()
    assert [each.id for each in (*taken[0].abilities, *taken[0].knowledge)] == ["echo", ".system/ROUTING.md#a"]


def test_a_skill_loader_is_asked_before_there_is_a_charter_and_gets_no_catalogue(lab):
    class Loader:
        spec = GateSpec()

        def __init__(self, settings, host):
            host.catalogue()

        def __call__(self):
            return ()

    lab.offer("skill", "early", Loader)
    lab.settings(skills={"loaders": ["early"]})
    with pytest.raises(BindingError, match="no catalogue before the charter is compiled"):
        lab.kernel()
