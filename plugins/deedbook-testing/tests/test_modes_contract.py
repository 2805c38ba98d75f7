"""The contract of flows in two modes finds each flow that breaks one of its rules."""

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

from cases import for_each

from deedbook_testing.outside import find_outside

HERE = Path(__file__).parent
PAIRS = {
    "Right": ("Runtime", "Standalone", set()),
    "ReturnsToo": ("ReturnsToo", "Standalone", {"with_a_context_it_writes_there_and_returns_nothing"}),
    "KeepsState": ("KeepsState", "Standalone", {"its_objects_hold_no_state_of_a_run"}),
    "StopsHalfWay": ("StopsHalfWay", "Standalone", {"with_a_context_it_writes_there_and_returns_nothing"}),
    "OtherCalls": ("Runtime", "OtherCalls", {"both_modes_make_the_same_calls_through_the_door"}),
    "CallsAContext": ("Runtime", "CallsAContext", {"without_a_context_it_returns_the_result"}),
    "OtherArguments": ("Runtime", "OtherArguments", {"specs_say_which_mode_each_is"}),
    "BothStandalone": ("Standalone", "Standalone", {"specs_say_which_mode_each_is"}),
    "BothRuntime": ("Runtime", "Runtime", {"specs_say_which_mode_each_is"}),
    "Outside": ("Outside", "Standalone", {"acts_through_the_door_only"}),
}
"""Each pair, and the checks that it fails; others may fail with them."""
FLOWS = sorted({name for first, second, _ in PAIRS.values() for name in (first, second)} - {"Outside"})
TESTS = """
from deedbook_testing import FlowModesContract


class Pair(FlowModesContract):
    examples = ({},)
    allows = ("echo",)

    def prepare(self, lab):
        lab.tool("echo", lambda args, ctx: args)

"""


def test_each_wrong_pair_fails_where_it_is_wrong_and_a_right_one_nowhere(tmp_path):
    site = tmp_path / "site"
    (site / "wrong_modes-1.0.dist-info").mkdir(parents=True)
    (site / "wrong_modes.py").write_text((HERE / "wrong/wrong_modes.py").read_text())
    (site / "wrong_outside.py").write_text("import socket\nfrom wrong_modes import Runtime as Outside\n")
    points = "".join(f"{name} = wrong_modes:{name}\n" for name in FLOWS) + "Outside = wrong_outside:Outside\n"
    told = {"METADATA": "Metadata-Version: 2.1\nName: wrong-modes\nVersion: 1.0\n",
            "entry_points.txt": f"[deedbook.flows]\n{points}", "RECORD": ""}  # fmt: skip
    for name, text in told.items():
        (site / "wrong_modes-1.0.dist-info" / name).write_text(text)
    classes = (f"class Test{name}(Pair):\n    name, standalone = {pair[:2]!r}\n\n\n" for name, pair in PAIRS.items())
    (tmp_path / "test_wrong.py").write_text(TESTS + "\n" + "".join(classes))
    report = tmp_path / "report.xml"
    own = [f"test_wrong.py::Test{name}::test_{check}" for name, (*_, wrong) in PAIRS.items() for check in wrong]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}",
         "test_wrong.py::TestRight", *own],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(site), "PYTEST_ADDOPTS": ""},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    failed: dict[str, set[str]] = {name: set() for name in PAIRS}
    for case in ET.parse(report).getroot().iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            failed[case.attrib["classname"].rpartition(".Test")[2]].add(case.attrib["name"].removeprefix("test_"))
    assert failed["Right"] == set(), done.stdout
    assert {name: wrong - failed[name] for name, (*_, wrong) in PAIRS.items() if not wrong <= failed[name]} == {}


@for_each("code", [
    "import subprocess", "import os, socket", "from http import client", "from http.client import HTTPConnection",
    "import urllib.request as r", "from urllib import request", "import httpx", "open('x')", "import io\nio.open('x')",
    "import os\nos.system('x')", "import os\nos.execv('x', [])", "path.read_text()", "(a / b).write_bytes(b'')",
    "def f():\n    import requests", "__import__('socket')", "exec('x')", "self.path.open()",
    "from os import system\nsystem('x')", "from os import system as s\ns('x')", "import os as o\no.execv('x', [])",
    "import os\nf = os.system", "import os\ngetattr(os, 'sys' + 'tem')('x')", "import os\nvars(os)['system']('x')",
    "import os\nos.remove('x')", "import os\nos.listdir()", "from os import *", "import posix\nposix.system('x')",
    "import os\nos.posix_spawn('x', [], {})", "import os\nos.fork()", "import pty",
    "import importlib\nimportlib.import_module('socket')", "from importlib import import_module as load",
    "import importlib.util", "import runpy", "import sys\nsys.modules['os']", "import builtins\nbuiltins.open('x')",
    "f = open\nf('x')", "[*map(open, names)]", "__builtins__['open']('x')",
    "from pathlib import Path\nPath('x').open()", "from pathlib import Path\nPath('x').read_text()",
    "from pathlib import Path\nPath('x').write_text('y')", "from pathlib import Path\nPath.read_bytes(x)",
    "from pathlib import Path\n[*Path('x').iterdir()]", "import urllib\nurllib.request.urlopen('x')",
    "import urllib\nurllib.request.Request('x')", "from urllib.request import urlopen",
    "import asyncio\nasyncio.create_subprocess_exec('x')", "from asyncio import create_subprocess_shell as run",
    "import asyncio.subprocess", "from asyncio import subprocess", "import asyncio\nasyncio.open_connection('x', 1)",
    "import asyncio\nasyncio.get_running_loop().subprocess_exec(p, 'x')", "import socket as s", "import _socket",
    "import codecs\ncodecs.open('x')", "import logging\nlogging.FileHandler('x')", "import multiprocessing.pool",
    "class F:\n    async def __call__(self, args, run):\n        from subprocess import run as r",
    "if TYPE:\n    import http.client", "try:\n    import httpx\nexcept ImportError:\n    pass",
])  # fmt: skip
def test_code_that_acts_outside_is_found(tmp_path, code):
    path = tmp_path / "flow.py"
    path.write_text(f"{code}\n")
    assert [*find_outside(path)]


@for_each("code", [
    "import json, urllib.parse", "from http import HTTPStatus", "import re\nre.compile('x')", "from .files import x",
    "run.call('open', {})", "opened = 1", "settings.get('open')", "from .subprocess import x",
    "import os\nos.path.join('a', 'b')", "import os\nos.fspath(x)", "from os import PathLike", "import os.path as p",
    "import asyncio\nasyncio.gather(a, b)", "from pathlib import PurePath\nPurePath('x').name",
    "import sys\nsys.version", "text.replace('a', 'b')", "getattr(self, 'open')", "from importlib import metadata",
    "import logging\nlogging.info('x')", "def compile(task):\n    pass", "def f(open):\n    return open",
])  # fmt: skip
def test_other_code_is_not(tmp_path, code):
    path = tmp_path / "flow.py"
    path.write_text(f"{code}\n")
    assert [*find_outside(path)] == []
