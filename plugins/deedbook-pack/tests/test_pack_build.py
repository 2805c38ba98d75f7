"""`pack build` makes a wheel that pip installs and Deedbook reads, the same bytes for the same files."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import packfiles
import packing
import pytest
from commandline import Place, starter

from deedbook.format.errors import DeedbookError
from deedbook_pack.building import build_wheel


@pytest.fixture
def house(tmp_path: Path) -> Path:
    return packfiles.write(tmp_path / "house", packfiles.FILES)


def test_the_same_files_give_the_same_bytes(house, tmp_path):
    first = build_wheel(house, tmp_path / "one")
    again = packfiles.write(tmp_path / "elsewhere" / "house", dict(reversed(packfiles.FILES.items())))
    for path in again.rglob("*"):
        os.utime(path, (1_000_000_000, 1_000_000_000))
        path.chmod(0o700 if path.is_dir() else 0o600)
    second = build_wheel(again, tmp_path / "two")
    assert first.path.name == "deedbook_pack_house-1.0-py3-none-any.whl"
    assert first.path.read_bytes() == second.path.read_bytes()
    packfiles.write(again, {"policies/quiet.yaml": packfiles.QUIET.replace("no shouting", "be quiet")})
    assert build_wheel(again, tmp_path / "two").digest != first.digest


def test_a_python_project_gives_the_same_bytes_too(tmp_path):
    made = packing.project(tmp_path / "acme", "acme-policies", packfiles.FILES, pack="house")
    first = build_wheel(made, tmp_path / "one")
    for path in made.rglob("*"):
        os.utime(path, (1_000_000_000, 1_000_000_000))
    assert build_wheel(made, tmp_path / "two").path.read_bytes() == first.path.read_bytes()
    assert first.packs == ("house",)


def test_the_wheel_holds_the_cards_of_agents(tmp_path):
    """Without its card, an agent of a pack would be none."""
    card = "identity: iris\ndomain: data\nstate: {skills: skills.md}\n"
    files = {"agents/iris/.agent": card, "agents/iris/.notes": "", "agents/iris/skills.md": ""}
    made = build_wheel(packfiles.write(tmp_path / "house", files), tmp_path / "dist").path
    held = [name.rpartition("agents/iris/")[2] for name in zipfile.ZipFile(made).namelist() if "iris" in name]
    assert sorted(held) == [".agent", "skills.md"]


def test_the_wheel_holds_the_pack_and_no_hidden_file(house, tmp_path):
    packfiles.write(house, {".env": "TOKEN=1\n", "policies/.quiet.yaml.swp": "x", "README.md": "The house rules.\n"})
    with zipfile.ZipFile(build_wheel(house, tmp_path).path) as packed:
        names = sorted(packed.namelist())
        points = packed.read("deedbook_pack_house-1.0.dist-info/entry_points.txt").decode()
    assert names == [
        *(f"deedbook_pack_house-1.0.dist-info/{name}" for name in ("METADATA", "RECORD", "WHEEL", "entry_points.txt")),
        "deedbook_pack_house/README.md",
        "deedbook_pack_house/__init__.py",
        "deedbook_pack_house/pack.test.yaml",
        "deedbook_pack_house/pack.yaml",
        "deedbook_pack_house/policies/quiet.test.yaml",
        "deedbook_pack_house/policies/quiet.yaml",
    ]
    assert points == "[deedbook.packs]\nhouse=deedbook_pack_house\n\n"


def test_pip_installs_the_wheel_and_its_rules_bind(house, tmp_path):
    place = starter(tmp_path / "workspace")
    wheel = place.run("pack", "build", str(house), "-o", str(tmp_path / "dist"), "--json", status=0)
    built = wheel.fits("output_pack_build_v1")["wheel"]
    site = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--target", str(site), built]
    subprocess.run(pip, check=True, timeout=120)
    place.env["PYTHONPATH"] = str(site)
    place.configure("schema_version: v1\n", "schema_version: v1\npacks: [house]\n")
    denied = place.run("call", "echo", "text=hi!", status=3)
    assert (
        "no shouting (by policy house-quiet, pack house (deedbook-pack-house 1.0): policies/quiet.yaml:6)" in denied.err
    )
    place.run("call", "echo", "text=hi", status=0)


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("policies/quiet.yaml", "id: x\n", 'house/policies/quiet.yaml:1:1: the key "schema_version" is missing'),
        ("policies/quiet.test.yaml", packfiles.CASES.replace("hi!", "hi"), "the test case 'shouting' fails"),
        ("pack.yaml", "schema_version: v1\nname: house\n", "house/pack.yaml:1:1: "),
    ],
)
def test_a_pack_with_errors_is_not_built(house, tmp_path, path, text, expected):
    packfiles.write(house, {path: text})
    with pytest.raises(DeedbookError, match=expected.replace(".", "[.]")):
        build_wheel(house, tmp_path / "dist")
    assert not (tmp_path / "dist").exists()


def test_a_wheel_is_not_written_into_the_pack(house):
    with pytest.raises(DeedbookError, match="is inside pack house"):
        build_wheel(house, house / "dist")


def test_no_code_of_a_project_runs(tmp_path):
    made = packing.project(tmp_path / "acme", "acme-policies", packfiles.FILES)
    (made / "acme_policies" / "__init__.py").write_text('"""A pack."""\n__version__ = open("/nowhere").read()\n')
    build_wheel(made, tmp_path / "dist")
    text = (made / "pyproject.toml").read_text()
    (made / "pyproject.toml").write_text(text.replace('version = "1.0"', 'dynamic = ["version"]'))
    with pytest.raises(DeedbookError, match="dynamic names version; write the values themselves"):
        build_wheel(made, tmp_path / "dist")


def test_another_build_backend_is_linted_and_not_built(tmp_path):
    made = packing.project(tmp_path / "acme", "acme-policies", packfiles.FILES, pack="house")
    text = (made / "pyproject.toml").read_text()
    (made / "pyproject.toml").write_text(text.replace("flit_core.buildapi", "hatchling.build"))
    with pytest.raises(DeedbookError, match=r"its build backend is hatchling\.build"):
        build_wheel(made, tmp_path / "dist")
    assert Place(tmp_path).here("pack", "lint", "./acme", "--json", status=0).json["packs"] == [
        "house (acme-policies 1.0)"
    ]
