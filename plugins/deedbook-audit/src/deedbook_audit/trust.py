"""Who vouches for what was verified: the workspace's log, checkpoints that others hold, witnesses, trusted keys."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeAlias

import attrs
import click

from deedbook.format.cosignatures import WitnessKey
from deedbook.format.errors import DeedbookError, FileRefused
from deedbook.format.events import SESSION_ID, timestamp
from deedbook.format.files import Folder
from deedbook.format.heads import Gap
from deedbook.format.notes import MAX_TEXT, VerifierKey
from deedbook.format.report import Report, failures_as_json

from .selection import Audited, Selection, session_ledger
from .submission import Http, Shared
from .verification.forks import forks
from .verification.held import Held, Trust, contradiction, distrusted, misnamed, read_held, unlogged, unsigned
from .verification.leaves import misfits
from .verification.log import Log, Seen, named, read_log
from .verification.verdict import Contradiction, Covered

OwnKeys: TypeAlias = Callable[[Log], Iterable[VerifierKey]]
"""Returns the public keys of a log whose private halves the reader has."""

STATE_FILE: Final = "checkpoint"
ORIGIN: Final = "deedbook/"


@attrs.frozen
class TrustInputs:
    """What a reader brings along: public *keys* of the log and *witnesses*, *checkpoints* in files, *places* to ask."""

    keys: Sequence[str] = ()
    witnesses: Sequence[str] = ()
    checkpoints: Sequence[str] = ()
    places: Sequence[str] = ()


@attrs.frozen
class TrustReport:
    """What the log, and whoever holds checkpoints of it, say of the ledgers; *part* is of the log itself, as JSON."""

    contradictions: Sequence[Contradiction] = ()
    covered: Covered | None = None
    notes: Sequence[str] = ()
    part: dict[str, Any] | None = None


def no_keys(_: Log) -> Iterable[VerifierKey]:
    """Return no key: the reader has no key ring, or none that counts."""
    return ()


def check_trust(
    selection: Selection, reports: Sequence[Report], inputs: TrustInputs, own_keys: OwnKeys = no_keys
) -> TrustReport:
    """Check what was selected, and its *reports*, against the log of its workspace, and that against *inputs*.

    Where neither *inputs* nor the settings name a key, *own_keys* does.
    """
    source = selection.source if selection.inside else None
    missing = [*map(_missing, (*selection.lost, *_strayed(selection)))]
    found = list(_swapped(selection, reports))
    if source is None:
        _refuse_unheld(inputs)
        return TrustReport([*found, *missing], notes=selection.notes)
    identity, notes = named(source.state), list(selection.notes)
    trust = _trust(source, inputs, identity)
    held = list(_held(source, identity, trust, inputs, found, notes))  # before the log, which is written first
    log = read_log(source.state)
    found += misnamed(log.identity if log else None, trust)
    if log is not None and log.newest is None and (none := unsigned(log.identity, trust)):
        found.append(none)
    if log is None or not (log.keys or log.size):
        identity = log.identity if log else "the workspace ledger"
        return TrustReport([*found, *missing, *(unlogged(each, identity) for each in held)], notes=notes)
    trust = trust if trust.keys else attrs.evolve(trust, keys=[*own_keys(log)])
    found += [each for each in (contradiction(log, one, trust) for one in held) if each]
    found += [contradicting for contradicting in [log.newest and distrusted(log, log.newest, trust)] if contradicting]
    found += _rules(log)
    found += misfits(log, source.state, [selection.session] if selection.session else None)
    covered = None if found else _covered(log, trust, held, reports)
    return TrustReport([*found, *missing], covered, notes, _part(log))


def _strayed(selection: Selection) -> Iterator[Gap]:
    """Yield where a fork among what was selected is not what its parent in the workspace has."""
    source = selection.source
    if source is None:
        return

    def find(name: str) -> Path | None:
        return session_ledger(source.state, name) if SESSION_ID.fullmatch(name) else None

    for file in selection.files:
        with suppress(DeedbookError, OSError):  # the file's own verification says what is wrong with it
            yield from forks(file, find)


def _missing(gap: Gap) -> Contradiction:
    """Say what a session's file lacks as a contradiction: it is shorter than it was, or another one."""
    why = str(gap)
    if gap.check in ("events", "file"):
        return Contradiction("rolled_back", gap.subject, None, why)
    words = gap.check.rpartition("of line ")
    seq = int(words[2]) - 1 if words[1] and words[2].isdigit() else None
    return Contradiction("broken", gap.subject, seq, why)


def _swapped(selection: Selection, reports: Sequence[Report]) -> Iterator[Contradiction]:
    """Yield every session in whose place lies the ledger of another."""
    if selection.source is None or not selection.inside:
        return
    for report in reports:
        name = Path(report.file).absolute().parent.name
        if report.state != "workspace" and report.session_id not in (None, name):
            why = f"in its place lies the ledger of {report.session_id}"
            yield Contradiction("broken", f"session {name}", 0, why)


def _refuse_unheld(inputs: TrustInputs) -> None:
    """Raise `click.UsageError` for what was to be held against a ledger that belongs to no log that is known here."""
    if given := [*inputs.checkpoints, *inputs.places]:
        why = "the ledger belongs to no log that is known here, so nothing can be held against it"
        raise click.UsageError(f"{given[0]} would not be looked at: {why}; name its state folder, or leave it out")


# --- whom to believe --------------------------------------------------------------------------------------------------


def _trust(source: Audited, inputs: TrustInputs, identity: str | None) -> Trust:
    """Return whom to believe: what the reader named, and of the settings' keys those of this log, if any is.

    Settings may be shared by several state folders, each with a log of its own; what a reader names is meant.
    """
    said = source.checkpoints
    told = [VerifierKey.parse(key) for key in said.get("keys", ())]
    ours = [key for key in told if key.name == f"{ORIGIN}{identity}"]
    keys = [*(ours or told), *(VerifierKey.parse(read_key(key)) for key in inputs.keys)]
    named = (*(each["key"] for each in said.get("witnesses", ())), *map(read_key, inputs.witnesses))
    return Trust(keys, [WitnessKey.parse(key) for key in named])


def read_key(given: str) -> str:
    """Return a public key as it was *given*, or the one in the file of that name."""
    place = Path(given)
    if "+" in given and not place.exists():
        return given
    try:
        with Folder.at(place.parent) as folder:
            return folder.read(place.name, limit=MAX_TEXT).decode(errors="replace").strip()
    except FileNotFoundError:
        raise click.BadParameter(f"{given!r} is no key, and no file that holds one") from None


# --- what others hold -------------------------------------------------------------------------------------------------


def _held(
    source: Audited,
    identity: str | None,
    trust: Trust,
    inputs: TrustInputs,
    found: list[Contradiction],
    notes: list[str],
) -> Iterator[Held]:
    """Yield every checkpoint that is held elsewhere.

    *found* is told of what was asked for and could not be seen, *notes* of what nobody asked for by name.
    """
    for place, text in _kept(source, found):
        held = read_held(place, text)
        if isinstance(held, str):
            why = f"it is no signed checkpoint: {held}"
            found.append(Contradiction("broken", STATE_FILE, None, why))
        else:
            yield held
    for place in inputs.checkpoints:
        held = read_held(place, _file(place))
        if isinstance(held, str):
            raise click.BadParameter(f"this is no checkpoint: {held}", param_hint="--checkpoint")
        yield held
    origins = dict.fromkeys((*([f"{ORIGIN}{identity}"] if identity else []), *(key.name for key in trust.keys)))
    for place, wanted in _places(source, inputs).items():
        for held in _asked(place, origins):
            if not isinstance(held, str):
                yield held
            elif wanted:
                found.append(Contradiction("unseen", "the workspace ledger", None, f"the witness at {place} {held}"))
            else:
                notes.append(f"the witness at {place} {held}")


def _kept(source: Audited, found: list[Contradiction]) -> Iterator[tuple[str, str]]:
    """Yield the newest checkpoint of the state folder, if there is one; *found* is told of one that cannot be read."""
    try:
        with Folder.at(source.state) as folder:
            text = folder.read(STATE_FILE, limit=MAX_TEXT).decode(errors="replace")
    except FileNotFoundError:
        return
    except FileRefused as problem:
        found.append(Contradiction("broken", STATE_FILE, None, problem.error.message))
        return
    yield str(source.state / STATE_FILE), text


def _file(place: str) -> str:

    try:
        with Folder.at(Path(place).parent) as folder:
            return folder.read(Path(place).name, limit=MAX_TEXT).decode(errors="replace")
    except FileNotFoundError:
        raise click.BadParameter(f"there is no file {place!r}", param_hint="--checkpoint") from None


def _places(source: Audited, inputs: TrustInputs) -> dict[str, bool]:
    """Return the witnesses to ask, and whether the reader named them, which those at an address have to be.

    Raises `click.BadParameter` for what can be no witness.
    """
    said = source.checkpoints.get("witnesses", ())
    folders = [str(source.root / Path(each["folder"]).expanduser()) for each in said if each.get("folder")]
    for place in inputs.places:
        if "://" in place and not place.startswith(("http://", "https://")):
            raise click.BadParameter(f"{place!r} is neither a folder nor http:// or https://", param_hint="--witness")
        if "://" not in place and not Path(place).is_dir():
            raise click.BadParameter(f"there is no folder {place!r}", param_hint="--witness")
    return dict.fromkeys(folders, False) | dict.fromkeys(inputs.places, True)


def _asked(place: str, origins: Iterable[str]) -> Iterator[Held | str]:
    """Ask the witness at *place* for its newest checkpoints of logs; a text says why there is none."""
    channel = Http(place) if "://" in place else Shared(Path(place))
    if "://" not in place and not Path(place).is_dir():
        yield "could not be asked: there is no such folder"
        return
    texts: list[str] = []
    for origin in origins:
        try:
            text = channel.newest(origin)
        except (DeedbookError, OSError) as problem:
            yield f"could not be asked: {problem}"
            return
        if text is not None:
            texts.append(text)
    for text in texts:
        held = read_held(f"the witness at {place}", text)
        yield f"answers what is no checkpoint: {held}" if isinstance(held, str) else held
    if not texts:
        yield "has no checkpoint of this log: it never saw it, or knows another one that stood here before"


# --- what it comes to -------------------------------------------------------------------------------------------------


def _rules(log: Log) -> list[Contradiction]:

    return [
        Contradiction(
            "broken",
            "the workspace ledger",
            failure.line - 1,
            f"{failure.check}: expected {failure.expected}, found {failure.found}",
        )
        for failure in log.findings.part().failures
    ]


def _covered(log: Log, trust: Trust, held: Sequence[Held], reports: Sequence[Report]) -> Covered | None:

    newest = log.newest
    if newest is None or newest.key is None:
        return None
    after: dict[str, int] = {}
    for report in reports:
        name = report.session_id or ""
        if name == log.identity:
            after[name] = max(0, report.events - newest.seq - 1)  # it may have grown since it was read
        elif lines := log.covered(name):
            after[name] = max(0, report.events - lines)
    seen = [*log.seen, *(each for one in held for each in trust.seen(one))]
    key = f"key {newest.key.id}, {trust.of(log, newest.key)}"
    return Covered(newest.size, newest.ts, key, _seen(newest.size, seen, trust), after)


def _seen(size: int, seen: Sequence[Seen], trust: Trust) -> str:
    """Say which trusted witness saw most of the log, and when."""
    most = max(
        (each for each in seen if each.witness in trust.witnesses and each.size <= size),
        key=lambda each: (each.size, -each.time),
        default=None,
    )
    if most is None:
        return ""
    upto = "" if most.size == size else f"up to checkpoint {most.size} "
    return f"{upto}by {most.witness.name} at {timestamp(most.time)}"


def _part(log: Log) -> dict[str, Any]:

    part = log.findings.part()
    told = {"origin": log.origin, "leaves": log.size, "checkpoints": log.signed}
    return told | failures_as_json(part)
