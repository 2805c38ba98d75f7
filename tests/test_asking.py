"""Hooks on threads of their own: answers on time, late ones thrown away, nothing that piles up."""

import subprocess
import sys
import threading
import time

import pytest

from deedbook import Decision, allow, deny, transform
from deedbook.contract.lifecycle import NoAnswer
from deedbook.policy.gates import BoundGate, answer
from deedbook.programs.threads import MOST, HookThreads

LONG = 60.0
SHORT = 0.05


@pytest.fixture
def stuck():
    """Give what hangs until the test is over."""
    over = threading.Event()
    yield over.wait
    over.set()


def gate(ask, limit=LONG):
    return BoundGate(
        id="h", kind="hook", digest="d", ask=HookThreads(ask, limit), may=frozenset({"allow", "deny"}), limit=limit
    )  # fmt: skip


def asked(ask, *subject, limit=LONG):
    return answer(gate(ask, limit), time.monotonic, *subject)


def test_answer_of_a_thread_is_the_hooks_own():
    here = threading.get_ident()
    assert asked(lambda a, b: deny(f"{a}{b}{threading.get_ident() == here}"), 1, 2) == deny("12False")


@pytest.mark.parametrize("raised", [ValueError("no"), SystemExit(0), KeyboardInterrupt(), GeneratorExit()], ids=repr)
def test_what_a_hook_raises_on_its_thread_denies(raised):
    def ask():
        raise raised

    assert asked(ask).reason.startswith(type(raised).__name__)


def test_hung_hook_denies_on_time_and_its_answer_is_thrown_away(stuck):
    got = asked(lambda: stuck() and allow(), limit=SHORT)
    assert got == deny("did not answer within its limit of 50 ms")


def test_next_question_to_a_hung_hook_is_denied_at_once(stuck):
    asks = []
    hung = gate(lambda: asks.append(1) or stuck(), SHORT)
    for _ in range(3):
        reason = answer(hung, time.monotonic).reason
    assert reason.startswith("is still busy with an answer that was due ")
    assert asks == [1]


def test_hook_that_came_back_is_asked_again():
    first, gone = threading.Event(), threading.Event()

    def ask():
        if not first.is_set():
            first.set()
            gone.wait(LONG)
        return allow()

    slow = gate(ask, 0.2)
    assert answer(slow, time.monotonic).outcome == "deny"
    gone.set()
    until = time.monotonic() + LONG
    while answer(slow, time.monotonic).outcome == "deny" and time.monotonic() < until:
        time.sleep(0.01)
    assert answer(slow, time.monotonic) == allow()


def test_threads_of_one_hook_are_bounded(stuck):
    inside = threading.Semaphore(0)
    threads = HookThreads(lambda: inside.release() or stuck(), LONG)
    waiting = [threading.Thread(target=threads, daemon=True) for _ in range(MOST)]
    for each in waiting:
        each.start()
    for _ in waiting:
        assert inside.acquire(timeout=LONG)
    with pytest.raises(NoAnswer, match="busy with 32 other questions"):
        threads()


def test_many_callers_each_get_their_own_answer():
    threads, found = HookThreads(lambda value: Decision("allow", str(value)), LONG), {}
    callers = [
        threading.Thread(target=lambda n=n: found.update({n: threads(n).reason}), daemon=True) for n in range(MOST)
    ]
    for each in callers:
        each.start()
    for each in callers:
        each.join(LONG)
    assert found == {n: str(n) for n in range(MOST)}


def test_hung_thread_keeps_no_process_from_exiting():
    script = (
        "import time\n"
        "from deedbook.programs.threads import HookThreads\n"
        "from deedbook.contract.lifecycle import NoAnswer\n"
        "try:\n    HookThreads(lambda: time.sleep(3600), 0.05)()\n"
        "except NoAnswer as problem:\n    print(problem)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=LONG, check=True)
    assert done.stdout == "did not answer within its limit of 50 ms\n"


# --- through the door -------------------------------------------------------------------------------------------------


@pytest.fixture
def acting(lab):
    lab.tool("shout", lambda args, ctx: args)
    return lab


def call(lab, **args):
    with lab.session() as session:
        return session.call("shout", args)


def test_hook_on_a_thread_guards_rewrites_and_narrows(acting):
    caller = threading.get_ident()
    threads = []

    def note(decision):
        threads.append(threading.get_ident())
        return decision

    acting.hook("r", "PreToolUse", lambda call: note(transform({"a": 2})), rewrites=True, isolation="thread")
    acting.hook("g", "PreToolUse", lambda call: note(allow()), isolation="thread", pure=True)
    acting.hook("o", "PostToolUse", lambda call, result: note({"b": result["a"]}), isolation="thread")
    assert call(acting, a=1).value == {"b": 2}
    assert len(threads) == 3
    assert caller not in threads


def test_hook_that_hangs_on_a_thread_denies_the_call_and_is_recorded(acting, stuck):
    acting.hook("slow", "PreToolUse", lambda call: stuck() and allow(), isolation="thread", timeout_ms=30)
    assert call(acting).error.code == "GATE_DENIED"
    (asked,) = acting.payload("hook.fired")["asked"]
    assert (asked["decision"], asked["reason"]) == ("deny", "did not answer within its limit of 30 ms")


def test_event_loop_runs_on_while_a_hook_is_waited_for(acting):
    import asyncio

    free = threading.Event()
    acting.hook("slow", "PreToolUse", lambda call: allow() if free.wait(LONG) else None, isolation="thread",
                timeout_ms=60_000)  # fmt: skip

    async def both(session):
        asked = asyncio.ensure_future(session.acall("shout", {}))
        await asyncio.sleep(0.01)
        free.set()  # on this loop: it would never come to this if the hook held it up
        return await asked

    with acting.session() as session:
        assert asyncio.run(both(session)).value == {}


def test_where_a_hook_stands_is_part_of_what_identifies_it(acting):
    digests = set()
    for isolation in ("inline", "thread"):
        acting.hook("h", "PreToolUse", lambda call: allow(), isolation=isolation)
        (guard,) = acting.kernel().bindings.abilities["shout"].guards
        digests.add(guard.digest)
        assert guard.waits is (isolation == "thread")
    assert len(digests) == 2
