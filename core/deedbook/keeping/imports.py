"""Old ledgers in a workspace: their bytes kept as they were, under their hash, and who took them in.

The workspace ledger tells of each (``ledger.imported``); the bytes lie in ``imported/<sha256>/`` of the state folder,
read-only. They are never rewritten: whoever reads them gets present events.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import attrs

from deedbook.canonical import digest, encode_payload
from deedbook.contracts import Object
from deedbook.errors import LedgerError, fault, recordable
from deedbook.events import FORMAT, HEADER, Entry, label
from deedbook.files import Folder
from deedbook.ledger import WorkspaceLedger
from deedbook.reader import Listed, old_sessions, read
from deedbook.sealed import opened
from deedbook.upcasting.recognition import form_of

FOLDER: Final = "imported"
FILE: Final = "events.jsonl"
MAX_BYTES: Final = 1024 * 1024 * 1024
"""The largest file that is taken in."""
TOLD: Final = "ledger.imported"
Verdict: TypeAlias = Literal["sound", "unsound"]


@attrs.frozen
class Imported:
    """An old ledger that was taken in: what its ``ledger.imported`` says, and when that was written."""

    sha256: str
    size: int
    format: str
    sessions: tuple[Listed, ...]
    name: str
    by: str
    verdict: Verdict
    ts: str
    as_is: str | None = None

    def place(self, state: Path) -> Path:
        """Return where its bytes are in a *state* folder."""
        return state / FOLDER / self.sha256 / FILE

    def session(self, state: Path, name: str) -> Path:
        """Return where one of its sessions is read from."""
        place = self.place(state)
        return place if len(self.sessions) == 1 else Path(f"{place}#{name}")


def imports(state: Path) -> list[Imported]:
    """Return the old ledgers that were taken into a *state* folder, in order; raises `LedgerError` as `read` does."""
    found: dict[str, Imported] = {}
    with suppress(FileNotFoundError), Folder.at(state / "workspace") as folder:
        for event in read(folder):
            if event.type == TOLD:
                each = _imported(opened(folder, dict(event.payload)), event.ts)
                found.setdefault(each.sha256, each)
    return list(found.values())


def _imported(said: dict[str, Any], ts: str) -> Imported:
    sessions = tuple(
        Listed(each["session"], "ended" if each["ended"] else "interrupted", each["started"], each["latest"],
               each["events"]) for each in said["sessions"]
    )  # fmt: skip
    names = ("sha256", "size", "format", "by", "verdict")
    return Imported(**{name: said[name] for name in names}, sessions=sessions, name=said["from"], ts=ts,
                    as_is=said.get("as_is"))  # fmt: skip


def find(known: Sequence[Imported], name: str) -> list[tuple[Imported, Listed]]:
    """Return the sessions that *name* is, or else begins: an id, or ``SHA256#ID``, where the hash may be cut short."""
    sha, sign, identity = name.partition("#")
    among = [each for each in known if each.sha256.startswith(sha)] if sign else known
    wanted = identity if sign else name
    pairs = [(each, session) for each in among for session in each.sessions]
    exact = [pair for pair in pairs if pair[1].id == wanted]
    return exact or [pair for pair in pairs if wanted and pair[1].id.startswith(wanted)]


# --- taking one in ----------------------------------------------------------------------------------------------------


def old_form(raw: bytes, name: str) -> str:
    """Return the form of an old ledger; raises `LedgerError` (``IMPORT_REFUSED``) for what is none."""
    first = raw.partition(b"\n")[0]
    form = form_of(first)
    if form != FORMAT:
        return form
    why = "it is no ledger of an older form"
    if HEADER.match(first):
        why += f"; one of format {FORMAT} is read as it is: give its path to `replay`, `tree` or `verify`"
    else:
        why += ", nor of any form that is known: envelope 1.0 and seed 000's events are taken in"
    raise LedgerError(fault("IMPORT_REFUSED", why, place=name))


def surveyed(raw: bytes, name: str, *, lenient: bool = False) -> tuple[str, tuple[Listed, ...]]:
    """Return the form of an old ledger and its sessions; a *lenient* look passes over lines that cannot be read.

    Raises `LedgerError` (``IMPORT_REFUSED``) for what is none, or cannot be read.
    """
    form = old_form(raw, name)
    try:
        found = old_sessions(BytesIO(raw), name, form, lenient=lenient)
    except LedgerError as problem:
        why = f"it cannot be read ({problem.error.message}); nothing was taken in"
        raise LedgerError(fault("IMPORT_REFUSED", why, place=problem.error.place)) from None
    if not found:
        raise LedgerError(fault("IMPORT_REFUSED", "it holds no event", place=name))
    return form, tuple(found.values())


def keep(state: Folder, raw: bytes) -> str:
    """Keep the bytes of an old ledger in the *state* folder, durably and read-only; return their hash.

    What is there already with these bytes stays; other bytes under this hash raise `LedgerError` (``LEDGER_UNSOUND``).
    """
    sha = digest(raw)
    place = f"{FOLDER}/{sha}/{FILE}"
    state.make(f"{FOLDER}/{sha}")
    try:
        if digest(state.read(place, limit=MAX_BYTES)) != sha:
            why = "other bytes are kept there than their name says; put the right ones there, or remove it by hand"
            raise LedgerError(fault("LEDGER_UNSOUND", why, place=f"{state.path}/{place}"))
    except FileNotFoundError:
        state.replace(place, raw, expected="", mode=0o444)
    return sha


def take_in(
    state: Folder, ledger: WorkspaceLedger, raw: bytes, *, name: str, by: str, sound: bool, as_is: str | None
) -> Imported:
    """Keep an old ledger in the *state* folder and record that in the workspace's *ledger*; raises `LedgerError`.

    It may be killed at any moment and begun again: the bytes are there before the ledger tells of them.
    """
    form, sessions = surveyed(raw, name, lenient=not sound)
    stamp, sha = ledger.now(), keep(state, raw)
    verdict: Verdict = "sound" if sound else "unsound"
    why = None if as_is is None or sound else recordable(as_is)
    found = Imported(sha, len(raw), form, sessions, recordable(name), by, verdict, stamp, why)
    entry = Entry(label(TOLD, "user", by), ledger.span(), ledger.root, encode_payload(told(found)))
    ledger.append([entry], ts=stamp, durable=True)
    return found


def told(found: Imported) -> Object:
    """Return what ``ledger.imported`` says of it."""
    sessions = [
        {
            "session": each.id,
            "events": each.events,
            "started": each.started,
            "latest": each.latest,
            "ended": each.state == "ended",
        }
        for each in found.sessions
    ]
    own = {name: getattr(found, name) for name in ("sha256", "size", "format", "by", "verdict")}
    more = {} if found.as_is is None else {"as_is": found.as_is}
    return {**own, "sessions": sessions, "from": found.name, **more}


def strays(state: Path, known: Sequence[Imported]) -> Iterator[str]:
    """Yield the hashes of files that lie there and that no event tells of: an import that was not finished."""
    told = {each.sha256 for each in known}
    with suppress(FileNotFoundError), Folder.at(state / FOLDER) as folder:
        yield from (found.name for found in folder.scan() if found.folder and found.name not in told)
