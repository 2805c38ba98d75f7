"""Honest histories of workspaces, each another: whatever people and machines do, no verifier may find fault with it.

A history is a row of steps, drawn at random: calls, denials, sealed and large values, tasks, approvals, sessions that
stay open, processes that are killed, torn tails, several writers at once, and what is done with ledgers themselves.
"""

import json
import os
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
from commandline import Place

from deedbook.kernel import open_kernel

from .judging import Judge
from .states import NAME, OLD, SETTINGS, State, keys_in

Step = Callable[["History"], None]


@attrs.define
class History:
    """A workspace in which things happen; *dice* decides which. *signs*: it has a log."""

    place: Place
    dice: random.Random
    signs: bool = False
    steps: list[str] = attrs.field(factory=list)

    def text(self) -> str:
        """Return something to say; now and then what is sealed, or large."""
        kind = self.dice.random()
        if kind < 0.1:
            return f"my PIN-{self.dice.randrange(10**4):04d}"
        if kind < 0.15:
            return "x" * self.dice.choice((5_000, 1_200_000))
        return "".join(self.dice.choices('ab "\\\n\tüß€😀\u2028\u0085\x00\x7f', k=self.dice.randrange(40)))

    def call(self, ability: str = "echo", status: int = 0) -> None:
        """Call an ability in a session of its own, which ends with that exit status."""
        self.place.here("call", ability, "--args", json.dumps({"text": self.text()}), status=status)

    def some_session(self) -> str | None:
        """Return any session's id."""
        found = self.place.sessions()
        return self.dice.choice(found) if found else None


def _call(history: History) -> None:
    history.call()


def _refused(history: History) -> None:
    assert history.place.here("call", "nothing", "--args", "{}").status
    assert history.place.here("call", "echo", "--args", '{"number": 1}').status


def _task(history: History) -> None:
    here = history.place.here
    here("tasks", "create", "echo", "--args", json.dumps({"text": history.text()}), status=0)
    for step in history.dice.sample(("update", "run", "delete"), k=history.dice.randrange(3)):
        here("tasks", step, "last", *(["--args", '{"text":"otherwise"}'] if step == "update" else []))


def _approval(history: History) -> None:
    history.call("asked", 3)
    answer = history.dice.choice(("approve", "deny", ""))
    if answer:
        history.place.here("approvals", answer, history.place.request(), status=0)
        if history.dice.random() < 0.7:
            history.place.here("approvals", "run", "last")


def _forked(work: Callable[[], None]) -> int:
    """Do *work* in a process of its own; return its id."""
    child = os.fork()
    if not child:
        try:
            work()
        finally:
            os._exit(1)
    return child


def _killed(history: History) -> None:
    """Have a process die with its session open: at once, after calls, or with half a line written."""
    calls, torn = (
        history.dice.randrange(4),
        history.dice.choice((b"", b"{", b"\0" * 700, b'{"schema_version":"1.1","se')),
    )

    def work() -> None:
        with open_kernel(history.place.path) as kernel:
            session = kernel.session("open")
            for _ in range(calls):
                session.call("echo", {"text": history.text()})
            os.write(session.ledger._journal.fd, torn)
            os.kill(os.getpid(), signal.SIGKILL)

    _, status = os.waitpid(_forked(work), 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    history.place.here("sessions", "--json", status=0)
    history.call()  # whoever comes next cleans up
    for each in history.place.here("sessions", "--json", status=0).json["sessions"]:
        if each["state"] == "interrupted" and not each["id"].startswith("old-"):
            history.place.here("sessions", "close", each["id"], status=0)


def _at_once(history: History) -> None:
    """Have three processes at work at the same time."""
    texts = [[history.text() for _ in range(3)] for _ in range(3)]

    def work(mine: list[str]) -> None:
        with open_kernel(history.place.path) as kernel:
            for text in mine:
                with kernel.session("call") as session:
                    session.call("echo", {"text": text})
                    session.end(ok=True, reason="done")
        os._exit(0)

    children = [_forked(lambda mine=mine: work(mine)) for mine in texts]
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 3


def _torn_home(history: History) -> None:
    """Leave half a line at the end of the workspace ledger, as a power cut does; the next writer sets it aside."""
    with (history.place.path / ".deedbook/workspace" / NAME).open("ab") as file:
        file.write(b'{"schema_version":"1.1","session_id":"ws-')
    history.call()


def _checkpoint(history: History) -> None:
    """Have a checkpoint signed, or the log's first key made, or another."""
    if history.signs:
        word = history.dice.choice((("ledger", "checkpoint"), ("ledger", "checkpoint"), ("keys", "rotate")))
        history.place.here(*word, status=0)


def _fork(history: History) -> None:
    """Have a session go on from somewhere in another one's past."""
    session = history.some_session()
    if session:
        seq = history.dice.randrange(4)
        history.place.here("fork", session, "--at", str(seq), *history.dice.choice(([], ["--run"])))


def _remember(history: History) -> None:
    """Have something remembered, perhaps refused, perhaps taken back."""
    zone, key = history.dice.choice((("observation", "sky/today"), ("world_state", "user/city"))), "sky/today"
    history.place.here("memory", "propose", zone[0], zone[1], json.dumps(history.text()[:40]), "--say", "I say so")
    if history.dice.random() < 0.3:
        history.place.here("memory", "retract", "observation", key)


def _corrected(history: History) -> None:
    """Say an event otherwise, erase what a session has sealed, or take a payload out."""
    session = history.some_session()
    reason = ("--reason", "it has to be")
    for word in (
        ("amend", session, "1", "--set", '/args/text="otherwise"'),
        ("erase", session),
        ("excise", session, "1", "--yes"),
    ):
        if session and history.dice.random() < 0.5:
            history.place.here("ledger", *word, *reason)


def _imported(history: History) -> None:
    """Take in an old ledger, of a session that nobody else has."""
    history.place.write("old.jsonl", OLD.replace('"old"', f'"old-{history.dice.randrange(10**6)}"'))
    history.place.here("ledger", "import", "old.jsonl", status=0)


STEPS: dict[str, tuple[int, Step]] = {
    "call": (6, _call),
    "refused": (1, _refused),
    "task": (2, _task),
    "approval": (2, _approval),
    "killed": (2, _killed),
    "at once": (1, _at_once),
    "torn home": (1, _torn_home),
    "checkpoint": (2, _checkpoint),
    "fork": (1, _fork),
    "remember": (1, _remember),
    "corrected": (2, _corrected),
    "imported": (1, _imported),
}
"""What may happen, and how often."""


REMEMBER: dict[str, Any] = {
    "kind": "rules",
    "match": {"kind": "memory"},
    "rules": [{"match": {"kind": "memory", "args": {"/zone": "observation"}}, "then": "allow"}],
    "default": "deny",
}
"""Who may remember what: what was seen, and nothing else."""


def begin(work: Path, seed: int) -> History:
    """Begin a history in a workspace of its own."""
    history = History(Place(work / f"w{seed}"), random.Random(seed))
    durability = history.dice.choice(("always", "boundary", "os"))
    memory = {
        "zones": {"observation": {"propose": [{"actors": ["user"]}]}},
        "keys": {"user/*": {"zones": ["world_state"]}},
    }
    remembering = {f"memory/{name}": _memory(name) for name in ("read", "propose", "retract")}
    settings: dict[str, Any] = SETTINGS | {
        "profile": "p",
        "profiles": {"p": {"durability": durability}},
        "checkpoints": {"every_events": history.dice.choice((10, 1000))},
        "memory": memory,
        "persona": "ada.json",
        "policies": {"remember": REMEMBER},
        "abilities": SETTINGS["abilities"] | remembering,
    }
    history.place.system("deedbook.yaml", json.dumps(settings))
    history.place.system("ada.json", '{"schema_version": "v1", "id": "p-1", "version": 1, "name": "Ada"}')
    history.place.here("keys", "new", f"ada{seed}", "--out", ".system/ada.pub", status=0)
    _call(history)
    if history.dice.random() < 0.7:
        history.place.here("keys", "rotate", status=0)
        history.signs = True
    return history


def _memory(name: str) -> dict[str, Any]:
    return {"summary": "Remember.", "kind": "memory", "handler": {"tool": f"memory-{name}"}}


def live(work: Path, seed: int, steps: int) -> History:
    """Let a history take its course for so many steps."""
    history = begin(work, seed)
    names, weights = list(STEPS), [weight for weight, _ in STEPS.values()]
    for name in history.dice.choices(names, weights, k=steps):
        history.steps.append(name)
        STEPS[name][1](history)
    return history


def ledgers_of(histories: range, work: Path, steps: int) -> Iterator[int]:
    """Live histories, and yield how many ledgers each has; a verifier finds fault with none."""
    judge = Judge()
    with keys_in(work / "config"):
        for seed in histories:
            history = live(work, seed, steps)
            judged = judge(State(history.place.path, {}))
            assert judged.status == 0, f"history {seed} ({', '.join(history.steps)}): {judged}"
            assert not judged.broken, f"history {seed}: {judged.broken}"
            yield len(history.place.sessions()) + 1
