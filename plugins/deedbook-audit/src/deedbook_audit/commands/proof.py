"""Checks a proof for ``deedbook verify --proof`` with the keys that the reader trusts, and prints the result."""

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
    from deedbook_audit.verification.evidence import ProofTrust

UNSOUND = 4


def check_proof(
    asked: GlobalOptions, place: str, log_keys: Sequence[str], witness_keys: Sequence[str], ledger: str | None = None
) -> int:
    """Check the proof in the file at *place*, and print the result: returns 0, or 4 if nothing is proved.

    A *ledger* is also compared with it.
    """
    from deedbook.format.terminal import plain
    from deedbook_audit.verification.evidence import compare_ledger, judge_proof

    verdict = judge_proof(_read_proof(place), _build_trust(asked, log_keys, witness_keys))
    if ledger:
        with _open_ledger(asked.workspace, ledger) as lines:
            verdict = compare_ledger(verdict, lines)
    if asked.json:
        as_json(verdict.as_json())
    else:
        first, *rest = map(plain, verdict.lines())
        (say if verdict.proved else report_error)(first)
        for line in rest:
            say(line)
    return 0 if verdict.proved else UNSOUND


@contextmanager
def _open_ledger(workspace: str, ledger: str) -> "Iterator[Lines]":
    from deedbook.format.events import MAX_PAYLOAD
    from deedbook.format.files import Folder
    from deedbook.format.lines import Lines

    from .ledgers import session_file

    place = session_file(workspace, ledger)
    with Folder.at(place.parent) as folder, folder.open(place.name) as file:
        yield Lines(file, MAX_PAYLOAD + 4096)


def _build_trust(asked: GlobalOptions, log_keys: Sequence[str], witness_keys: Sequence[str]) -> "ProofTrust":
    """Return the trusted keys: those given; else those of this workspace and of the reader's own key ring."""
    from deedbook.format.notes import VerifierKey, WitnessKey
    from deedbook_audit.trust import read_key
    from deedbook_audit.verification.evidence import ProofTrust

    section = _read_section(asked.workspace)
    keys = {VerifierKey.parse(read_key(key)): "--log-key" for key in log_keys}
    if not keys:
        keys = {VerifierKey.parse(key): "checkpoints.keys of the workspace here" for key in section.get("keys", ())}
        keys |= dict.fromkeys(_own_keys(), "your own key ring")
    names = (*map(read_key, witness_keys), *(each["key"] for each in section.get("witnesses", ())))
    return ProofTrust(keys, [WitnessKey.parse(name) for name in dict.fromkeys(names)])


def _read_section(workspace: str) -> "Mapping[str, Any]":
    """Return this workspace's settings of its log; empty if there are none, or they cannot be read."""
    from deedbook.format.errors import DeedbookError
    from deedbook.workspace.workspace import read_workspace

    try:
        return read_workspace(workspace).checkpoints
    except (DeedbookError, OSError):
        return {}


def _own_keys() -> "Iterator[VerifierKey]":
    """Yield the public halves of the log keys in the reader's own key ring."""
    from deedbook.approvals.keys import KeyRing
    from deedbook.format.errors import DeedbookError

    ring = KeyRing.of(os.environ)
    for name in ring.names():
        if name.startswith("ws-"):
            with suppress(DeedbookError):  # a key that is not stored safely does not count
                yield ring.load(name).public


def _read_proof(place: str) -> dict[str, Any]:
    """Read the proof; raises `LedgerError` if it does not have the form of one."""
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
        proof: dict[str, Any] = parse(raw)
    except IntakeError as problem:
        raise LedgerError(fault("LEDGER_UNSOUND", "NOT PROVED: this is no proof", place=place), problem.error) from None
    wrong = [str(each) for each in Schemas.load(data_folder("schemas")).validator("output_proof_v1").violations(proof)]
    if wrong:
        raise LedgerError(fault("LEDGER_UNSOUND", f"NOT PROVED: this is no proof: {wrong[0]}", place=place))
    return proof
