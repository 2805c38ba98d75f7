"""The audit of files: what a handler does by itself is seen, and what its host does is not."""

import asyncio
import ctypes
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from deedbook import HandlerSpec


def in_thread(function):
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


def in_pool(function):
    with ThreadPoolExecutor(1) as pool:
        pool.submit(function).result()


OWN = {
    "open": lambda folder: open(folder / "a").close(),
    "os.open": lambda folder: os.close(os.open(folder / "a", os.O_RDONLY)),
    "pathlib": lambda folder: (folder / "a").read_bytes(),
    "listing": lambda folder: list(folder.iterdir()),
    "rename": lambda folder: os.rename(folder / "a", folder / "b"),
    "symlink": lambda folder: os.symlink("a", folder / "b"),
    "hard link": lambda folder: os.link(folder / "a", folder / "b"),
    "remove": lambda folder: os.remove(folder / "a"),
    "program": lambda folder: subprocess.run([sys.executable, "-c", ""], check=True),
    "posix_spawn": lambda folder: os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0),
    "native library": lambda folder: ctypes.CDLL(None),
    "thread": lambda folder: in_thread((folder / "a").read_bytes),
    "thread of a pool": lambda folder: in_pool((folder / "a").read_bytes),
    "bare thread": lambda folder: in_thread(lambda: os.listdir(folder)),
}


def play(lab, plugin, audit):
    """Call the tool once, and return what it did by itself."""
    lab.offer("tool", "offered", audit.watch(plugin))
    lab.settings(abilities={"tool": {"summary": "Tool.", "handler": {"tool": "offered"}, "schema_out": True}})
    with lab.session() as session, audit.watching() as seen:
        session.call("tool", {}).value  # noqa: B018 - a failure fails the test
    return list(seen)


def tool(act):
    """Return a tool that calls *act* with its host."""

    class Tool:
        spec = HandlerSpec(effects="none", gives={}, files="host")

        def __init__(self, settings, host):
            self.host = host

        def __call__(self, args, ctx):
            return act(self.host)

    return Tool


@pytest.mark.parametrize("name", OWN)
def test_what_a_handler_does_by_itself_is_seen(lab, deedbook_file_audit, tmp_path, name):
    (tmp_path / "a").write_text("a")
    assert play(lab, tool(lambda host: OWN[name](tmp_path) and None), deedbook_file_audit)


def test_what_the_host_does_is_not_seen(lab, deedbook_file_audit):
    def act(host):
        host.replace("new/file", b"x", expected="")
        with host.open("new/file") as file:
            file.read()
        host.run([sys.executable, "-c", ""], seconds=20)
        return len(host.scan("new"))

    assert play(lab, tool(act), deedbook_file_audit) == []


def test_an_import_is_not_seen(lab, deedbook_file_audit, monkeypatch, tmp_path):
    (tmp_path / "imported_by_a_tool.py").write_text("X = 1")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "imported_by_a_tool", raising=False)
    assert play(lab, tool(lambda host: __import__("imported_by_a_tool").X), deedbook_file_audit) == []


@pytest.mark.parametrize("way", ["await", "task", "to_thread", "executor"])
def test_asynchronous_handler_is_seen(lab, deedbook_file_audit, way):
    class Later:
        spec = HandlerSpec(effects="none", gives={}, files="none")

        def __init__(self, settings, host):
            pass

        async def __call__(self, args, ctx):
            await asyncio.sleep(0)
            await {
                "await": self.read,
                "task": lambda: asyncio.create_task(self.read()),
                "to_thread": lambda: asyncio.to_thread(os.listdir, "."),
                "executor": lambda: asyncio.get_running_loop().run_in_executor(None, os.listdir, "."),
            }[way]()

        async def read(self):
            Path(__file__).read_bytes()  # noqa: ASYNC240

    assert play(lab, Later, deedbook_file_audit)


def test_what_others_do_meanwhile_is_not_seen(lab, deedbook_file_audit):
    begun, ended = threading.Event(), threading.Event()

    def other():
        assert begun.wait(30)
        Path(__file__).read_bytes()
        ended.set()

    thread = threading.Thread(target=other)
    thread.start()

    def act(host):
        begun.set()
        assert ended.wait(30)

    assert play(lab, tool(act), deedbook_file_audit) == []
    thread.join()
