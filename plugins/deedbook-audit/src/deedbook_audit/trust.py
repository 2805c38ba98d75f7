"""Trust in the verified ledgers: the workspace's log, external checkpoints, witnesses, and trusted keys."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeAlias

import attrs
import click

from deedbook.format.errors import DeedbookError, FileRefused
from deedbook.format.events import SESSION_ID, timestamp
from deedbook.format.files import Folder
from deedbook.format.heads import Gap
from deedbook.format.notes import MAX_TEXT, VerifierKey, WitnessKey

from .report import Report, failures_as_json
from .selection import AuditedWorkspace, Selection, get_session_ledger
from .submission import FolderChannel, HttpChannel
from .verification.external_checkpoints import (
    ExternalCheckpoint,
    LogTrust,
    find_contradiction,
    find_foreign_keys,
    find_missing_checkpoint,
    find_untrusted_key,
    parse_checkpoint,
    report_missing_log,
)
from .verification.forks import compare_fork
from .verification.leaves import compare_leaves
from .verification.log import Cosignature, Log, read_identity, read_log
from .verification.verdict import Contradiction, Coverage

OwnKeys: TypeAlias = Callable[[Log], Iterable[VerifierKey]]
"""Returns the public keys of a log whose private halves the reader has."""

STATE_FILE: Final = "checkpoint"
ORIGIN: Final = "deedbook/"


@attrs.frozen
class TrustInputs:
    """The reader's inputs: *keys* of the log and of *witnesses*, *checkpoints* in files, *places* of witnesses."""

    keys: Sequence[str] = ()
    witnesses: Sequence[str] = ()
    checkpoints: Sequence[str] = ()
    places: Sequence[str] = ()


@attrs.frozen
class TrustReport:
    """The contradictions between the ledgers, the log and external checkpoints; *part* is the log's part, as JSON."""

    contradictions: Sequence[Contradiction] = ()
    covered: Coverage | None = None
    notes: Sequence[str] = ()
    part: dict[str, Any] | None = None


def no_keys(_: Log) -> Iterable[VerifierKey]:
    """Return no keys: the reader has no key ring, or does not use it."""
    return ()


def check_trust(
    selection: Selection, reports: Sequence[Report], inputs: TrustInputs, own_keys: OwnKeys = no_keys
) -> TrustReport:
    """Check the selection, and its *reports*, against the log of its workspace, and the log against *inputs*.

    If neither *inputs* nor the settings name a key, *own_keys* does.
    """
    source = selection.source if selection.inside else None
    missing = [*map(_to_contradiction, (*selection.lost, *_check_forks(selection)))]
    found = list(_check_swapped(selection, reports))
    if source is None:
        _refuse_unusable(inputs)
        return TrustReport([*found, *missing], notes=selection.notes)
    identity, notes = read_identity(source.state), list(selection.notes)
    trust = _build_trust(source, inputs, identity)
    checkpoint = list(
        _collect_checkpoints(source, identity, trust, inputs, found, notes)
    )  # before the log, which is written before them
    log = read_log(source.state)
    found += find_foreign_keys(log.identity if log else None, trust)
    if log is not None and log.newest is None and (none := find_missing_checkpoint(log.identity, trust)):
        found.append(none)
    if log is None or not (log.keys or log.size):
        identity = log.identity if log else "the workspace ledger"
        return TrustReport(
            [*found, *missing, *(report_missing_log(each, identity) for each in checkpoint)], notes=notes
        )
    notes += _describe_missing_file(source.state, log)
    trust = trust if trust.keys else attrs.evolve(trust, keys=[*own_keys(log)])
    found += [each for each in (find_contradiction(log, one, trust) for one in checkpoint) if each]
    found += [
        contradicting for contradicting in [log.newest and find_untrusted_key(log, log.newest, trust)] if contradicting
    ]
    found += _list_failures(log)
    found += compare_leaves(log, source.state, [selection.session] if selection.session else None)
    covered = None if found else _find_coverage(log, trust, checkpoint, reports)
    return TrustReport([*found, *missing], covered, notes, _build_part(log))


def _check_forks(selection: Selection) -> Iterator[Gap]:
    """Yield the differences between selected forks and their parents in the workspace."""
    source = selection.source
    if source is None:
        return

    def find(name: str) -> Path | None:
        return get_session_ledger(source.state, name) if SESSION_ID.fullmatch(name) else None

    for file in selection.files:
        with suppress(DeedbookError, OSError):  # the file's own verification says what is wrong with it
            yield from compare_fork(file, find)


def _to_contradiction(gap: Gap) -> Contradiction:
    """Return a gap in a session's file as a contradiction: the file is shorter than it was, or another one."""
    why = str(gap)
    if gap.check in ("events", "file"):
        return Contradiction("rolled_back", gap.subject, None, why)
    words = gap.check.rpartition("of line ")
    seq = int(words[2]) - 1 if words[1] and words[2].isdigit() else None
    return Contradiction("broken", gap.subject, seq, why)


def _check_swapped(selection: Selection, reports: Sequence[Report]) -> Iterator[Contradiction]:
    """Yield every session whose place holds the ledger of another session."""
    if selection.source is None or not selection.inside:
        return
    for report in reports:
        name = Path(report.file).absolute().parent.name
        if report.state != "workspace" and report.session_id not in (None, name):
            why = f"in its place lies the ledger of {report.session_id}"
            yield Contradiction("broken", f"session {name}", 0, why)


def _refuse_unusable(inputs: TrustInputs) -> None:
    """Raise `click.UsageError` for inputs that cannot be compared with a ledger that belongs to no known log."""
    if given := [*inputs.checkpoints, *inputs.places]:
        why = "the ledger belongs to no log that is known here, so nothing can be held against it"
        raise click.UsageError(f"{given[0]} would not be looked at: {why}; name its state folder, or leave it out")


# --- trusted keys ---------------------------------------------------------------------------------------------------


def _build_trust(source: AuditedWorkspace, inputs: TrustInputs, identity: str | None) -> LogTrust:
    """Return the trusted keys: those that the reader named, and those of the settings for this log, if any.

    Several state folders, each with its own log, may share settings; keys that the reader names always count.
    """
    settings = source.checkpoints
    configured = [VerifierKey.parse(key) for key in settings.get("keys", ())]
    ours = [key for key in configured if key.name == f"{ORIGIN}{identity}"]
    keys = [*(ours or configured), *(VerifierKey.parse(read_key(key)) for key in inputs.keys)]
    witness_keys = (*(each["key"] for each in settings.get("witnesses", ())), *map(read_key, inputs.witnesses))
    return LogTrust(keys, [WitnessKey.parse(key) for key in witness_keys])


def read_key(given: str) -> str:
    """Return a public key as *given*, or the key in the file of that name."""
    place = Path(given)
    if "+" in given and not place.exists():
        return given
    try:
        with Folder.at(place.parent) as folder:
            return folder.read(place.name, limit=MAX_TEXT).decode(errors="replace").strip()
    except FileNotFoundError:
        raise click.BadParameter(f"{given!r} is no key, and no file that holds one") from None


# --- external checkpoints -------------------------------------------------------------------------------------------


def _collect_checkpoints(
    source: AuditedWorkspace,
    identity: str | None,
    trust: LogTrust,
    inputs: TrustInputs,
    found: list[Contradiction],
    notes: list[str],
) -> Iterator[ExternalCheckpoint]:
    """Yield every external checkpoint.

    Failures of sources that the reader named go to *found*, failures of other sources to *notes*.
    """
    for place, text in _read_state_checkpoint(source, found):
        checkpoint = parse_checkpoint(place, text)
        if isinstance(checkpoint, str):
            why = f"it is no signed checkpoint: {checkpoint}"
            found.append(Contradiction("broken", STATE_FILE, None, why))
        else:
            yield checkpoint
    for place in inputs.checkpoints:
        checkpoint = parse_checkpoint(place, _read_file(place))
        if isinstance(checkpoint, str):
            raise click.BadParameter(f"this is no checkpoint: {checkpoint}", param_hint="--checkpoint")
        yield checkpoint
    origins = dict.fromkeys((*([f"{ORIGIN}{identity}"] if identity else []), *(key.name for key in trust.keys)))
    for place, wanted in _list_witnesses(source, inputs).items():
        for checkpoint in _ask_witness(place, origins):
            if not isinstance(checkpoint, str):
                yield checkpoint
            elif wanted:
                found.append(
                    Contradiction("unseen", "the workspace ledger", None, f"the witness at {place} {checkpoint}")
                )
            else:
                notes.append(f"the witness at {place} {checkpoint}")


def _read_state_checkpoint(source: AuditedWorkspace, found: list[Contradiction]) -> Iterator[tuple[str, str]]:
    """Yield the newest checkpoint in the state folder, if there is one; an unreadable one goes to *found*."""
    try:
        with Folder.at(source.state) as folder:
            text = folder.read(STATE_FILE, limit=MAX_TEXT).decode(errors="replace")
    except FileNotFoundError:
        return
    except FileRefused as problem:
        found.append(Contradiction("broken", STATE_FILE, None, problem.error.message))
        return
    yield str(source.state / STATE_FILE), text


def _describe_missing_file(state: Path, log: Log) -> Iterator[str]:
    """Yield a note if the *log* has a checkpoint, and the state folder has no file of it. A crash can cause that."""
    place = state / STATE_FILE
    if log.newest and not os.path.lexists(place):
        why = "if its end was cut off, only a checkpoint or a witness elsewhere shows it"
        yield f"{place} is missing: the checkpoints were read from the workspace ledger; {why}"


def _read_file(place: str) -> str:

    try:
        with Folder.at(Path(place).parent) as folder:
            return folder.read(Path(place).name, limit=MAX_TEXT).decode(errors="replace")
    except FileNotFoundError:
        raise click.BadParameter(f"there is no file {place!r}", param_hint="--checkpoint") from None


def _list_witnesses(source: AuditedWorkspace, inputs: TrustInputs) -> dict[str, bool]:
    """Return the witnesses to ask, and whether the reader named them; one at a URL has to be named.

    Raises `click.BadParameter` for a place that cannot be a witness.
    """
    configured = source.checkpoints.get("witnesses", ())
    folders = [str(source.root / Path(each["folder"]).expanduser()) for each in configured if each.get("folder")]
    for place in inputs.places:
        if "://" in place and not place.startswith(("http://", "https://")):
            raise click.BadParameter(f"{place!r} is neither a folder nor http:// or https://", param_hint="--witness")
        if "://" not in place and not Path(place).is_dir():
            raise click.BadParameter(f"there is no folder {place!r}", param_hint="--witness")
    return dict.fromkeys(folders, False) | dict.fromkeys(inputs.places, True)


def _ask_witness(place: str, origins: Iterable[str]) -> Iterator[ExternalCheckpoint | str]:
    """Yield the newest checkpoints that the witness at *place* has of logs; a text says why there is none."""
    channel = HttpChannel(place) if "://" in place else FolderChannel(Path(place))
    if "://" not in place and not Path(place).is_dir():
        yield "could not be asked: there is no such folder"
        return
    texts: list[str] = []
    for origin in origins:
        try:
            text = channel.fetch_newest(origin)
        except (DeedbookError, OSError) as problem:
            yield f"could not be asked: {problem}"
            return
        if text is not None:
            texts.append(text)
    for text in texts:
        checkpoint = parse_checkpoint(f"the witness at {place}", text)
        yield f"answers what is no checkpoint: {checkpoint}" if isinstance(checkpoint, str) else checkpoint
    if not texts:
        yield "has no checkpoint of this log: it never saw it, or knows another one that stood here before"


# --- results --------------------------------------------------------------------------------------------------------


def _list_failures(log: Log) -> list[Contradiction]:

    return [
        Contradiction(
            "broken",
            "the workspace ledger",
            failure.line - 1,
            f"{failure.check}: expected {failure.expected}, found {failure.found}",
        )
        for failure in log.findings.part().failures
    ]


def _find_coverage(
    log: Log, trust: LogTrust, checkpoint: Sequence[ExternalCheckpoint], reports: Sequence[Report]
) -> Coverage | None:

    newest = log.newest
    if newest is None or newest.key is None:
        return None
    after: dict[str, int] = {}
    for report in reports:
        name = report.session_id or ""
        if name == log.identity:
            after[name] = max(0, report.events - newest.seq - 1)  # the ledger may have grown since it was read
        elif lines := log.count_covered(name):
            after[name] = max(0, report.events - lines)
    cosignatures = [*log.cosignatures, *(each for one in checkpoint for each in trust.find_cosignatures(one))]
    key = f"key {newest.key.id}, {trust.explain_key(log, newest.key)}"
    return Coverage(newest.size, newest.ts, key, _describe_witness(newest.size, cosignatures, trust), after)


def _describe_witness(size: int, cosignatures: Sequence[Cosignature], trust: LogTrust) -> str:
    """Return the trusted witness that cosigned most of the log, and the time of that."""
    most = max(
        (each for each in cosignatures if each.witness in trust.witnesses and each.size <= size),
        key=lambda each: (each.size, -each.time),
        default=None,
    )
    if most is None:
        return ""
    upto = "" if most.size == size else f"up to checkpoint {most.size} "
    return f"{upto}by {most.witness.name} at {timestamp(most.time)}"


def _build_part(log: Log) -> dict[str, Any]:

    part = log.findings.part()
    counts = {"origin": log.origin, "leaves": log.size, "checkpoints": log.checkpoints}
    return counts | failures_as_json(part)
