"""Manipulations by name, and what a verifier has to say of each, whoever vouches for the workspace.

Each ledger by itself is made sound wherever that can be, so that only what holds the ledgers together finds what was
done. Changes of single lines are in ``test_tampering.py``, and `logged` has those that a log finds.
"""

import os
import shutil

from .manipulations import (
    Manipulation,
    also,
    committed,
    cut,
    hard_linked,
    header,
    imported,
    invented,
    linked,
    piped,
    put_back,
    put_in_place,
    raw,
    sealed,
    sealed_folder,
    sealed_from_another,
    sealed_link,
    sealed_swapped,
    swapped,
    taken_out,
    told,
    twice,
    unknown_import,
    without,
)
from .states import HOME, State

M = Manipulation
EVENTS, LINE, NONE, REFUSED = "events", r"envelope_hash of line \d+", "file", "readable"

SESSIONS = {
    "last line of an ended session cut": M(cut("call", -1), "call", EVENTS),
    "half a session cut": M(cut("call", 2), "call", EVENTS),
    "all but the root cut": M(cut("call", 1), "call", EVENTS),
    "a session emptied": M(cut("call", 0), "call", EVENTS),
    "a session cut within a line": M(
        lambda state: os.truncate(state.file("call"), state.file("call").stat().st_size - 20), "call", "torn"
    ),
    "a session's ledger deleted": M(lambda state: state.file("call").unlink(), "call", NONE),
    "a session deleted": M(lambda state: shutil.rmtree(state.folder("call")), "call", NONE),
    "all sessions deleted": M(lambda state: shutil.rmtree(state.state / "sessions"), "call", NONE),
    "two sessions swapped": M(swapped("call", "other"), "call", LINE),
    "a session in another's place": M(put_in_place("call", "other"), "call", LINE),
    "a session renamed": M(lambda state: state.folder("call").rename(state.folder("d" * 32)), "call", NONE),
    "a session that never was": M(invented, "e" * 32, "head"),
    "an argument changed and hashed anew": M(told("call", "tool.call", args={"text": "rm"}), "call", LINE),
    "a result changed and hashed anew": M(told("call", "tool.result", result={"text": "rm"}), "call", LINE),
    "an ability changed and hashed anew": M(told("call", "tool.call", tool_name="asked"), "call", LINE),
    "a result left out and hashed anew": M(without("call", "tool.result"), "call", EVENTS),
    "a call left out and hashed anew": M(
        also(without("call", "tool.result"), without("call", "tool.call")), "call", EVENTS
    ),
    "a call twice and hashed anew": M(twice("call", "tool.call"), "call", LINE),
    "a principal changed and hashed anew": M(header("call", "tool.call", principal="eve"), "call", LINE),
    "an actor changed and hashed anew": M(header("call", "tool.call", actor="agent"), "call", LINE),
    "a time changed and hashed anew": M(header("call", "tool.call", ts="2020-01-01T00:00:00.000Z"), "call", LINE),
    "a trace changed and hashed anew": M(
        lambda state: state.edit("call", lambda events: [e for e in events if not e.header.update(trace_id="ab" * 16)]),
        "call",
        f"{LINE}|trace_id",
    ),
    "the charter of a session changed and hashed anew": M(
        told("call", "session.start", charter="0" * 64), "call", LINE
    ),
    "the principal of a session changed": M(
        told("call", "session.start", principal=lambda before: before | {"roles": ["owner"]}), "call", LINE
    ),
    "a failed end told as a good one": M(told("call", "session.end", ok=lambda before: not before), "call", LINE),
    "a byte of a session": M(raw("call", b'"text":"hi"', b'"text":"ho"'), "call", "payload_hash"),
    "a session is a symbolic link": M(linked("call"), "call", REFUSED),
    "a session has a second name": M(hard_linked("call"), "call", REFUSED),
    "a session is a pipe": M(piped("call"), "call", REFUSED),
    "a session is a folder": M(
        lambda state: (state.file("call").unlink(), state.file("call").mkdir()), "call", REFUSED
    ),
}
"""Sessions, of which the workspace ledger recorded what they were."""

SEALED = {
    "a sealed value changed": M(sealed(lambda old: old[:-2] + b'x"'), "sealed", "sealed"),
    "a salt changed": M(sealed(lambda old: bytes(32) + old[32:]), "sealed", "sealed"),
    "a sealed value cut": M(sealed(lambda old: old[:-1]), "sealed", "sealed"),
    "a sealed value emptied": M(sealed(lambda _: b""), "sealed", "sealed"),
    "a sealed value continued": M(sealed(lambda old: old + b" "), "sealed", "sealed"),
    "a sealed value and its salt shifted": M(sealed(lambda old: old[1:] + old[:1]), "sealed", "sealed"),
    "sealed values swapped": M(sealed_swapped, "sealed", "sealed"),
    "another session's sealed value": M(sealed_from_another, "sealed", "sealed"),
    "a sealed value is a link": M(sealed_link, "sealed", "sealed"),
    "a sealed value is a folder": M(sealed_folder, "sealed", "sealed"),
    "a commitment replaced by a value": M(committed("my PIN"), "sealed", LINE),
    "a commitment replaced by another": M(committed({"$sealed": "0" * 64, "size": 13}), "sealed", LINE),
    "a size committed to changed": M(
        told("sealed", "tool.call", args=lambda old: {"text": old["text"] | {"size": 99}}), "sealed", "sealed"
    ),
}
"""Values that are committed to by a salted digest."""

HOME_LEDGER = {
    "a byte of the workspace ledger": M(raw(HOME, b'"kind":"cold"', b'"kind":"warm"'), HOME, "payload_hash"),
    "the workspace ledger deleted": M(lambda state: state.file(HOME).unlink(), "call", "head"),
    "the workspace ledger emptied": M(cut(HOME, 0), HOME, "empty"),
    "a head forged": M(told(HOME, "ledger.session", 1, head="0" * 64), "call", LINE),
    "a head of more events": M(told(HOME, "ledger.session", 1, events=9), "call", EVENTS),
    "a head of another session": M(told(HOME, "ledger.session", 1, session_id="f" * 32), "f" * 32, NONE),
    "a run of another trace": M(told(HOME, "system.run", trace_id="0" * 32), "call", "trace_id"),
    "a process that booted twice": M(twice(HOME, "system.boot"), HOME, "hierarchy"),
    "a boot left out": M(without(HOME, "system.boot"), HOME, "hierarchy"),
    "a run left out": M(without(HOME, "system.run"), HOME, "parent"),
    "a run twice": M(twice(HOME, "system.run"), HOME, "hierarchy"),
    "a second root": M(header(HOME, "system.boot", parent_span_id=None), HOME, "root"),
    "a span twice": M(
        lambda state: header(HOME, "system.boot", span_id=state.events(HOME)[0].header["span_id"])(state), HOME, "span"
    ),
    "a parent that is not there": M(header(HOME, "system.boot", parent_span_id="ab" * 8), HOME, "parent"),
    "an event of a session in it": M(header(HOME, "system.boot", event_type="user.message"), HOME, "payload"),
}
"""The workspace ledger, hashed anew wherever that helps."""

APPROVALS = {
    "an answer turned round": M(told(HOME, "approval.answered", answer="deny"), HOME, "approval"),
    "an answer in another name": M(told(HOME, "approval.answered", approver="eve"), HOME, "approval"),
    "a signature changed": M(
        told(HOME, "approval.answered", signed=lambda old: old[:-6] + ("A" if old[-6] != "A" else "B") + old[-5:]),
        HOME,
        "approval",
    ),
    "a signature emptied": M(told(HOME, "approval.answered", signed=""), HOME, "approval"),
    "an approval used twice": M(twice(HOME, "approval.used"), HOME, "approval"),
    "an answer given twice": M(twice(HOME, "approval.answered"), HOME, "approval"),
    "an approval used that was not given": M(without(HOME, "approval.answered"), HOME, "approval|parent"),
    "a granted approval that stands elsewhere": M(
        also(told("approved", "approval.granted", seq=lambda old: old + 1), State.heads),
        "approved",
        r"approval\.granted",
    ),
    "a granted approval with another hash": M(
        also(told("approved", "approval.granted", hash="0" * 64), State.heads), "approved", r"approval\.granted"
    ),
    "a granted approval of another workspace": M(
        also(told("approved", "approval.granted", ledger="ws-" + "ab" * 16), State.heads),
        "approved",
        r"approval\.granted",
    ),
    "a granted approval of another request": M(
        told("approved", "approval.granted", approval="0" * 32), "approved", "approval"
    ),
    "a granted approval by another person": M(
        told("approved", "approval.granted", approver="eve"), "approved", "approval"
    ),
    "a granted approval with another key": M(
        told("approved", "approval.granted", key="eve+00000000+AAAA"), "approved", "approval"
    ),
    "a granted approval with another signature": M(
        told("approved", "approval.granted", signed=lambda old: old.replace("approve", "approved", 1)),
        "approved",
        "approval",
    ),
    "what an approval was asked for changed": M(
        told("approved", "approval.requested", args={"text": "rm"}), "approved", "approval"
    ),
    "what was called under an approval changed": M(
        told("approved", "tool.call", args={"text": "rm"}), "approved", "approval"
    ),
    "an approval left out": M(without("approved", "approval.granted"), "approved", "parent"),
}
"""What a person agreed to."""

TASKS = {
    "a task's arguments in the workspace ledger": M(
        told(HOME, "task.created", args={"text": "rm"}), "created", r"task\.created .*"
    ),
    "a task's arguments in its session": M(
        told("created", "task.created", args={"text": "rm"}), "created", r"task\.created .*"
    ),
    "a task's outcome in the workspace ledger": M(told(HOME, "task.ended", state="failed"), "task", r"task\.ended .*"),
    "a task's start left out of the workspace ledger": M(
        also(without(HOME, "task.ended"), without(HOME, "task.started")), "task", r"task\.started .*"
    ),
    "a task left out of the workspace ledger": M(without(HOME, "task.created"), HOME, "task"),
    "a task made twice": M(twice(HOME, "task.created"), HOME, "task"),
    "a task that ran twice": M(twice(HOME, "task.started"), HOME, "task"),
}
"""Tasks, which both ledgers tell of."""

KEPT = {
    "a payload taken out, and nothing said of it": M(taken_out, "call", "excised"),
    "an excision taken back": M(without("gone", "ledger.excised"), "gone", "excised"),
    "an excision told of another event": M(told("gone", "ledger.excised", seq=2), "gone", "excised"),
    "an excision told of another payload": M(told("gone", "ledger.excised", payload_hash="0" * 64), "gone", "excised"),
    "another payload where one was taken out": M(put_back, "gone", "payload_hash"),
    "a line of an old ledger changed": M(
        imported(lambda file: file.write_bytes(file.read_bytes().replace(b'"old"', b'"new"'))), "", "sha256"
    ),
    "a line of an old ledger added": M(imported(lambda file: file.write_bytes(file.read_bytes() * 2)), "", "sha256"),
    "an old ledger emptied": M(imported(lambda file: file.write_bytes(b"")), "", "sha256"),
    "an old ledger deleted": M(imported(lambda file: shutil.rmtree(file.parent)), "", "sha256"),
    "an old ledger that nobody took in": M(unknown_import, "", "record"),
    "an old ledger told otherwise": M(told(HOME, "ledger.imported", sha256="0" * 64), "", "sha256|record"),
}
"""What was taken out lawfully, and old ledgers that were taken in."""

ATTACKS = SESSIONS | SEALED | HOME_LEDGER | APPROVALS | TASKS | KEPT
"""Every manipulation that the files of the workspace show by themselves."""
