"""Bundles of version 2: a context with the head of its ledger, to be compared with the ledger; and all contexts of one.

A bundle hands a context over: it names the ledger's head at that moment, and what `load` returns is what folding the
ledger up to that head gives. `bundles` has version 3, which holds the ledger itself.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

from deedbook import Event
from deedbook.format.canonical import MAX_BYTES, decode, digest, encode, parse_payload
from deedbook.format.context import REPORT, ContextFold, RunContext, RunContexts
from deedbook.format.errors import IntakeError, LedgerError, fault
from deedbook.format.events import HEADER, MAX_PAYLOAD, first_hash
from deedbook.format.files import Folder

_MAX_LINE: Final = MAX_PAYLOAD + 4096
_HASH_KEY: Final = len(b',"envelope_hash":"')


def save(context: RunContext, head: str, path: Path) -> None:
    """Write a bundle to *path*, atomically: *context*, and *head*, the ledger's envelope hash at that moment.

    Pass the result of folding the ledger: the state that a `Recorder` holds has sealed values open, which would stay in
    the bundle, and `load` would refuse it. A context that exceeds canonical JSON (64 levels, 100,000 nodes) raises
    `IntakeError`.
    """
    with Folder.at(path.parent) as folder:
        folder.replace(path.name, _bundle(context, head))


def load(path: Path, ledger: Path | None = None) -> RunContext:
    """Return the context of the bundle at *path*, after comparing it with *ledger* (default: ``.events.jsonl`` beside).

    Every line of the ledger is checked (its hashes, its link to the line before). Raises `LedgerError`
    (``LEDGER_UNSOUND``) if that fails, if the bundle's head is not in the ledger, if folding up to the head gives
    another state, or if the ledger has moved the context on since.
    """
    with Folder.at(path.parent) as folder:
        raw = folder.read(path.name, limit=MAX_BYTES)
    head, run = _head(raw, path)
    ledger = ledger or path.parent / ".events.jsonl"
    with Folder.at(ledger.parent) as folder, folder.open(ledger.name) as lines:
        context = _fold_to(head, run, _check_lines(lines, ledger), ledger)
    if context is None or _bundle(context, head) != raw:
        raise _unsound("the bundle differs from the ledger; fold the ledger instead", place=str(path))
    return context


def read_contexts(ledger: Path) -> tuple[RunContexts, str]:
    """Return the contexts of the *ledger*, and its head, after checking each line as `load` does."""
    fold = ContextFold()
    contexts, head = fold.start(), ""
    with Folder.at(ledger.parent) as folder, folder.open(ledger.name) as lines:
        for line in _check_lines(lines, ledger):
            contexts = fold.step(contexts, line.event) if line.event else contexts
            head = line.hash
    return contexts, head


def _bundle(context: RunContext, head: str) -> bytes:
    return encode({"schema_version": "v2", "head": head, "context": context.as_json()})


def read_bundle(path: Path) -> dict[str, Any]:
    """Return the context that the bundle at *path* states, as JSON; it is compared with nothing.

    Raises `LedgerError` (``LEDGER_UNSOUND``) for a file that is no bundle.
    """
    with Folder.at(path.parent) as folder:
        bundle, _ = _parse_bundle(folder.read(path.name, limit=MAX_BYTES), path)
    stated: dict[str, Any] = bundle["context"]
    return stated


def _head(raw: bytes, path: Path) -> tuple[str, str]:
    """Return the head and the run that a bundle names."""
    bundle, run = _parse_bundle(raw, path)
    return str(bundle["head"]), run


def _parse_bundle(raw: bytes, path: Path) -> tuple[dict[str, Any], str]:
    """Return a bundle, and the run of its context."""
    told = _unsound("not a bundle of a context; expected an object with a head and a context", place=str(path))
    try:
        bundle = parse_payload(raw)
        if bundle["schema_version"] != "v2":
            raise _unsound("a bundle of another version; save it again with this version", place=str(path))
        if not isinstance(bundle["head"], str) or not isinstance(bundle["context"]["run"], str):
            raise told
        return bundle, bundle["context"]["run"]
    except IntakeError as problem:
        raise LedgerError(*told.errors, problem.error) from None
    except (KeyError, TypeError):
        raise told from None


class _Line(NamedTuple):
    """A checked line: its envelope hash, and the event if it is one of the context."""

    hash: str
    event: Event | None


def _fold_to(head: str, run: str, lines: Iterable[_Line], ledger: Path) -> RunContext | None:
    """Fold up to the line whose hash is *head*, and check that the context of *run* has not changed since."""
    fold = ContextFold()
    contexts = fold.start()
    found = False
    for line in lines:
        if found and line.event and line.event.parent == run:
            raise _unsound("the context has moved on since the bundle was saved; save it again", place=str(ledger))
        contexts = fold.step(contexts, line.event) if line.event else contexts
        found = found or line.hash == head
    if not found:
        raise _unsound(f"no line has the bundle's head {head[:64]}", place=str(ledger))
    return contexts.get(run)


def _check_lines(lines: BinaryIO, ledger: Path) -> Iterator[_Line]:
    previous = None
    for number, line in enumerate(iter(lambda: lines.readline(_MAX_LINE), b""), 1):
        if not line.endswith(b"\n") and len(line) < _MAX_LINE:
            return  # still being written, or torn: readers ignore it
        place = f"{ledger}:{number}"
        header = HEADER.match(line)
        if header is None or not line.endswith(b"}\n"):
            raise _unsound("not a line of format 1.1", place=place)
        part = {name: value.decode() for name, value in header.groupdict(b"").items()}
        payload = line[header.end() : -2]
        previous = previous or first_hash(part["session_id"])
        hashes = (digest(payload), previous, digest(line[: header.start("envelope_hash") - _HASH_KEY]))
        if hashes != (part["payload_hash"], part["prev_envelope_hash"], part["envelope_hash"]):
            raise _unsound("the line's hashes do not match; run deedbook verify", place=place)
        previous = part["envelope_hash"]
        yield _Line(previous, _event(part, payload, place))


def _event(part: Mapping[str, str], payload: bytes, place: str) -> Event | None:
    if not part["event_type"].startswith("context.") and part["event_type"] != REPORT:
        return None
    try:
        said = decode(payload)
    except ValueError:
        raise _unsound("the payload is no JSON", place=place) from None
    above = part["parent_span_id"] or None
    principal = part["principal"] or None
    return Event(
        int(part["seq"]), part["event_type"], part["actor"], principal, part["span_id"], above, part["ts"], said
    )


def _unsound(message: str, *, place: str) -> LedgerError:
    return LedgerError(fault("LEDGER_UNSOUND", message, place=place))
