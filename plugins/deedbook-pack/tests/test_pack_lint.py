"""`pack lint` reports what would prevent the use of a pack, and what is doubtful, without a workspace."""

import shutil
import zipfile
from pathlib import Path

import packfiles
import pytest
from commandline import Place

from deedbook.plugins.plugins import discover
from deedbook_pack.lint import lint_package


def rules(name):
    """Return the policy of the pack under another name, about another text."""
    return packfiles.QUIET.replace("house-quiet", name).replace("*!", "*?")


@pytest.fixture(scope="module")
def catalogue():
    return discover()


@pytest.fixture
def house(tmp_path: Path) -> Path:
    return packfiles.write(tmp_path / "house", packfiles.FILES)


def check(folder, catalogue):
    """Return the findings as ``level place: message``."""
    found = [each for _, some in lint_package(str(folder), catalogue) for each in some]
    return [f"{each.level} {str(each.place).removeprefix(f'{folder}/')}: {each.message}" for each in found]


def test_a_sound_pack_with_tests_has_no_finding(house, catalogue):
    assert check(house, catalogue) == []


OTHER = rules("house-a")
SHADOWED = "      - {match: {kind: [tool]}, then: allow}\n      - {match: {abilities: [echo]}, then: deny}\n    default"
SCRIPT = "schema_version: v1\nid: house-h\nevent_type: Stop\nhandler: {script: run}\n"
LIST = """\
    schema_version: v1
    id: house/ls
    summary: List the folder.
    handler: {tool: process}
    with: {argv: [/opt/ls]}
    schema_out: true
"""
MANIFEST = "schema_version: v1\nname: house\n"


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("pack.yaml", MANIFEST + "version: '1'\ndescripton: x\n", "pack.yaml:4:1: descripton"),
        ("pack.yaml", MANIFEST + "version: 1.0\ndescription: x\n", "pack.yaml:3:10: version"),
        ("pack.yaml", MANIFEST + "version: one\ndescription: x\n", "Version number 'one'"),
        ("policies/a.yaml", "schema_version: v1\nid: house-a\nkind: rules\nruels: []\n", "policies/a.yaml:4:1: "),
        ("policies/a.yaml", "id: [x\n", "error policies/a.yaml:"),
        ("policies/a.yaml", packfiles.QUIET, 'error policies/quiet.yaml:2:5: "house-quiet" is also in'),
        ("policies/a.yaml", OTHER.replace("kind: rules", "kind: rulez"), 'did you mean "rules"?'),
        ("policies/a.json", "{}", 'error policies/a.json: is not read; rename it to "a.yaml"'),
        ("policy/a.yaml", packfiles.QUIET, 'error policy: is not read; did you mean "policies"?'),
        ("deedbook.yaml", "schema_version: v1\n", "error deedbook.yaml: a pack has no settings"),
        ("hooks/h.yaml", SCRIPT, "error hooks/h.yaml:4:11: a pack is data"),
        ("policies/quiet.test.yaml", "schema_version: v1\ncases: [{name: x}]\n", "error policies/quiet.test.yaml:2"),
        (
            "policies/quiet.test.yaml",
            packfiles.CASES.replace("hi!", "hi"),
            "error policies/quiet.test.yaml:3: the test case 'shouting' fails: expected deny, got allow",
        ),
        ("pack.test.yaml", packfiles.SETTINGS + "    packs: [other]\n", "error pack.test.yaml:4:1: names packs"),
        ("pack.test.yaml", "{schema_version: v1}\n", "error pack.test.yaml:1:1: is written in braces"),
        ("pack.test.yaml", packfiles.SETTINGS.replace("tool: echo", "tool: ecko"), "error pack.test.yaml:3"),
        (
            "policies/a.yaml",
            rules("a"),
            'note policies/a.yaml:2:5: "a" has no prefix of its own; another pack may use it too: call it house-a',
        ),
        (
            "policies/a.yaml",
            OTHER.replace("    default", SHADOWED),
            "note policies/a.yaml:8: rule 3 of policy house-a is never reached: rule 2 always decides before it (",
        ),
        (
            "policies/a.yaml",
            OTHER.replace("[echo]", "[ecko]"),
            "note policies/a.yaml:6: rule 1 of policy house-a does not guard 'ecko': it is no ability of",
        ),
        ("policies/a.yaml", OTHER, "note policies/a.yaml:6: rule 1 of policy house-a has no test"),
        (
            "registry/low-level/ls.yaml",
            LIST,
            "note registry/low-level/ls.yaml:5:15: house/ls: '/opt/ls' is a path outside the workspace",
        ),
    ],
)
def test_a_fault_has_its_place(house, catalogue, path, text, expected):
    packfiles.write(house, {**packfiles.FILES, path: text})
    assert any(expected in each.replace(f"{house}/", "") for each in check(house, catalogue)), check(house, catalogue)


POINTERS = """\
schema_version: v1
id: house/list
summary: List.
handler: {tool: sequence}
effects: read
uses: [house/ls]
with: {steps: [{id: a, ability: house/ls, args: {path: {from: /args/path}}}]}
schema_in: {type: object, required: [path], properties: {path: {type: string}}}
schema_out: true
"""


def test_pointers_and_devices_are_no_foreign_paths(house, catalogue):
    files = {"low-level/ls.yaml": LIST.replace("/opt/ls", "/dev/null"), "high-level/list.yaml": POINTERS}
    packfiles.write(house, {f"registry/{name}": text for name, text in files.items()})
    assert not [each for each in check(house, catalogue) if "outside the workspace" in each]


def test_cycle_is_named_by_its_own_id_and_not_by_that_of_its_ability(house, catalogue):
    front = "schema_version: v1\nid: ID\nphases: [house-look]\nentry_phase: house-look"
    cycles = {f"workflows/cycles/{name}.md": f"---\n{front.replace('ID', name)}\n---\n" for name in ("house-a", "b")}
    look = '---\nschema_version: v1\nid: house-look\nadvance_signal: "true"\nartifact: lesson\n---\n'
    lesson = "---\nschema_version: v1\nid: lesson\npattern: a.md\nfolder: reports\nschema: learning_v1\n---\n"
    own = "      review: {summary: Review., handler: {flow: review}}\n"
    review = packfiles.SETTINGS + own + "      file-write: {summary: Write., handler: {tool: file-write}}\n"
    more = {"phases/house-look.md": look, "artifacts/lesson-template.md": lesson}
    cycles |= {f"workflows/{name}": text for name, text in more.items()}
    packfiles.write(house, {**cycles, "pack.test.yaml": review})
    noted = [each.partition(": ")[2] for each in check(house, catalogue) if "no prefix" in each]
    assert noted == ['"b" has no prefix of its own; another pack may use it too: call it house-b']


def test_rules_without_any_ability_to_be_about_are_noted(house, catalogue):
    (house / "pack.test.yaml").unlink()
    assert check(house, catalogue)[0].startswith("note pack.test.yaml: no rule can be checked or tested")


@pytest.mark.parametrize("target", ["/etc/hostname", "quiet.yaml"])
def test_a_link_is_refused_and_nothing_is_read_through_it(house, catalogue, target):
    (house / "policies" / "far.yaml").symlink_to(target)
    (finding,) = check(house, catalogue)
    assert finding.startswith(f'error policies/far.yaml: is a link to "{target}"')


def test_a_linked_folder_is_refused(house, catalogue, tmp_path):
    shutil.copytree(house / "policies", tmp_path / "elsewhere")
    (house / "hooks").symlink_to(tmp_path / "elsewhere")
    assert check(house, catalogue)[0].startswith("error hooks: is a link to ")


@pytest.mark.parametrize("target", ["/etc", "..house", "house/../etc"])
def test_an_entry_point_that_names_no_folder_inside_is_refused(tmp_path, catalogue, target):
    (tmp_path / "pyproject.toml").write_text(
        f'[project]\nname = "acme"\nversion = "1"\n[project.entry-points."deedbook.packs"]\nhouse = "{target}"\n'
    )
    (finding,) = check(tmp_path, catalogue)
    assert "names no folder inside the project" in finding


def test_an_id_of_another_installed_pack_is_noted(house, catalogue, tmp_path):
    other = packfiles.write(tmp_path / "other", packfiles.FILES)
    text = (other / "pack.yaml").read_text().replace("name: house", "name: other")
    (other / "pack.yaml").write_text(text)
    from contextlib import ExitStack

    from deedbook_pack.packages import open_packs

    with ExitStack() as held:
        (pack,) = open_packs(str(other), held, catalogue)
        (finding,) = check(house, pack.use_in(catalogue))
    assert finding == (
        'note policies/quiet.yaml:2:5: "house-quiet" is also in pack other (deedbook-pack-other 1.0): '
        "policies/quiet.yaml; a workspace that names both does not start"
    )


SCAN = "---\nschema_version: v1\nid: scan\nadvance_signal: 'true'\n---\nLook.\n"
CARD = "identity: iris\ndomain: data\nstate: {skills: skills.md}\n"
SHARED = {
    "workflows/phases/scan.md": SCAN, "workflows/README.md": "Cycles.\n",
    "agents/iris/.agent": CARD, "agents/iris/skills.md": "", "agents/guide.md": "You guide.\n",
}  # fmt: skip


def test_a_workflow_file_or_agent_of_another_installed_pack_is_noted(tmp_path, catalogue):
    """An id of such a file is the file's name, so the paths are compared; other files may have the same path."""
    from contextlib import ExitStack

    from deedbook_pack.packages import open_packs

    house, other = (packfiles.write(tmp_path / name, SHARED) for name in ("house", "other"))
    (other / "pack.yaml").write_text((other / "pack.yaml").read_text().replace("name: house", "name: other"))
    with ExitStack() as held:
        (pack,) = open_packs(str(other), held, catalogue)
        found = [each for each in check(house, pack.use_in(catalogue)) if "is also in" in each]
    assert [each.split(": ")[0] for each in found] == [
        "note agents/guide.md", "note agents/iris/.agent", "note workflows/phases/scan.md",
    ]  # fmt: skip
    assert found[2].endswith(
        "workflows/phases/scan.md is also in pack other (deedbook-pack-other 1.0), and its name is its id; "
        "a workspace that names both does not start"
    )


def test_a_wheel_whose_files_are_not_those_of_its_record_is_refused(house, catalogue, tmp_path):
    from deedbook_pack.building import build_wheel

    wheel = build_wheel(house, tmp_path / "dist").path
    with zipfile.ZipFile(wheel) as packed:
        files = {name: packed.read(name) for name in packed.namelist()}
    policy = next(name for name in files if name.endswith("quiet.yaml"))
    record = next(name for name in files if name.endswith("RECORD"))
    for changed, expected in (
        ({**files, policy: b"id: x\n"}, "is not the file of its record"),
        ({**files, "../evil.yaml": b"x"}, "'../evil.yaml' leads outside its folder"),
        ({**files, "/etc/evil": b"x"}, "'/etc/evil' leads outside its folder"),
        ({**files, record: files[record] + b"../../etc/passwd,,\n"}, "its record names '../../etc/passwd'"),
        ({**files, "more.yaml": b"x"}, "'more.yaml' is not in its record"),
        ({name: data for name, data in files.items() if name != policy}, "which is not in it"),
    ):
        with zipfile.ZipFile(wheel, "w") as packed:
            for name, data in changed.items():
                packed.writestr(name, data)
        assert expected in "\n".join(check(wheel, catalogue))
    wheel.write_bytes(b"PK\x03\x04 no zip")
    assert "is no wheel" in check(wheel, catalogue)[0]


def test_the_command_needs_no_workspace_and_fails_on_errors(tmp_path):
    place = Place(tmp_path)
    house = packfiles.write(tmp_path / "house", packfiles.FILES)
    assert place.here("pack", "lint", "./house", "--json", status=0).fits("output_pack_lint_v1")["ok"]
    packfiles.write(house, {"policies/loose.yaml": rules("loose")})
    assert "0 errors, 2 notes" in place.here("pack", "lint", "./house", status=0).err
    place.here("pack", "lint", "./house", "--strict", status=1)
    packfiles.write(house, {"policies/loose.yaml": "id: x\n"})
    told = place.here("pack", "lint", "./house", "--json", status=1).fits("output_pack_lint_v1")
    assert {each["place"].split(":")[0] for each in told["findings"]} == {"house/policies/loose.yaml"}
    assert "error: house/policies/loose.yaml:1:1: " in place.here("pack", "lint", "./house", status=1).out
    assert "./house" in place.here("pack", "lint", "house", status=1).err  # a name is that of an installed pack
    assert "there is no such folder" in place.here("pack", "lint", "./nowhere", status=1).err


STRANGE = """
[tool]
flit = "x"
[build-system]
build-backend = "flit_core.buildapi"
[project]
name = "x y"
version = "1"
[project.entry-points."deedbook.packs"]
house = "acme"
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('project = "x"\n', "[project] name is missing"),
        ('[project]\nname = ["x"]\nversion = 1\n', "[project] version is missing"),
        ('[project]\nname = "x"\nversion = "1"\nentry-points = ["a"]\n', "[project.entry-points"),
        ("[project\n", "cannot be read: "),
        (STRANGE, "no wheel can be built: "),
    ],
)
def test_a_project_that_cannot_be_read_is_one_error(tmp_path, catalogue, text, expected):
    (tmp_path / "acme").mkdir()
    (tmp_path / "pyproject.toml").write_text(text)
    assert any(expected in each for each in check(tmp_path, catalogue))


def test_a_record_that_is_no_text_is_one_error(tmp_path, catalogue):
    wheel = tmp_path / "x-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as packed:
        packed.writestr("x-1.dist-info/RECORD", b"\xff\xfe")
    (finding,) = check(wheel, catalogue)
    assert "its record cannot be read" in finding
