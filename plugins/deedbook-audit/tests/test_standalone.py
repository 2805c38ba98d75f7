"""`deedbook-verify`: what an auditor runs who has a state folder or one ledger, and no workspace."""

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from deedbook.format.schema import Schemas
from deedbook_audit import standalone
from deedbook_testing import Lab

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests" / "data" / "golden"
SECONDS = 600
ALONE = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        first, _, rest = name.partition(".")
        room = rest.partition(".")[0]
        if first == "deedbook" and room not in ("", "contract", "format", "plugins", "policy", "charter"):
            raise ImportError(f"an auditor has no business with {name}")
        if first.startswith("deedbook_") and first != "deedbook_audit":
            raise ImportError(f"{name} is not installed")

sys.meta_path.insert(0, Refuse())
from deedbook_audit.standalone import main
main()
"""
"""Runs the program where only the rooms of the kernel can be imported that verification stands on."""


def status_of(monkeypatch: pytest.MonkeyPatch, *args: object) -> int:
    """Run the program in this process and return its exit status."""
    monkeypatch.setattr(sys, "argv", ["deedbook-verify", *map(str, args)])
    with pytest.raises(SystemExit) as ended:
        standalone.main()
    assert isinstance(ended.value.code, int)
    return ended.value.code


def recorded(lab: Lab) -> Path:
    """Record a session with one call, and return the state folder."""
    lab.tool("echo", lambda args, _: dict(args))
    lab.session().call("echo", {"text": "hi"})
    lab.close()
    return lab.state


def test_state_folder_is_verified_with_its_decisions(lab, monkeypatch, capsys):
    assert status_of(monkeypatch, recorded(lab)) == 0
    said = capsys.readouterr().out
    assert said.startswith("unwitnessed: sound as far as it goes")
    assert "decisions: 1 of 1 call judged again and the same" in said
    assert "all 2 sound" in said


def test_json_is_that_of_the_command_verify(lab, monkeypatch, capsys, kernel_schemas: Schemas):
    assert status_of(monkeypatch, recorded(lab), "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert kernel_schemas.validator("output_verify_v1").violations(told) == ()
    assert (told["sound"], len(told["reports"])) == (True, 2)


def test_ledger_that_was_changed_is_not_sound(lab, monkeypatch, capsys):
    state = recorded(lab)
    ledger = lab.ledger()
    ledger.write_bytes(ledger.read_bytes().replace(b'"text":"hi"', b'"text":"ho"'))
    try:
        assert status_of(monkeypatch, state) == 4
        assert "NOT SOUND" in capsys.readouterr().err
    finally:
        ledger.write_bytes(ledger.read_bytes().replace(b'"text":"ho"', b'"text":"hi"'))


@pytest.mark.parametrize(
    ("args", "status", "says"),
    [
        (["absent"], 2, "there is no ledger 'absent'"),
        ([ROOT / "README.md"], 4, "not a Deedbook ledger"),
        ([GOLDEN / "1.1/call/events.jsonl", "deedbook/x+1+AAAA"], 2, "name its state folder"),
        ([], 2, "Missing argument"),
    ],
    ids=["absent", "other file", "key", "nothing"],
)
def test_wrong_use_is_one_clear_error(monkeypatch, capsys, args, status, says):
    assert status_of(monkeypatch, *args) == status
    ran = capsys.readouterr()
    assert says in ran.err
    assert ran.err.startswith("error: ")
    assert ran.out == ""


@pytest.mark.campaign(keep=1)
@pytest.mark.parametrize("how", ["alone", "installed"])
def test_golden_ledger_is_verified_where_only_the_kernel_and_the_audit_are(tmp_path, how):
    ledgers = sorted(place for place in GOLDEN.rglob("events.jsonl") if "invalid" not in place.parts)
    argv = [sys.executable, "-c", ALONE] if how == "alone" else [installed(tmp_path)]
    for ledger in ledgers if how == "installed" else ledgers[:: len(ledgers) // 3]:
        expected = json.loads(ledger.with_name("verify.json").read_bytes())
        ran = subprocess.run(
            [*argv, ledger, "--json"], cwd=tmp_path, env=bare(), capture_output=True, timeout=SECONDS, check=False
        )
        assert ran.returncode == (0 if expected["sound"] else 4), ran
        (report,) = json.loads(ran.stdout)["reports"]
        assert (report["events"], report["head"]) == (expected["events"], expected["head"])


def bare() -> dict[str, str]:
    """Return the environment without what leads Python to other packages."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def documented() -> str:
    """Return the command that installs the program from a clone, which both pages show."""
    pages = [ROOT / "docs" / "verify.md", ROOT / "plugins" / "deedbook-audit" / "README.md"]
    (command,) = {
        line
        for page in pages
        for line in page.read_text(encoding="utf-8").splitlines()
        if line.startswith("pip install")
    }
    return command


def installed(folder: Path) -> Path:
    """Install wheels of what the documentation names in an empty environment; return the program."""
    wheels = folder / "wheels"
    pip = [sys.executable, "-m", "pip", "-q"]
    projects = [ROOT / name for name in documented().split()[2:]]
    subprocess.run([*pip, "wheel", "--no-deps", "-w", wheels, *projects], timeout=SECONDS, check=True)
    venv.create(folder / "empty", with_pip=True)
    python = folder / "empty" / "bin" / "python"
    argv = [python, "-m", "pip", "-q", "install", *wheels.glob("*.whl")]
    subprocess.run(argv, env=bare(), timeout=SECONDS, check=True)
    return python.with_name("deedbook-verify")
