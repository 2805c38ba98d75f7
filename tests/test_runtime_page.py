"""The page on the runtime: its workspace is served, its program runs, its tables are what the schemas and codes say."""

import json
import re
import subprocess
import sys

import pytest
import serving
from commandline import ROOT, SCHEMAS, Place

from deedbook.format.errors import CODES
from deedbook_serve.serving import actions, connection_server, process, session_table, streams, wire
from deedbook_serve.serving.wire import REQUEST, RESPONSE

PAGE = (ROOT / "docs" / "runtime.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```([a-z]*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def blocks(language):
    return [text for found, text in BLOCKS if found == language]


def rows(heading):
    """Return the first cells of the table whose first column is called *heading*: all that stands in backquotes."""
    table = PAGE.partition(f"\n| {heading} |")[2].partition("\n\n")[0]
    return [name for line in table.splitlines()[2:] for name in re.findall(r"`([^`]+)`", line.split("|")[1])]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Serve the workspace that the page spells out."""
    made = Place(tmp_path_factory.mktemp("page") / "workspace")
    made.system("deedbook.yaml", blocks("yaml")[0])
    with serving.served(made):
        yield made


def test_program_prints_what_the_page_shows(place):
    (program,), (shown,) = blocks("python"), blocks("")
    ran = subprocess.run([sys.executable, "-c", program], cwd=place.path, capture_output=True, text=True, check=True)
    assert ran.stdout == shown
    assert (place.path / "notes/ada.txt").read_text() == "Hello"


def test_request_of_the_page_is_answered(place):
    (request,) = blocks("json")
    with serving.Wire(place) as connection:
        connection.send(json.dumps(json.loads(request)).encode() + b"\n")
        answer = connection.answer()["result"]
    assert set(answer) == {"session", "principal", "charter", "enforcement"}


def test_page_lists_every_method_action_and_status():
    request, response = SCHEMAS.document(REQUEST), SCHEMAS.document(RESPONSE)
    assert rows("method") == request["properties"]["method"]["enum"]
    assert set(rows("action")) == set(request["$defs"]["action"]["properties"]["action"]["enum"])
    assert rows("status") == response["$defs"]["result"]["properties"]["status"]["enum"]


def test_page_lists_the_numbers_of_errors():
    table = PAGE.partition("\n| number |")[2].partition("\n\n")[0]
    told = {
        code: int(line.split("|")[1]) for line in table.splitlines()[2:] for code in re.findall(r"`([A-Z_]+)`", line)
    }
    assert {code: number for code, number in told.items() if number != -32000} == dict(wire._NUMBERS)
    assert set(told) <= set(CODES)


def test_page_says_the_limits_that_are_in_force():
    for said in (
        f"at most {connection_server.MAX_CONNECTIONS} (`--connections`)",
        f"at most {session_table.MAX_SESSIONS} sessions",
        f"up to {session_table.LOCK_TIMEOUT:g} s (`SESSION_BUSY`)",
        f"kept for {session_table.GRACE:g} s (`--grace`)",
        f"have {process.DRAIN:g} s to finish (`--drain`)",
        f"their answer for {streams.PATIENCE:g} s",
        f"the first {session_table.MAX_REFUSALS} of them",
        f"at most {streams.MAX_LINE // 2**20} MiB",
    ):
        assert said in " ".join(PAGE.split()), said
    assert actions.OK == "ok"
