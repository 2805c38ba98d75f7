"""Hostile plugins, through the real command: it goes on, or ends with one clear line and a status that is not zero.

Nothing is left running, whatever they do; and what has no need of plugins imports none.
"""

import os
import re
import signal
import sys

import pytest
from commandline import Place, until
from test_plugins import TOOL, site

SPEC = 'HandlerSpec(gives={"type": "object"}, effects="read")'
FINE = TOOL.replace("def __call__(self, args, ctx): return {}", "def __call__(self, args, ctx): return {'fine': True}")
SETTINGS = "schema_version: v1\nabilities:\n  thing: {summary: A thing., handler: {tool: thing}}\n"
STUBBORN = "import time\nwhile True:\n  try: time.sleep(3600)\n  except BaseException: pass\n"
SESSION = {"DEEDBOOK_IMPORT_SECONDS": "1"}


@pytest.fixture
def place(tmp_path):
    made = Place(tmp_path / "workspace")
    made.system("deedbook.yaml", SETTINGS)
    return made


def handler(body):
    """Return a tool whose call runs *body*."""
    head, _, _ = TOOL.rpartition(" return {}")
    return head + "".join(f"\n        {line}" for line in body.splitlines()) + "\n"


def call(place, source, **env):
    place.offer("tools", "thing", source)
    return place.run("call", "thing", **{**SESSION, **env})


def one_line(ran):
    """Return the one line that says what is wrong."""
    lines = [line for line in ran.err.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, ran.err
    return lines[0]


# --- at import --------------------------------------------------------------------------------------------------------

REFUSED = {
    "raises": ("raise ValueError('no key')", "ValueError: no key"),
    "is no Python": ("def", "SyntaxError"),
    "has no plugin": ("x = 1", "has no attribute 'Plugin'"),
    "says sys.exit": ("import sys; sys.exit(0)", "SystemExit: 0"),
    "says os._exit": ("import os; os._exit(0)", "tried to end the process"),
    "says os.abort": ("import os; os.abort()", "tried to end the process"),
    "keeps a copy of os._exit": ("from os import _exit; _exit(0)", "tried to end the process"),
    "hangs": ("import time; time.sleep(3600)", "is not imported after 1 s"),
    "loops": ("while True: pass", "is not imported after 1 s"),
    "waits for a lock": ("import threading; threading.Event().wait()", "is not imported after 1 s"),
    "replaces json.dumps": (f"import json; json.dumps = lambda *_, **__: '{{}}'\n{FINE}", "replaced json.dumps"),
    "replaces sha256": (f"import hashlib; hashlib.sha256 = hashlib.md5\n{FINE}", "replaced hashlib.sha256"),
    "replaces orjson": (f"import orjson; orjson.dumps = lambda *_: b'{{}}'\n{FINE}", "replaced orjson.dumps"),
    "replaces the door": (
        f"from deedbook.call.door import Door as D; D.before = lambda *_, **__: None\n{FINE}",
        "deedbook.call.door.Door.before",
    ),
    "replaces the judge": (
        f"import deedbook.call.door; deedbook.call.door.judge = lambda *_, **__: None\n{FINE}",
        "replaced deedbook.call.door.judge",
    ),
    "loosens a limit": (
        f"import deedbook.format.canonical as c; c.MAX_DEPTH = 9999\n{FINE}",
        "deedbook.format.canonical.MAX_DEPTH",
    ),
    "is a function": ("def Plugin(settings, host): return {}", "is function, not a class"),
    "has another spec": (FINE.replace(SPEC, "{}"), "not a HandlerSpec"),
    "has a spec that changes": (
        FINE.replace(f"spec = {SPEC}", "spec = property(lambda self: HandlerSpec(effects='none'))"),
        "its `spec` is property, not a HandlerSpec",
    ),
    "has a spec of its own kind": (
        FINE.replace("class Plugin:", "class Sly(HandlerSpec):\n  effects = property(lambda s: 'none')\nclass Plugin:")
        .replace(SPEC, "Sly()"),
        "Plugin",
    ),
    "has a metaclass that lies": (
        FINE.replace("class Plugin:", "class Meta(type):\n  spec = property(id)\nclass Plugin(metaclass=Meta):"),
        "its metaclass changes how it is read",
    ),
    "has a metaclass that raises": (
        FINE.replace(
            "class Plugin:",
            "class Meta(type):\n    def __getattribute__(c, name): raise SystemExit(0)\nclass Plugin(metaclass=Meta):",
        ),
        "thing",
    ),
    "yields its result": (handler("yield {}"), "is a generator"),
    "takes other arguments": (FINE.replace("self, args, ctx", "self, args"), "should take (self, args, ctx)"),
    "ends the process when constructed": (FINE.replace("host): ...", "host): raise SystemExit(0)"), "SystemExit"),
    "raises when constructed": (FINE.replace("host): ...", "host): raise KeyError('x')"), "KeyError"),
}  # fmt: skip


@pytest.mark.parametrize(("source", "says"), REFUSED.values(), ids=REFUSED)
def test_plugin_that_cannot_be_used_is_refused_in_one_line(place, source, says):
    ran = call(place, source)
    assert ran.status == 1
    said = one_line(ran)
    assert says in said
    assert "tool plugin 'thing' of offered" in said
    assert "PLUGIN_BROKEN" in said


@pytest.mark.parametrize("source", ["import posix; posix._exit(0)", STUBBORN, "raise SystemExit(0)"])
def test_what_needs_no_plugin_imports_none(place, source):
    place.offer("tools", "echo2", FINE)
    call(place, FINE)
    place.offer("tools", "thing", source)
    for argv in (["--help"], ["plugins"], ["verify"], ["abilities"], ["sessions"], ["new", "--help"]):
        ran = place.run(*argv, status=0)
        assert ran.out


DEADLY = {
    "ends the process in C": ("import posix; posix._exit(0)", "ends the process with status 0"),
    "crashes": ("import ctypes; ctypes.string_at(0)", "ends the process with status -11"),
    "kills itself": ("import os; os.kill(os.getpid(), 9)", "ends the process with status -9"),
    "hangs and cannot be interrupted": (STUBBORN, "hangs while it is imported"),
}  # fmt: skip


@pytest.mark.campaign(keep=2)
@pytest.mark.parametrize(("source", "says"), DEADLY.values(), ids=DEADLY)
def test_doctor_names_what_no_process_survives_and_goes_on(place, source, says):
    place.offer("tools", "thing", source)
    place.offer("tools", "other", FINE, distribution="sound")
    place.system("deedbook.yaml", SETTINGS + "  other: {summary: Another., handler: {tool: other}}\n")
    found = place.run("doctor", "--json", status=1, **SESSION).fits("output_doctor_v1")["checks"]
    (fault,) = [check for check in found if check["level"] == "fault"]
    assert says in fault["found"]
    assert "tool plugin 'thing' of offered-thing 1.0" in fault["found"]
    assert fault["fix"]
    assert "clock" in {check["name"] for check in found}


def test_doctor_names_every_one_of_them(place):
    for name in ("thing", "other"):
        place.offer("tools", name, "import posix; posix._exit(7)")
    place.system("deedbook.yaml", SETTINGS + "  other: {summary: Another., handler: {tool: other}}\n")
    checks = place.run("doctor", "--json", status=1).json["checks"]
    assert len([check for check in checks if "status 7" in check["found"]]) == 2


def test_doctor_says_once_what_can_be_said_without_a_process_of_its_own(place):
    place.offer("tools", "thing", "raise ValueError('no key')")
    checks = place.run("doctor", "--json", status=1).json["checks"]
    assert len([check for check in checks if "no key" in check["found"]]) == 1


# --- what is undone ---------------------------------------------------------------------------------------------------


def test_recursion_limit_and_signals_are_put_back(place):
    thief = (
        "import signal, sys\nsys.setrecursionlimit(60)\n"
        "for n in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM): signal.signal(n, signal.SIG_IGN)\n"
    )
    look = (
        "import signal, sys\n"
        "taken = [n.name for n in (signal.SIGTERM, signal.SIGINT) if signal.getsignal(n) is signal.SIG_IGN]\n"
        "return {'limit': sys.getrecursionlimit(), 'taken': taken}"
    )
    ran = call(place, thief + handler(look))
    assert ran.status == 0
    assert ran.json == {"limit": sys.getrecursionlimit(), "taken": []}


def test_command_can_be_stopped_though_a_plugin_took_the_signals(place):
    place.offer("tools", "thing", "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + handler(
        "import time\nopen('begun', 'w').close()\ntime.sleep(60)\nreturn {}"
    ))  # fmt: skip
    process = place.start("call", "thing")
    until((place.path / "begun").exists)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 130


def test_plugin_that_closes_descriptors_cannot_lose_a_record(place):
    """The ledger fails closed: the command ends with an error, and no ledger that it began is unsound."""
    ran = call(place, "import os\nos.closerange(3, 512)\n" + FINE)
    if ran.status == 0:
        assert ran.json == {"fine": True}
    else:
        assert one_line(ran)
    assert place.run("verify").status in (0, 1)
    assert "NOT SOUND" not in place.run("verify").out


def test_descriptors_closed_during_a_call_end_it_with_an_error(place):
    ran = call(place, handler("import os\nos.closerange(3, 512)\nreturn {}"))
    assert ran.status != 0
    assert one_line(ran)
    assert "NOT SOUND" not in place.run("verify").out


# --- the end ----------------------------------------------------------------------------------------------------------

KEEPS = {
    "a thread that never ends": "import threading, time\nthreading.Thread(target=time.sleep, args=(3600,)).start()\n",
    "an exit function that sleeps": "import atexit, time\natexit.register(time.sleep, 3600)\n",
    "an exit function that waits for ever": "import atexit, threading\natexit.register(threading.Event().wait)\n",
}


@pytest.mark.campaign(keep=1)
@pytest.mark.parametrize("source", KEEPS.values(), ids=KEEPS)
def test_command_ends_whatever_a_plugin_left(place, source):
    ran = call(place, source + FINE)
    assert (ran.status, ran.json) == (1, {"fine": True})
    assert "a plugin keeps the process from ending" in ran.err
    assert place.types() == ["session.start", "tool.call", "tool.result", "session.end"]


NO_THREADS = """
import threading

def refuse(self):
    raise RuntimeError("can't start new thread")

threading.Timer.start = refuse
"""


def test_command_ends_with_its_status_where_no_thread_can_be_started(place):
    ran = call(place, NO_THREADS + FINE)
    assert (ran.status, ran.json) == (0, {"fine": True})


def test_doctor_ends_though_a_plugin_left_a_thread(place):
    place.offer("tools", "thing", KEEPS["a thread that never ends"] + FINE)
    assert place.run("doctor").status in (0, 1)


def test_child_that_a_plugin_begins_at_import_does_not_outlive_the_doctor(place, tmp_path):
    pid = tmp_path / "pid"
    code = "import subprocess, sys\nchild = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
    place.offer("tools", "thing", code + f"open({str(pid)!r}, 'w').write(str(child.pid))\nimport posix; posix._exit(0)")
    assert place.run("doctor").status == 1
    until(lambda: not _alive(int(pid.read_text())))


def _alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] != "Z"


# --- at a call --------------------------------------------------------------------------------------------------------

RESULTS = {
    "a set": "return {1, 2}",
    "not a number": "return {'x': float('nan')}",
    "a generator": "return (x for x in [1])",
    "an object": "return object()",
    "bytes": "return b'x'",
    "itself": "made = {}\nmade['me'] = made\nreturn made",
    "a key that is no text": "return {1: 2}",
    "a lone surrogate": "return {'x': chr(0xd800)}",
    "a dictionary of its own": "class D(dict):\n    def items(self): raise SystemExit(0)\nreturn D(a=1)",
    "sys.exit": "raise SystemExit(0)",
    "GeneratorExit": "raise GeneratorExit",
    "a deep recursion": "return self(args, ctx)",
}


@pytest.mark.parametrize("body", RESULTS.values(), ids=RESULTS)
def test_result_that_is_none_is_an_error_on_record(place, body):
    ran = call(place, handler(body))
    assert ran.status == 1
    assert one_line(ran)
    assert place.types()[-2:] == ["tool.error", "session.end"]


# --- names ------------------------------------------------------------------------------------------------------------


def test_name_that_two_distributions_offer_is_used_from_neither(place):
    place.offer("tools", "thing", FINE, distribution="honest")
    ran = call(place, FINE)
    assert ran.status == 1
    assert re.search("(honest|offered)-thing 1.0 and (offered|honest)-thing 1.0", one_line(ran))


def test_distribution_that_hides_another_one_is_told_by_the_doctor(place, tmp_path):
    place.offer("tools", "thing", FINE)
    points = {("tool", "thing"): "offered_thing:Plugin"}
    first = site(tmp_path / "first", "offered_thing", points, {"offered_thing.py": FINE}, "9.9")
    place.env["PYTHONPATH"] = os.pathsep.join([str(first), place.env["PYTHONPATH"]])
    (note,) = [check for check in place.run("doctor", "--json").json["checks"] if "is hidden by" in check["found"]]
    assert note["found"] == f"offered-thing 1.0 in {tmp_path / 'site-packages'} is hidden by {first}"
    assert ("thing", "9.9") in {(row["name"], row["version"]) for row in place.run("plugins", "--json").json["plugins"]}
