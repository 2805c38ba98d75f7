"""Load for some minutes, with a kill -9 every so often: nothing acknowledged is lost, nothing is done twice.

``python -m benchmarks.soak_serve --minutes 10`` serves a workspace, lets clients work in it, kills the server every
thirty seconds and starts it again. Clients repeat each request whose answer they did not get. In the end every action
that was acknowledged has to stand in its ledger as it was told, and every effect has to be there at most once. Ends
with 1 if not.
"""

import argparse
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import attrs

from benchmarks.serve import actions, resident, start, stop, workspace
from deedbook.format.errors import DeedbookError
from deedbook.format.reader import read
from deedbook.format.schema import Schemas, data_folder
from deedbook_audit.verify import verify_file
from deedbook_serve.client import Runtime

_MOST_REQUESTS: Final = 12
_SETTLED: Final = 5.0
"""Seconds after which a new server's memory is looked at."""


@attrs.define
class Told:
    """What clients were told: the actions by session, key and id; how often a request had to be repeated, and how."""

    acknowledged: dict[tuple[str, str, str], dict[str, Any]] = attrs.field(factory=dict)
    counts: Counter[str] = attrs.field(factory=Counter)
    lock: threading.Lock = attrs.field(factory=threading.Lock)

    def take(self, session: str, key: str, answer: dict[str, Any]) -> None:
        """Take note of an answer."""
        with self.lock:
            self.counts["requests"] += 1
            self.counts["repeated"] += answer["repeated"]
            for each in answer["results"]:
                self.acknowledged[session, key, each["id"]] = each
                self.counts[each.get("error", {}).get("code") or each["status"]] += 1


def main() -> int:
    """Run, and say what came of it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak_serve", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--every", type=float, default=30, help="seconds between two kills; 0: no kills")
    parser.add_argument("--pause", type=float, default=0.1, help="seconds between two requests of a client, at most")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="deedbook-soak-") as name:
        folder = Path(name)
        workspace(folder)
        told, lives = soak(folder, asked.minutes * 60, (asked.clients, asked.pause), asked.every)
        print("\n".join(report(told, lives)), flush=True)
        wrong = list(check(folder, told))
    print("\n".join(wrong[:20]) or "nothing acknowledged is lost, nothing was done twice, every ledger is sound")
    return 1 if wrong else 0


def soak(folder: Path, seconds: float, clients: tuple[int, float], every: float) -> tuple[Told, list[list[int]]]:
    """Let *clients* (how many, with what pause) work for so long.

    Return what they were told, and of each life of the server its memory.
    """
    told, over = Told(), threading.Event()
    many, pause = clients
    threads = [threading.Thread(target=work, args=(folder, told, over, number, pause)) for number in range(many)]
    server = start(folder)
    for thread in threads:
        thread.start()
    lives, end = [], time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        lives.append(watch(server, min(left, every or left)))
        if end - time.monotonic() > 1:
            server.kill()
            server.wait()
            server = start(folder)
    over.set()
    for thread in threads:
        thread.join()
    stop(server)
    return told, lives


def watch(server: "subprocess.Popen[bytes]", seconds: float) -> list[int]:
    """Return the memory of a server, in bytes, twice a second, from when it has settled."""
    seen, begun = [], time.monotonic()
    while (age := time.monotonic() - begun) < seconds:
        if age > _SETTLED:
            seen.append(resident(server.pid))
        time.sleep(min(0.5, seconds))
    return seen


def work(folder: Path, told: Told, over: threading.Event, number: int, pause: float) -> None:
    """Be a client until it is over: sessions, requests in them, and each request again until it is answered."""
    dice = random.Random(number)
    while not over.is_set():
        with suppress(DeedbookError), Runtime(folder, seconds=60) as runtime:
            session = runtime.open()
            for each in range(dice.randint(1, _MOST_REQUESTS)):
                asked, key = actions(session, each, dice.choice(["echo", "leave"])), f"k{each}"
                time.sleep(dice.random() * pause)
                if not ask(folder, runtime, told, (session, key, asked)):
                    break
            else:
                runtime.end(session)
        time.sleep(dice.random() / 20)


def ask(folder: Path, runtime: Runtime, told: Told, what: tuple[str, str, list[dict[str, Any]]]) -> bool:
    """Have one request done; say whether the connection is still there. A lost answer is asked for again."""
    session, key, asked = what
    with suppress(DeedbookError):
        told.take(session, key, runtime.ask("actions", session=session, actions=asked, idempotency_key=key))
        return True
    while True:
        try:
            with Runtime(folder, seconds=60) as again:
                told.take(session, key, again.ask("actions", session=session, actions=asked, idempotency_key=key))
                return False
        except DeedbookError as problem:
            if problem.error.code == "SESSION_ENDED":  # the server was killed before the request came to it
                with told.lock:
                    told.counts["never begun"] += 1
                return False
            time.sleep(0.2)


def check(folder: Path, told: Told) -> Iterator[str]:
    """Yield what is wrong: an acknowledged action that its ledger does not hold, an effect too many or too few."""
    schemas, held = Schemas.load(data_folder("schemas")), {}
    for place in (folder / ".deedbook/sessions").iterdir():
        if not verify_file(place / ".events.jsonl", schemas=schemas).sound:
            yield f"{place.name}: not sound"
        held |= recorded(place)
    effects = Counter((folder / "effects.txt").read_text().splitlines())
    yield from (f"{line}: done {count} times" for line, count in effects.items() if count > 1)
    for (session, key, ident), said in told.acknowledged.items():
        if said.get("error", {}).get("code") in ("OUTCOME_UNKNOWN", "SESSION_ENDED"):
            continue
        if held.get((session, key, ident)) != said["status"]:
            yield f"{session} {key} {ident}: told {said['status']}, recorded {held.get((session, key, ident))}"
        left = said.get("result", {}).get("left")
        if left is not None and effects[left] != 1:
            yield f"{session} {key} {ident}: told that it was done, done {effects[left]} times"


def recorded(place: Path) -> dict[tuple[str, str, str], str]:
    """Return what a session's ledger says came of each action."""
    asked, done = {}, {}
    for event in read(place / ".events.jsonl"):
        if event.type == "action.received":
            asked[event.span] = (place.name, event.payload["request"], event.payload["id"])
        elif event.type == "action.done":
            done[asked[event.parent or ""]] = event.payload["status"]
    return done


def report(told: Told, lives: list[list[int]]) -> Iterator[str]:
    """Yield what happened, in lines."""
    counts = ", ".join(f"{name} {count}" for name, count in sorted(told.counts.items()))
    yield f"{len(lives)} lives; {counts}; acknowledged actions: {len(told.acknowledged)}"
    for life in lives:
        if len(life) > 1:
            quarter = max(1, len(life) // 4)
            first, last = (sum(part) / len(part) / 2**20 for part in (life[:quarter], life[-quarter:]))
            yield f"memory: {first:.1f} MiB at first, {last:.1f} MiB at last ({last / first:.2f}x)"


if __name__ == "__main__":
    sys.exit(main())
