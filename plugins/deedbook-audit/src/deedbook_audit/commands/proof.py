"""Checking a proof for ``deedbook verify --proof``: what the reader believes, and what is said."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from deedbook.cli.common import GlobalOptions
from deedbook.cli.output import as_json, report_error, say

if TYPE_CHECKING:
    from deedbook.format.lines import Lines
    from deedbook.format.notes import VerifierKey
    from deedbook_audit.verification.evidence import Trust

UNSOUND = 4


def check_proof(
    asked: GlobalOptions, place: str, log_keys: Sequence[str], witness_keys: Sequence[str], ledger: str | None = None
) -> int:
    """Check the proof in the file at *place*, and say what it comes to: 0, or 4 where nothing is proved.

    A *ledger* is held against it, too.
    """
    from deedbook.format.terminal import plain
    from deedbook_audit.verification.evidence import check, held_against

    verdict = check(_proof(place), _trust(asked, log_keys, witness_keys))
    if ledger:
        with _opened(asked.workspace, ledger) as lines:
            verdict = held_against(verdict, lines)
    if asked.json:
        as_json(verdict.as_json())
    else:
        first, *rest = map(plain, verdict.lines())
        (say if verdict.proved else report_error)(first)
        for line in rest:
            say(line)
    return 0 if verdict.proved else UNSOUND


@contextmanager
def _opened(workspace: str, ledger: str) -> "Iterator[Lines]":
    from deedbook.cli.ledgers import session_file
    from deedbook.format.events import MAX_PAYLOAD
    from deedbook.format.files import Folder
    from deedbook.format.lines import Lines

    place = session_file(workspace, ledger)
    with Folder.at(place.parent) as folder, folder.open(place.name) as file:
        yield Lines(file, MAX_PAYLOAD + 4096)


def _trust(asked: GlobalOptions, log_keys: Sequence[str], witness_keys: Sequence[str]) -> "Trust":
    """Return what the reader believes: what was given; else what the workspace here names, and the own key ring has."""
    from deedbook.format.cosignatures import WitnessKey
    from deedbook.format.notes import VerifierKey
    from deedbook_audit.trust import read_key
    from deedbook_audit.verification.evidence import Trust

    said = _section(asked.workspace)
    keys = {VerifierKey.parse(read_key(key)): "--log-key" for key in log_keys}
    if not keys:
        keys = {VerifierKey.parse(key): "checkpoints.keys of the workspace here" for key in said.get("keys", ())}
        keys |= dict.fromkeys(_own_keys(), "your own key ring")
    names = (*map(read_key, witness_keys), *(each["key"] for each in said.get("witnesses", ())))
    return Trust(keys, [WitnessKey.parse(name) for name in dict.fromkeys(names)])


def _section(workspace: str) -> "Mapping[str, Any]":
    """Return what the workspace here says of its log; nothing where there is none, or none that can be read."""
    from deedbook.format.errors import DeedbookError
    from deedbook.workspace.workspace import read_workspace

    try:
        return read_workspace(workspace).checkpoints
    except (DeedbookError, OSError):
        return {}


def _own_keys() -> "Iterator[VerifierKey]":
    """Yield the public halves of the keys of logs that whoever asks has in their own key ring."""
    from deedbook.approvals.keys import KeyRing
    from deedbook.format.errors import DeedbookError

    ring = KeyRing.of(os.environ)
    for name in ring.names():
        if name.startswith("ws-"):
            with suppress(DeedbookError):  # one that is not kept safely vouches for nothing
                yield ring.load(name).public


def _proof(place: str) -> dict[str, Any]:
    """Read the proof; what has not its form proves nothing."""
    from deedbook.format.canonical import MAX_BYTES, parse
    from deedbook.format.errors import IntakeError, LedgerError, fault
    from deedbook.format.files import Folder
    from deedbook.format.schema import Schemas, data_folder

    try:
        with Folder.at(Path(place).parent) as folder:
            raw = folder.read(Path(place).name, limit=MAX_BYTES)
    except FileNotFoundError:
        raise click.BadParameter(f"there is no file {place!r}", param_hint="--proof") from None
    try:
        told: dict[str, Any] = parse(raw)
    except IntakeError as problem:
        raise LedgerError(fault("LEDGER_UNSOUND", "NOT PROVED: this is no proof", place=place), problem.error) from None
    wrong = [str(each) for each in Schemas.load(data_folder("schemas")).validator("output_proof_v1").violations(told)]
    if wrong:
        raise LedgerError(fault("LEDGER_UNSOUND", f"NOT PROVED: this is no proof: {wrong[0]}", place=place))
    return told
