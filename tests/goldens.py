"""Golden ledgers: one of each form that was ever released, made once and never changed; what is said of them beside.

`python tests/goldens.py` writes anew what reading, replay and verification say, after that was changed on purpose. With
``--make NAME`` it makes what is not there yet: a ledger that is there is never made again.
"""

import json
import shutil
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

from commandline import SCHEMAS

from deedbook.format.events import FORMAT
from deedbook.format.folds import SnapshotFold, fold
from deedbook_audit.upcasting.reader import old_sessions, read
from deedbook_audit.upcasting.recognition import form_of
from deedbook_audit.verify import verify_file
from deedbook_inspect.event_tree import TreeFold, transcript

GOLDEN = Path(__file__).parent / "data" / "golden"
NAME = "events.jsonl"


def ledgers() -> list[Path]:
    """Return the folders of all golden ledgers."""
    return sorted(place.parent for place in GOLDEN.rglob(NAME))


def named(folder: Path) -> str:
    return str(folder.relative_to(GOLDEN))


def digests() -> dict[str, str]:
    """Return the SHA-256 of each golden ledger."""
    return {named(folder): sha256((folder / NAME).read_bytes()).hexdigest() for folder in ledgers()}


def told(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the name of each file of what is said of a golden ledger, and its text."""
    place = folder / NAME
    report = verify_file(place, schemas=SCHEMAS)
    failures = [str(failure) for failure in (*report.bytes.failures, *report.structure.failures)]
    about = ("format", "session_id", "state", "events", "head", "sound")
    said = {name: getattr(report, name) for name in about} | {"failures": failures}
    yield "verify.json", _spelled(said)
    for name, source in _sessions(folder):
        yield f"{name}snapshot.json", _spelled(fold(SnapshotFold(), read(source)).as_json())
        yield f"{name}tree.txt", "".join(f"{line}\n" for line in fold(TreeFold(), read(source)).lines())
        yield f"{name}replay.txt", "".join(f"{line}\n" for line in transcript(read(source)))


def _sessions(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield each session of a golden ledger: how its files begin, and where it is read from."""
    with (folder / NAME).open("rb") as file:
        form = form_of(file.readline())
        file.seek(0)
        names = [] if form == FORMAT else list(old_sessions(file, NAME, form))
    yield from [(f"{name}.", folder / f"{NAME}#{name}") for name in names] or [("", folder / NAME)]


def _spelled(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2, sort_keys=True) + "\n"


# --- making them ------------------------------------------------------------------------------------------------------


def keep(name: str, source: Path) -> None:
    """Keep a ledger and its sealed values as a golden one; what is there stays."""
    folder = GOLDEN / name
    if (folder / NAME).exists():
        return
    folder.mkdir(parents=True)
    shutil.copyfile(source, folder / NAME)
    if (source.parent / "sealed").is_dir() and any((source.parent / "sealed").iterdir()):
        shutil.copytree(source.parent / "sealed", folder / "sealed")


def make(work: Path) -> None:
    """Make the golden ledgers that are not there yet, with the real kernel, in the folder *work*."""
    import goldmaking

    for name, source in goldmaking.every(work):
        keep(name, source)
    (GOLDEN / "sha256").write_text("".join(f"{digest}  {name}\n" for name, digest in digests().items()))


def main() -> None:
    """Write what is said of each golden ledger anew."""
    if "--make" in sys.argv:
        make(Path(sys.argv[-1]))
    for folder in ledgers():
        for name, text in told(folder):
            (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
