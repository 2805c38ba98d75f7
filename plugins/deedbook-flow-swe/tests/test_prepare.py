"""The environment of the programs in the sandbox: made from a list with hashes, locked by its digest."""

import hashlib
import stat
import tempfile
import zipfile
from pathlib import Path

import pytest
from commandline import Place

from deedbook_tool_sandbox.bubblewrap import digest_of

CODE = "def main():\n    print('greetings from the environment')\n"
FILES = {
    "greeter.py": CODE,
    "greeter-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: greeter\nVersion: 1.0\n",
    "greeter-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "greeter-1.0.dist-info/entry_points.txt": "[console_scripts]\ngreet = greeter:main\n",
    "greeter-1.0.dist-info/RECORD": "",
}


@pytest.fixture
def wheel(tmp_path):
    path = tmp_path / "greeter-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in FILES.items():
            archive.writestr(name, text)
    return path


@pytest.fixture
def folder():
    """Return a folder that every user can pass; a sandbox has a /tmp of its own."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def prepare(tmp_path, folder, wheel):
    """Return what calls the command with a list that has the wheel and a *digest*."""
    place = Place(tmp_path / "workspace")
    place.system("deedbook.yaml", "schema_version: v1\n")

    def call(digest, to=folder / "tools", **options):
        (tmp_path / "list.txt").write_text(f"greeter @ {wheel.as_uri()} --hash=sha256:{digest}\n")
        return place.here("swe", "prepare", str(tmp_path / "list.txt"), str(to), "--json", **options)

    return call


def test_environment_is_made_and_its_programs_run_in_the_sandbox(lab, folder, wheel, prepare):
    made = prepare(hashlib.sha256(wheel.read_bytes()).hexdigest(), status=0).fits("output_swe_prepare_v1")
    assert made["digest"] == digest_of(folder / "tools")
    assert all(path.is_symlink() or path.stat().st_mode & stat.S_IROTH for path in (folder / "tools").rglob("*"))
    ability = {
        "summary": "Greet.", "handler": {"tool": "sandbox"}, "effects": "none",
        "with": {"argv": ["greet"], "environment": {"path": made["path"], "digest": made["digest"]}},
        "schema_in": {"type": "object"}, "schema_out": True,
    }  # fmt: skip
    lab.settings(abilities={"greet": ability})
    result = lab.session().call("greet", {})
    assert hasattr(result, "value"), result
    assert result.value["stdout"] == "greetings from the environment\n"


def test_environment_that_cannot_be_made_is_not_made(folder, prepare):
    assert "HASHES" in prepare("0" * 64, status=2).err
    assert not (folder / "tools").exists()
    (folder / "tools").mkdir()
    assert "exists already" in prepare("0" * 64, status=2).err


def test_place_that_the_sandbox_cannot_reach_is_refused(folder, prepare, monkeypatch):
    assert "folders of its own" in prepare("0" * 64, to="/tmp/tools", status=2).err
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    folder.chmod(0o700)
    assert f"{folder} is closed to other users" in prepare("0" * 64, status=2).err
