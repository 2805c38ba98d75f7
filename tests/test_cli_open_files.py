"""Commands that end with an error: nothing that they opened stays open."""

import gc
import os
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
from commandline import Place

COMMANDS = [
    ("approvals", "list"),
    ("approvals", "show", "last"),
    ("approvals", "run", "last"),
    ("call", "echo", "text=on"),
    ("explain", "last", "2"),
    ("export", "last", "--as", "cloudevents"),
    ("export", "workspace", "--as", "seed-002"),
    ("fork", "last", "--at", "1"),
    ("ledger", "checkpoint"),
    ("ledger", "import", ".system/deedbook.yaml"),
    ("memory", "list"),
    ("memory", "rebuild"),
    ("processes",),
    ("prove", "last", "1"),
    ("replay", "last"),
    ("replay", "last", "--html"),
    ("sessions",),
    ("sessions", "close", "last"),
    ("stats",),
    ("tasks", "list"),
    ("tasks", "run", "last"),
    ("tree", "last"),
    ("tree", "workspace"),
    ("verify",),
    ("verify", "last"),
    ("whatif", "last", "--system", "."),
    ("workdocs",),
]


def damage(ledger: Path) -> None:
    """Change a character of the first payload: the line is whole, and is not what was written."""
    raw = ledger.read_bytes()
    at = raw.index(b'"payload":{') + len(b'"payload":{"')
    ledger.write_bytes(raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :])


def remove(ledger: Path) -> None:
    ledger.unlink()


def cut(ledger: Path) -> None:
    """Leave half a line, and no line that is whole."""
    ledger.write_bytes(ledger.read_bytes()[:40])


FAULTS = [
    ("workspace", damage),
    *(
        pytest.param(which, fault, marks=pytest.mark.campaign(keep=0))
        for which, fault in (*product(["workspace"], [remove, cut]), *product(["sessions/*"], [damage, remove, cut]))
    ),
]
"""Which ledger is damaged, and how; the first of these is what has left files open."""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(tmp_path)
    made.write(
        ".system/deedbook.yaml",
        "schema_version: v1\nabilities:\n  echo: {summary: Echo a text back., handler: {tool: echo}}\n",
    )
    made.here("call", "echo", "text=hi", status=0)
    return made


@pytest.fixture(autouse=True)
def no_collection() -> Iterator[None]:
    """Keep the garbage collector from closing what was left open."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def opened() -> list[str]:
    """Return what this process has open, and by which number."""
    found = []
    for number in os.listdir("/dev/fd"):
        try:
            found.append(f"{number}: {os.readlink(f'/proc/self/fd/{number}')}")
        except OSError:  # the folder itself, which was open while it was listed
            continue
    return sorted(found)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="the system does not list open files")
@pytest.mark.campaign(keep=12)
@pytest.mark.parametrize(("which", "fault"), FAULTS)
@pytest.mark.parametrize("argv", COMMANDS, ids=" ".join)
def test_command_on_a_damaged_ledger_leaves_no_file_open(place: Place, argv, which, fault):
    [ledger] = place.path.glob(f".deedbook/{which}/.events.jsonl")
    fault(ledger)
    before = opened()
    place.here(*argv)
    assert opened() == before
