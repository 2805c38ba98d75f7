"""Random damage to whole workspaces: charters, leaves, notes, sealed values, ledgers, half lines, floods, file kinds.

Each case is drawn from a seed. A verifier has to report on every ledger, whatever it finds, and must not call anything
complete that is not what was written.
"""

import json
import os
import random
import re
import shutil
import signal
import socket
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest.mock import patch

import attrs
from ledgers import digest

from deedbook.cli.program import TRACEBACK
from deedbook.format.canonical import encode
from deedbook.format.errors import DeedbookError
from deedbook.format.schema import Schemas, data_folder

from .states import HOME, NAME, Event, State

SECONDS = 60
"""How long one command may take before it counts as hung."""

Damage = Callable[[State, random.Random], str]
"""Damages a copy of a state, and says what it did."""

DEEP = 400
UNEXPECTED = re.compile("[A-Z][A-Za-z]+(Error|Exception): ")
"""How an exception is reported that was caught where it should not have come from."""
LOG_EVENTS = ("ledger.leaf", "ledger.checkpoint", "ledger.key", "ledger.witnessed")
READERS = (
    ("replay", "{session}"),
    ("replay", "{session}", "--html"),
    ("tree", "{session}"),
    ("tree", "workspace"),
    ("stats",),
    ("sessions",),
    ("tasks", "list"),
    ("approvals", "list"),
    ("processes",),
    ("abilities",),
    ("memory", "list"),
    ("explain", "{session}", "2"),
    ("whatif", "{session}", "--system", "."),
    ("export", "{session}", "--as", "seed-002"),
    ("export", "{session}", "--as", "cloudevents"),
    ("prove", "{session}", "1"),
    ("ledger", "checkpoint"),
    ("fork", "{session}", "--at", "1"),
    ("sessions", "close", "{session}"),
    ("call", "echo", "--args", '{"text":"on"}'),
    ("lock",),
)
"""Other commands that read what was damaged: none may end with an internal error."""


# --- values -----------------------------------------------------------------------------------------------------------


def nested(dice: random.Random) -> Any:
    """Return a value of many levels."""
    value: Any = dice.choice(({}, [], 1))
    for _ in range(dice.choice((3, 63, 64, 65, 72, DEEP))):
        value = {"a": value} if dice.random() < 0.5 else [value]
    return value


def nonsense(dice: random.Random) -> Any:
    """Return a JSON value that nobody expects."""
    return dice.choice(
        (
            None, True, False, 0, -1, 1, 2**53, -(2**53), 2**63, 10**30, 0.5, 1e308, -1e-300,
            "", "x", "0" * 64, "f" * 64, "../../etc/passwd", "\0", "\ud7ff\ue000", "é" * 300, "-" * 5000, "{", "☃",
            "2026-13-45T99:99:99.999Z", "model/x", "agent:x", [], {}, [None], [[]], {"": None}, {"a": 1},
            {"$sealed": "0" * 64, "size": 1}, {"$sealed": 1}, {"$excised": "0" * 64}, {"$ref": "#"}, ["a"] * 50,
            lambda: nested(dice), lambda: {str(n): n for n in range(300)}, lambda: list(range(2000)),
        )
    )  # fmt: skip


def called(value: Any) -> Any:
    return value() if callable(value) else value


def places(value: Any, limit: int = 4000) -> list[tuple[Any, Any]]:
    """Return each container in *value* with each of its keys or indices."""
    found: list[tuple[Any, Any]] = []
    stack = [value]
    while stack and len(found) < limit:
        item = stack.pop()
        for key in item if isinstance(item, dict) else range(len(item)):
            found.append((item, key))
            if isinstance(item[key], dict | list):
                stack.append(item[key])
    return found


def mutate(value: Any, dice: random.Random) -> str:
    """Change a JSON value in place, somewhere inside it; say how."""
    found = places(value)
    if not found:
        return "nothing"
    within, key = dice.choice(found)
    word = dice.choice(("replace", "replace", "replace", "remove", "rename", "move", "add", "spell"))
    if word == "remove":
        del within[key]
    elif word == "rename" and isinstance(within, dict):
        within[str(called(nonsense(dice)))[:40]] = within.pop(key)
    elif word == "move":
        other, of = dice.choice(found)
        try:
            within[key] = json.loads(json.dumps(other[of]))
        except (KeyError, IndexError):
            del within[key]
    elif word == "add" and isinstance(within, dict):
        within[dice.choice(("x", "", "default", "$ref", "then", "match", "charter", "session"))] = called(
            nonsense(dice)
        )
    elif word == "spell" and isinstance(within[key], str):
        within[key] = garbled(within[key].encode(), dice).decode("utf-8", "replace")
    else:
        within[key] = called(nonsense(dice))
    return f"{word} {str(key)[:40]!r}"


def garbled(raw: bytes, dice: random.Random) -> bytes:
    """Return *raw* with some bytes other, more or gone."""
    if not raw:
        return bytes(dice.randrange(256) for _ in range(dice.randrange(40)))
    made, at = bytearray(raw), dice.randrange(len(raw))
    word = dice.randrange(8)
    if word < 3:
        for _ in range(dice.choice((1, 1, 16))):
            made[dice.randrange(len(made))] ^= 1 << dice.randrange(8)
    elif word == 3:
        del made[at:]
    elif word == 4:
        del made[at : at + dice.choice((1, 10, 1000))]
    elif word == 5:
        made[at:at] = dice.choice((b"\0", b"\n", b"\xff", b"{", b'"', b"\r\n", b" " * 9, b"\0" * 700, b"[" * 3000))
    elif word == 6:
        made[at:at] = made[at : at + dice.choice((1, 100, 5000))]
    else:
        made[:] = dice.choice(
            (b"", b"{}", b"null", b"[]", b"\n", b"{", b"\xff\xfe", b'{"schema_version":"1.1"}\n', b"# x\n")
        )
    return bytes(made)


# --- damage -----------------------------------------------------------------------------------------------------------


def ledgers_of(state: State) -> list[str]:
    return [HOME, *state.place.sessions()]


def charter_of(state: State) -> Path:
    return next((state.state / "charters").glob("*/charter.json"))


def charter_bytes(state: State, dice: random.Random) -> str:
    """Change a kept charter, under the digest that it has."""
    file = charter_of(state)
    before = file.read_bytes()
    while (after := garbled(before, dice)) == before:
        pass
    file.write_bytes(after)
    return "charter bytes"


def charter_renamed(state: State, dice: random.Random) -> str:
    """Rename or remove what is kept of a charter."""
    file = charter_of(state)
    word = dice.randrange(4)
    if word == 0:
        file.unlink()
    elif word == 1:
        file.parent.rename(file.parent.with_name(dice.choice(("0" * 64, "aside", "F" * 64))))
    elif word == 2:
        file.rename(file.with_name("charter.bak"))
    else:
        shutil.rmtree(file.parents[1])
    return f"charter renamed or removed ({word})"


def charter_nonsense(state: State, dice: random.Random) -> str:
    """Let every ledger name a charter that is kept under its own digest, and that nobody compiled."""
    file = charter_of(state)
    old, raw = file.parent.name, file.read_bytes()
    document = json.loads(raw)
    how = [mutate(document, dice) for _ in range(dice.choice((1, 1, 1, 2, 5)))]
    made = spelled(document) if dice.random() < 0.8 else garbled(raw, dice)
    new = sha256(made).hexdigest()
    file.parent.rename(file.parent.with_name(new))
    file.parent.with_name(new).joinpath("charter.json").write_bytes(made)
    (state.state / "charters" / "current.json").write_text(json.dumps({"charter": new}))
    for name in ledgers_of(state):
        if old.encode() in state.file(name).read_bytes():
            state.edit(name, lambda events: [event for event in events if renamed(event.payload, old, new)])
    state.agree()
    return f"charter nonsense ({', '.join(how)})"


def renamed(payload: Any, old: str, new: str) -> bool:
    """Put *new* in the place of *old* in a payload."""
    for within, key in places(payload):
        if within[key] == old:
            within[key] = new
    return True


def spelled(value: Any) -> bytes:
    """Return JSON as nearly canonical as it can be."""
    try:
        return encode(value, nodes=10**7)
    except DeedbookError:
        return json.dumps(value, ensure_ascii=True, separators=(",", ":"), sort_keys=True).encode()


def payload(state: State, dice: random.Random) -> str:
    """Change what an event says, with all hashes of its ledger made right."""
    return _edited(state, dice, dice.choice(ledgers_of(state)), lambda event: mutate(event.payload, dice))


def log_event(state: State, dice: random.Random) -> str:
    """Change what a leaf, a checkpoint, a key or a witness's line says, with all hashes made right."""
    return _edited(state, dice, HOME, lambda event: mutate(event.payload, dice), LOG_EVENTS)


def note(state: State, dice: random.Random) -> str:
    """Change a signed note: in the ledger, or the state folder's copy."""
    if dice.random() < 0.3 and state.checkpoint.exists():
        state.checkpoint.write_bytes(garbled(state.checkpoint.read_bytes(), dice))
        return "the newest checkpoint's note"

    def change(event: Event) -> str:
        for name in ("note", "signed"):
            if isinstance(event.payload.get(name), str):
                raw = garbled(event.payload[name].encode(), dice)
                event.payload[name] = raw.decode("utf-8", "replace")
                return f"{name} of {event.type}"
        return mutate(event.payload, dice)

    return _edited(state, dice, HOME, change, (*LOG_EVENTS, "approval.answered"))


def header(state: State, dice: random.Random) -> str:
    """Change a field of a header, with all hashes made right."""

    def change(event: Event) -> str:
        name = dice.choice(list(event.header))
        event.header[name] = dice.choice(
            (None, "", "x", "0" * 16, "0" * 32, "0" * 64, "session.end", "tool.call", "1.0", "1.2", -1, 2**60,
             "2020-01-01T00:00:00.000Z", "9999-99-99T99:99:99.999Z", "ws-" + "0" * 32, "../x", "x" * 200)
        )  # fmt: skip
        return f"{name} of {event.type}"

    return _edited(state, dice, dice.choice(ledgers_of(state)), change)


def _edited(
    state: State, dice: random.Random, name: str, change: Callable[[Event], str], types: tuple[str, ...] = ()
) -> str:
    events = [event for event in state.events(name) if not types or event.type in types]
    if not events:
        return "nothing"
    wanted, how = dice.randrange(len(events)), ""

    def edit(events: list[Event]) -> None:
        nonlocal how
        how = change([event for event in events if not types or event.type in types][wanted])

    state.edit(name, edit)
    if dice.random() < 0.5:
        state.agree() if dice.random() < 0.5 else state.heads()
    return f"event of {name[:8]}: {how}"


def lines(state: State, dice: random.Random) -> str:
    """Move, repeat, take away or invent lines of a ledger."""
    name = dice.choice(ledgers_of(state))
    found = state.lines(name)
    other = state.lines(dice.choice(ledgers_of(state)))
    at, to = dice.randrange(len(found)), dice.randrange(len(found) + 1)
    word = dice.choice(
        ("twice", "gone", "swapped", "foreign", "half", "joined", "cut", "blank", "long", "flood", "nul")
    )
    if word == "twice":
        found.insert(to, found[at])
    elif word == "gone":
        del found[at]
    elif word == "swapped":
        found[at], found[to - 1] = found[to - 1], found[at]
    elif word == "foreign":
        found.insert(to, dice.choice(other))
    elif word == "half":
        found[at] = found[at][: dice.randrange(len(found[at]))]
    elif word == "joined":
        found[at] = found[at].rstrip(b"\n")
    elif word == "cut":
        del found[at:]
    elif word == "blank":
        found.insert(to, b"\n")
    elif word == "long":
        found.insert(to, b"{" + b" " * dice.choice((1 << 16, 1 << 21)) + b"}\n")
    elif word == "flood":
        found.insert(
            to, dice.choice((b"\n", b"{}\n", b"\0\n", b'{"schema_version":"1.1"}\n')) * dice.choice((500, 5000))
        )
    else:
        found.insert(to, b"\0" * dice.choice((1, 512, 70_000)))
    if word in ("twice", "gone", "swapped", "foreign") and dice.random() < 0.5:
        state.rewrite(name, [Event.parse(line) for line in found])
    else:
        state.put(name, found)
    return f"lines of {name[:8]}: {word}"


def half_line(state: State, dice: random.Random) -> str:
    """Leave half a line at the end of a ledger, or as all of it."""
    name = dice.choice(ledgers_of(state))
    found = state.lines(name)
    whole = dice.choice(found)
    half = whole[: dice.randrange(1, len(whole))]
    state.put(name, [half] if dice.random() < 0.2 else [*found, half])
    return f"half a line in {name[:8]}"


def ledger_bytes(state: State, dice: random.Random) -> str:
    """Change bytes of a ledger, and nothing else."""
    name = dice.choice(ledgers_of(state))
    state.file(name).write_bytes(garbled(state.file(name).read_bytes(), dice))
    return f"bytes of {name[:8]}"


def sealed(state: State, dice: random.Random) -> str:
    """Change the file of a sealed value, or what commits to it."""
    files = sorted(state.state.glob("**/sealed/*"))
    if not files:
        return "nothing"
    file = dice.choice(files)
    if dice.random() < 0.2:
        file.rename(file.with_name(dice.choice(("0" * 64, "x", ".hidden"))))
        return "a sealed value renamed"
    raw = file.read_bytes()
    file.write_bytes(dice.choice(files).read_bytes() if dice.random() < 0.2 else garbled(raw, dice))
    return "a sealed value"


def other_file(state: State, dice: random.Random) -> str:
    """Change bytes of any other file of the state folder."""
    names = ["current.json", "starts.json", "sources.json", "checkpoint", "events.jsonl"]
    files = sorted(each for each in state.state.rglob("*") if each.is_file() and each.name in names)
    if not files:
        return "nothing"
    file = dice.choice(files)
    file.chmod(0o600)
    file.write_bytes(garbled(file.read_bytes(), dice))
    return f"bytes of {file.name}"


def file_kind(state: State, dice: random.Random) -> str:
    """Put a link, a pipe, a socket, a folder, an empty file or nothing where something else is."""
    found = sorted(each for each in state.state.rglob("*") if not each.is_symlink())
    place = dice.choice(found)
    aside = state.root / "aside"
    if aside.exists():
        shutil.rmtree(aside)
    aside.mkdir()
    word = dice.choice(("link", "dangling", "loop", "hard", "pipe", "socket", "folder", "file", "nothing"))
    if word == "hard":
        if place.is_dir():
            return "nothing"
        os.link(place, aside / "other")
        return f"hard link {place.name[:12]}"
    place.rename(aside / "moved")
    if word == "link":
        place.symlink_to(aside / "moved")
    elif word == "dangling":
        place.symlink_to(aside / "never")
    elif word == "loop":
        place.symlink_to(place.name)
    elif word == "pipe":
        os.mkfifo(place)
    elif word == "socket":
        _bind(place)
    elif word == "folder":
        place.mkdir()
        if dice.random() < 0.5:
            (place / "x").write_bytes(b"x")
    elif word == "file":
        place.write_bytes(garbled(b"{}", dice))
    return f"{word} in the place of {place.relative_to(state.state)}"


def _bind(place: Path) -> None:
    """Put a socket at *place*, whose path may be too long to be bound by its name."""
    before = Path.cwd()
    os.chdir(place.parent)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(place.name)
    except OSError:
        os.mkfifo(place.name)
    finally:
        os.chdir(before)


def misplaced(state: State, dice: random.Random) -> str:
    """Copy or move a session's folder, or lay one that never was beside the others."""
    name = dice.choice(state.place.sessions())
    folder = state.folder(name)
    other = dice.choice(("e" * 32, "x", "ws-" + "0" * 32, "A-_", "." + "a" * 8, "é"))
    if dice.random() < 0.5:
        shutil.copytree(folder, folder.with_name(other))
    else:
        folder.rename(folder.with_name(other))
    return f"session folder {other[:8]}"


DAMAGE: tuple[tuple[int, Damage], ...] = (
    (2, charter_bytes),
    (1, charter_renamed),
    (6, charter_nonsense),
    (4, payload),
    (4, log_event),
    (2, note),
    (2, header),
    (3, lines),
    (1, half_line),
    (2, ledger_bytes),
    (2, sealed),
    (1, other_file),
    (2, file_kind),
    (1, misplaced),
)
"""What may be done, and how often."""


# --- cases ------------------------------------------------------------------------------------------------------------


@attrs.define
class Tally:
    """How many cases were tried, how the verifier ended, and how many other commands were called."""

    cases: int = 0
    sound: int = 0
    broken: int = 0
    commands: int = 0


class Fuzzer:
    """Damages copies of honest workspaces. Of those that have a log, a checkpoint is kept elsewhere."""

    def __init__(self, *bases: State) -> None:
        self.bases = list(bases)
        self.tally = Tally()
        self._schemas = Schemas.load(data_folder("schemas"))
        self._damage = [damage for weight, damage in DAMAGE for _ in range(weight)]

    def case(self, seed: int, work: Path) -> str | None:
        """Damage a copy as *seed* says; return what is wrong with what the commands say of it, if anything is."""
        dice = random.Random(seed)
        honest = self.bases[seed % len(self.bases)]
        copy, done = honest.copy(work), list[str]()
        for _ in range(dice.choice((1, 1, 1, 2, 3))):
            try:
                done.append(dice.choice(self._damage)(copy, dice))
            except Exception as problem:
                done.append(f"not done ({type(problem).__name__})")
        problem = self._problem(honest, copy, dice)
        self.tally.cases += 1
        if problem is None:
            shutil.rmtree(work)
            return None
        return f"seed {seed} ({'; '.join(done)}), kept in {work}: {problem}"

    def _problem(self, honest: State, copy: State, dice: random.Random) -> str | None:
        more: tuple[str, ...] = ()
        if honest.key:
            kept = honest.root.with_name(f"{honest.root.name}-checkpoint")
            kept.write_bytes(honest.checkpoint.read_bytes())
            more = ("--log-key", honest.key, "--checkpoint", str(kept))
        found = self._run(copy, "verify", "--json", *more)
        if isinstance(found, str):
            return found
        return _wrong(honest, copy, *found) or self._count(found[0]) or self._read(copy, dice)

    def _count(self, status: int) -> None:
        self.tally.sound += status == 0
        self.tally.broken += status == 4

    def _read(self, copy: State, dice: random.Random) -> str | None:
        """Have another command read what was damaged."""
        sessions = [*copy.place.sessions(), "last"]
        argv = [word.replace("{session}", dice.choice(sessions)) for word in dice.choice(READERS)]
        if dice.random() < 0.5:
            return None
        found = self._run(copy, *argv)
        self.tally.commands += 1
        return found if isinstance(found, str) else None

    def _run(self, copy: State, *argv: str) -> tuple[int, str] | str:
        """Run a command in this process; return its exit status and what it printed, or how it failed or hung."""
        with (
            patch.object(Schemas, "load", lambda _: self._schemas),
            patch.dict(os.environ, {TRACEBACK: "1"}),
            limited(" ".join(argv)),
        ):
            try:
                ran = copy.place.here(*argv)
            except Exception:
                return f"{' '.join(argv)}: {traceback.format_exc()[-3000:]}"
        return ran.status, ran.out + ("" if ran.out else ran.err)


# --- what a verifier may say of it ------------------------------------------------------------------------------------


def _wrong(honest: State, copy: State, status: int, out: str) -> str | None:
    """Return what is wrong with what verify says of a damaged *copy*; ``None`` if nothing is."""
    if status not in (0, 4):
        return f"verify ends with {status}: {out[:500]}"
    told = json.loads(out)
    verdict = told["verdict"]["said"]
    if caught := [part for part in out.split('"') if UNEXPECTED.match(part)]:
        return f"an exception that nobody expected was caught: {caught[0]}"
    there = [file for file in copy.state.glob(f"*/**/{NAME}") if is_ledger(copy, file)]
    if len(told["reports"]) < len(there):
        return f"{len(told['reports'])} of {len(there)} ledgers are reported: {verdict}"
    wrong = None
    if status == 0:
        wrong = next((why for file in there for why in _broken_lines(file)), None) or _charters(copy, verdict)
    if "complete" in verdict:
        wrong = wrong or _incomplete(honest, copy, told)
    return wrong and f"{verdict!r}, but {wrong}"


def _broken_lines(file: Path) -> Iterator[str]:
    """Yield what is wrong with the hashes of a ledger, and with the sealed values beside it."""
    whole = file.read_bytes()
    if whole.startswith(b'{"event_type"'):
        return
    before = None
    if not whole.endswith(b"\n"):
        yield f"{file} is torn"
    for number, line in enumerate(whole.splitlines(keepends=True), 1):
        head, _, rest = line.partition(b',"envelope_hash":"')
        fields, payload = json.loads(line), rest[66:].partition(b'"payload":')[2][:-2]
        gone = b'{"$excised":"' + fields["payload_hash"].encode() + b'"}'
        if digest(head) != fields["envelope_hash"] or (digest(payload) != fields["payload_hash"] and payload != gone):
            yield f"line {number} of {file} has other hashes"
        if before not in (None, fields["prev_envelope_hash"]):
            yield f"line {number} of {file} does not go on from the one before"
        before = fields["envelope_hash"]
    for value in file.parent.glob("sealed/*"):
        if (
            len(value.name) == len(before or "")
            and value.name.encode() in whole
            and digest(value.read_bytes()) != value.name
        ):
            yield f"the sealed value {value.name} was changed"


def _charters(copy: State, verdict: str) -> str | None:
    """Return what is wrong with the charters that ledgers name and that are kept."""
    named, recorded = set[str](), set[str]()
    for name in ledgers_of(copy):
        if not is_ledger(copy, copy.file(name)) or not copy.lines(name)[0].startswith(b'{"schema_version":"1.1"'):
            continue
        for event in copy.events(name):
            if event.type in ("session.start", "system.boot"):
                named.add(json.dumps(event.payload["charter"]))
            elif event.type == "ledger.charter":
                recorded.add(json.dumps(event.payload["digest"]))
    kept = {json.dumps(file.parent.name) for file in copy.state.glob("charters/*/charter.json")}
    for file in copy.state.glob("charters/*/charter.json"):
        if len(file.parent.name) == 64 and file.parent.name.islower() and digest(file.read_bytes()) != file.parent.name:
            return f"charter {file.parent.name} has other bytes"
    if "decisions not checked" in verdict:
        return None
    if not named <= recorded:
        return f"charters {named - recorded} are not recorded"
    return None if named <= kept else f"charters {named - kept} are not kept"


def _incomplete(honest: State, copy: State, told: Any) -> str | None:
    """Return what is not as it was written in a state that is called complete."""
    for name, after in told["verdict"]["ledgers"].items():
        ledger = HOME if name == honest.identity else name
        if not honest.file(ledger).exists():
            return f"there never was a ledger {name}"
        was, now = honest.lines(ledger), copy.lines(ledger)
        upto = _covered(honest) if ledger == HOME else len(now) - after
        if was[:upto] != now[:upto]:
            return f"{name} is not what was written"
    for file in honest.state.glob("charters/*/charter.json"):
        other = copy.state / file.relative_to(honest.state)
        if not other.exists() or other.read_bytes() != file.read_bytes():
            return f"the charter {file.parent.name} was changed"
    return None


def _covered(honest: State) -> int:
    """Return how many lines of the workspace ledger a leaf covers."""
    leaves = [event.payload for event in honest.events(HOME) if event.type == "ledger.leaf"]
    return int(max(leaf["size"] for leaf in leaves if leaf["session_id"] == honest.identity))


def is_ledger(state: State, file: Path) -> bool:
    """Say whether *file* is where a ledger of the workspace is looked for."""
    parts = file.relative_to(state.state).parts
    return parts == ("workspace", NAME) or (
        len(parts) == 3
        and parts[0] == "sessions"
        and all(each.isascii() and (each.isalnum() or each in "-_") for each in parts[1])
        and parts[1][0].isalnum()
        and not (file.is_file() and not file.is_symlink() and file.stat().st_size == 0)
    )


@contextmanager
def limited(what: str) -> Iterator[None]:
    """Raise `TimeoutError` in a command that hangs."""

    def hung(*_: object) -> None:
        raise TimeoutError(f"{what} has not ended after {SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, hung)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
