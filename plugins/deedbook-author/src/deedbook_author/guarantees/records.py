"""Attacks on records: changed ledgers, writers that cannot write, processes that are killed or compete."""

import os
import re
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from errno import ENOSPC
from hashlib import sha256
from pathlib import Path
from shutil import copytree, rmtree
from typing import Any, Final

from deedbook.charter.settings import CheckpointSettings
from deedbook.format.errors import DeedbookError, Err
from deedbook.format.paths import CHECKPOINT_FILE
from deedbook.format.reader import read
from deedbook.ledger.journal import DATASYNC
from deedbook.policy.kinds import KINDS
from deedbook.workspace.site import SETTINGS
from deedbook_audit.selection import StateFolder, select_all
from deedbook_audit.whole import verify
from deedbook_log.checkpoints.operations import LogOperations

from .attacks import Attack, PromiseBroken, expect
from .decisions import no_allowed, no_call
from .inert import OWN
from .rival import start_rival
from .target import Record, Target

_LIMIT: Final = resource.RLIMIT_FSIZE
_SPENDER: Final = f"{OWN}spender"
_SPENT: Final = 4


# --- verify -----------------------------------------------------------------------------------------------------------


def _verify(state: Path) -> tuple[bool, str]:
    """Return whether `deedbook verify` finds a state folder sound, and its summary."""
    found = verify(select_all(StateFolder(state)))
    lost = [str(gap) for gap in found.selection.lost]
    return found.verdict.sound and not lost, (lost or [found.verdict.summary])[0]


def _check_unchanged(target: Target) -> str:
    sound, why = target.verify_once(_verify)
    expect(sound, why)
    return why


def _unsound(target: Target) -> str:
    return "" if target.verify_once(_verify)[0] else "the records are not sound even unchanged: see sound-records"


def _tamper(change: Callable[[Record], None]) -> Callable[[Target], str]:
    """Return an attack that changes a copy of the records."""

    def run(target: Target) -> str:
        copy = target.record.copy()
        change(copy)
        sound, why = _verify(copy.state)
        expect(not sound, "`deedbook verify` does not notice it")
        return why

    return run


def _lines(place: Path) -> list[bytes]:
    return place.read_bytes().splitlines(keepends=True)


def _edit_line(record: Record) -> None:
    lines = _lines(record.ledger())
    lines[1] = re.sub(rb'("payload":\{".)', lambda found: found[1][:-1] + b"~", lines[1], count=1)
    record.ledger().write_bytes(b"".join(lines))


def _change_lines(change: Callable[[list[bytes]], list[bytes]]) -> Callable[[Record], None]:
    def run(record: Record) -> None:
        record.ledger().write_bytes(b"".join(change(_lines(record.ledger()))))

    return run


def _rewrite(record: Record) -> None:
    """Change what a session recorded, and compute every hash of its ledger again."""
    previous, lines = b"", list[bytes]()
    for raw in _lines(record.ledger()):
        line = raw.replace(b"recorded", b"rewritte").replace(b"guarantees/unknown", b"guarantees/unkn0wn")
        if b'"text"' not in line and lines:
            line = line.replace(b'"reason":"done"', b'"reason":"gone"')
        previous = _hash_again(line, previous, lines)
    record.ledger().write_bytes(b"".join(lines))


def _hash_again(line: bytes, previous: bytes, lines: list[bytes]) -> bytes:
    """Append *line* with new hashes to *lines*; return its own."""
    head, _, payload = line.rstrip(b"\n").partition(b',"payload":')
    own = sha256(payload.removesuffix(b"}")).hexdigest().encode()
    head = re.sub(rb'"payload_hash":"\w{64}"', b'"payload_hash":"%b"' % own, head)
    if previous:
        head = re.sub(rb'"prev_envelope_hash":"\w{64}"', b'"prev_envelope_hash":"%b"' % previous, head)
    head = head.partition(b',"envelope_hash"')[0]
    envelope = sha256(head).hexdigest().encode()
    lines.append(b'%b,"envelope_hash":"%b","payload":%b\n' % (head, envelope, payload))
    return envelope


def _without_second(lines: list[bytes]) -> list[bytes]:
    return lines[:1] + lines[2:]


def _with_second_twice(lines: list[bytes]) -> list[bytes]:
    return [*lines[:2], *lines[1:]]


def _with_swapped(lines: list[bytes]) -> list[bytes]:
    return [lines[0], lines[2], lines[1], *lines[3:]]


def _without_end(lines: list[bytes]) -> list[bytes]:
    return lines[:-2]


def _remove_session(record: Record) -> None:
    rmtree(record.ledger().parent)


def _swap_sessions(record: Record) -> None:
    one, two = record.ledger(), record.ledger(record.other)
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)


def _copy_session(record: Record) -> None:
    place = record.ledger().parent
    copytree(place, place.with_name(f"{record.session[:-1]}{'0' if record.session[-1] != '0' else '1'}"))


def _cut_workspace_ledger(record: Record) -> None:
    place = record.workspace_ledger
    place.write_bytes(b"".join(_lines(place)[:-2]))


# --- checkpoints ------------------------------------------------------------------------------------------------------


def _no_log(target: Target) -> str:
    if not (target.workspace.state / CHECKPOINT_FILE).exists() and not target.workspace.checkpoints:
        return "there is no log of checkpoints (deedbook keys rotate begins one), so none can be copied"
    return ""


def _copy_checkpoint(target: Target) -> str:
    """Replace the checkpoint of one log by that of another."""
    one, two = _begin_log(target), _begin_log(target)
    sound, why = _verify(one)
    expect(sound, f"the unchanged log is not sound: {why}")
    (one / CHECKPOINT_FILE).write_bytes((two / CHECKPOINT_FILE).read_bytes())
    sound, why = _verify(one)
    expect(not sound, "`deedbook verify` does not notice it")
    return why


def _begin_log(target: Target) -> Path:
    """Return the state folder of a copy with a finished session and a log of its own."""
    copy = target.variant()
    opened = target.open(copy)
    opened.attempt("guarantees/unknown", {})
    kernel = opened.kernel
    LogOperations(kernel.state, kernel.ledger, CheckpointSettings.read({}, copy.root)).rotate_key(lost=False)
    return copy.state


# --- writing ----------------------------------------------------------------------------------------------------------


def _record_first(target: Target) -> str:
    call, seen = target.allowed_call, list[bool]()
    with target.base.session(call.principal) as session:
        intent = KINDS[call.kind].intent
        target.base.effects.during = lambda _: seen.append(
            any(each.type == intent for each in read(session.ledger.place))
        )
        try:
            tried = target.base.attempt_in(session, call.ability, call.args)
        finally:
            target.base.effects.during = None
    expect(seen == [True], f"the effect of {call.ability} began before its intent was in the ledger: {tried}")
    return f"when the effect of {call.ability} began, the ledger had its {intent}"


def _fill_disk(target: Target) -> str:
    """Let the operating system refuse every further byte of the session's ledger, as a full disk does."""
    call = target.allowed_call
    with suppress(DeedbookError), target.base.session(call.principal) as session:
        before = len(target.base.effects.begun)
        with _file_limit(Path(session.ledger.place).stat().st_size):
            made = session.call(call.ability, dict(call.args))
        begun = len(target.base.effects.begun) - before
    expect(not begun, f"the effect of {call.ability} began although the ledger could not be written: {made}")
    if isinstance(made, Err):
        return f"{call.ability} was refused: {made.error.code}: {made.error.message}"
    raise PromiseBroken(f"{call.ability} has a result although the ledger could not be written")


@contextmanager
def _file_limit(size: int) -> Iterator[None]:
    """Let no file of this process grow beyond *size* bytes."""
    soft, hard = resource.getrlimit(_LIMIT)
    resource.setrlimit(_LIMIT, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(_LIMIT, (soft, hard))


def _no_durable(target: Target) -> str:
    if target.document["durability"] == "os":
        return f"{SETTINGS}: durability: os never waits for the disk"
    return target.why_not(lambda: target.allowed_write_call)


def _fail_sync(target: Target) -> str:
    call, failing = target.allowed_write_call, list[bool]()

    def fdatasync(descriptor: int) -> None:
        if failing:
            raise OSError(ENOSPC, os.strerror(ENOSPC))
        DATASYNC(descriptor)

    with suppress(DeedbookError), target.base.session(call.principal, fdatasync=fdatasync) as session:
        before = len(target.base.effects.begun)
        failing.append(True)
        made = session.call(call.ability, dict(call.args))
        begun = len(target.base.effects.begun) - before
    expect(not begun, f"the effect of {call.ability} began although its intent was not durable: {made}")
    if isinstance(made, Err):
        return f"{call.ability} was refused: {made.error.code}: {made.error.message}"
    raise PromiseBroken(f"{call.ability} has a result although its intent was not durable")


# --- processes --------------------------------------------------------------------------------------------------------


def _kill(target: Target) -> str:
    """Kill a process in the middle of an effect; the next start has to record the outcome as unknown."""
    call, session = target.allowed_call, target.rival.killed
    expect(session, f"the process was not killed in its call: {target.rival.error}")
    target.base.kernel.recover()
    events = list(read(target.scratch.state / "sessions" / session))
    intents = [event for event in events if event.type == KINDS[call.kind].intent]
    expect(len(intents) == 1, f"the session has {len(intents)} intents of {call.ability}, expected 1")
    outcomes = [event for event in events if event.parent == intents[0].span]
    unknown = len(outcomes) == 1 and outcomes[0].payload.get("outcome") == "unknown"
    found = [event.type for event in outcomes]
    expect(unknown, f"the call that was killed is not closed once, as unknown: {found}")
    return f"{call.ability} was killed after its intent; the next start recorded its outcome as unknown"


def _compete(target: Target) -> str:
    rival = target.rival
    expect(
        rival.refusal == "LEDGER_LOCKED",
        f"a second process could write an open session: {rival.refusal or rival.error}",
    )
    return f"a second process was refused: {rival.refusal}"


def _no_account(target: Target) -> str:
    budgets = [each for each in target.document["policies"].values() if each["plugin"] == ["policy", "budget"]]
    if not any(each["settings"].get("per", "session") != "session" for each in budgets):
        return "no budget over sessions is declared; a policy of the kind budget with per: makes this apply"
    return no_allowed(target)


def _overspend(target: Target) -> str:
    """Let two processes use one account at the same time."""
    copy, call = target.variant(), target.allowed_call
    rule = {"kind": "budget", "match": {"kind": ["tool", "memory"], "principals": [_SPENDER]}, "per": "workspace"}
    rule |= {"account": _SPENDER, "limits": {"calls": {"**": _SPENT}}}

    def add(settings: dict[str, Any]) -> None:
        settings.setdefault("policies", {})[_SPENDER] = rule

    copy.edit(add)
    opened = target.open(copy)
    with start_rival(target, copy, {"spend": _SPENT, "principal": _SPENDER}) as rival:
        own = sum(not opened.attempt(call.ability, call.args, _SPENDER).code for _ in range(_SPENT))
        other = rival.finish().spent
    expect(own + other <= _SPENT, f"with a limit of {_SPENT} calls, two processes made {own + other}")
    expect(own + other, "neither process could make a call under the budget, so nothing is shown")
    return f"two processes together made {own + other} calls with a limit of {_SPENT}"


# --- the list ---------------------------------------------------------------------------------------------------------


def _attack(name: str, promise: str, change: Callable[[Record], None]) -> Attack:
    return Attack(id=name, promise=promise, applies=_unsound, run=_tamper(change))


ATTACKS: Final = (
    Attack(
        id="sound-records", promise="What sessions record verifies, and its decisions can be derived again.",
        run=_check_unchanged,
    ),
    _attack("edited-line", "A changed line of a ledger is detected.", _edit_line),
    _attack("removed-line", "A removed line of a ledger is detected.", _change_lines(_without_second)),
    _attack(
        "swapped-lines", "Swapped lines of a ledger are detected.",
        _change_lines(_with_swapped),
    ),
    _attack("inserted-line", "An inserted line of a ledger is detected.", _change_lines(_with_second_twice)),
    _attack("cut-ledger", "A ledger whose end was cut off is detected.", _change_lines(_without_end)),
    _attack("rewritten-ledger", "A ledger that was rewritten with right hashes is detected.", _rewrite),
    _attack("removed-session", "A removed session is detected.", _remove_session),
    _attack("copied-session", "A session that was copied under another id is detected.", _copy_session),
    _attack("swapped-sessions", "Ledgers that changed places are detected.", _swap_sessions),
    _attack("cut-workspace-ledger", "A workspace ledger whose end was cut off is detected.", _cut_workspace_ledger),
    Attack(
        id="copied-checkpoint", promise="A checkpoint of another log is detected.", applies=_no_log,
        run=_copy_checkpoint,
    ),
    Attack(
        id="intent-before-effect", promise="An effect begins only after its intent is in the ledger.",
        applies=no_allowed, run=_record_first,
    ),
    Attack(
        id="full-disk", promise="If the ledger cannot be written, the effect does not begin.", applies=no_allowed,
        run=_fill_disk,
    ),
    Attack(
        id="failed-sync", promise="If the intent of a write is not durable, the effect does not begin.",
        applies=_no_durable, run=_fail_sync,
    ),
    Attack(
        id="second-process", promise="A second process cannot write the ledger of an open session.",
        applies=no_call, run=_compete,
    ),
    Attack(
        id="killed-process", promise="A call whose process was killed is recorded as unknown, and not made again.",
        applies=no_allowed, run=_kill,
    ),
    Attack(
        id="budget-overrun", promise="Two processes together never exceed a budget over sessions.",
        applies=_no_account, run=_overspend,
    ),
)  # fmt: skip
