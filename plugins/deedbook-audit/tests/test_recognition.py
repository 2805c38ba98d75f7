"""Which form a ledger has; every command that reads one names a file that is no ledger as what it is."""

import bz2
import gzip
import io
import json
import lzma
import shutil

import ledgers
import pytest
from commandline import Place, starter
from hypothesis import given
from hypothesis import strategies as st
from test_event_ledger import boot, unhashed
from test_old_verification import complete
from test_verify import honest_1_0, verify

from deedbook_audit.upcasting.recognition import describe_other, recognise

NOTES = b"# Notes\n\nSome *text*.\n"
OTHERS = {
    "markdown": (NOTES, "its first line is not a JSON object: '# Notes'"),
    "empty": (b"", "it is empty"),
    "newlines": (b"\n" * 4096, "its first line is not a JSON object: ''"),
    "json-lines": (b'{"level":"info","msg":"x"}\n' * 3, "a JSON object with other fields (level, msg)"),
    "cloudevents": (
        b'{"specversion":"1.0","id":"s:1","type":"x","source":"y","data":{}}\n',
        "with other fields (data, ",
    ),
    "github": (b'{"id":"1","type":"PushEvent","actor":{},"repo":{},"payload":{}}\n', "other fields (actor, id, "),
    "observability": (
        b'{"event_type":"run_started","run_id":"run_1","timestamp":"x"}\n',
        "with other fields (event_type",
    ),
    "one-document": (json.dumps({"a": 1}, indent=1).encode(), "its first line is not a JSON object: '{'"),
    "list": (b"[1]\n", "its first line is not a JSON object"),
    "no-fields": (b"{}\n", "with other fields (none)"),
    "deep": (b"[" * 100_000, "its first line is not a JSON object"),
    "terminal": (b"\x1b]52;c;ZXZpbA==\x07\n", "its first line is not a JSON object"),
    "binary": (b"\x00\x01\x02\n\xff", "it is binary, not text"),
    "utf-16": ("{}\n".encode("utf-16"), "it is binary, not text"),
    "gzip": (gzip.compress(NOTES), "it is compressed with gzip"),
    "bzip2": (bz2.compress(NOTES), "it is compressed with bzip2"),
    "xz": (lzma.compress(NOTES), "it is compressed with xz"),
    "png": (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "it is a PNG image"),
    "pdf": (b"%PDF-1.7\n", "it is a PDF document"),
    "sqlite": (b"SQLite format 3\0", "it is an SQLite database"),
}
COMMANDS = {
    "verify": ["verify"],
    "tree": ["tree"],
    "replay": ["replay"],
    "page": ["replay", "--html"],
    "stats": ["stats"],
    "export": ["export"],
    "cloudevents": ["export", "--as", "cloudevents"],
    "import": ["ledger", "import", "--as-is", "why not"],
    "whatif": ["whatif", "--system", "."],
    "explain": ["explain", "--json"],
    "fork": ["fork", "--at", "1"],
}


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Give a workspace with one session."""
    place = starter(tmp_path_factory.mktemp("recognition") / "workspace")
    place.here("call", "echo", "--args", '{"text":"hi"}', status=0)
    return place


@pytest.mark.parametrize("name", OTHERS)
def test_other_file_is_named_as_what_it_is(ready, tmp_path, name):
    raw, what = OTHERS[name]
    (tmp_path / "x.y").write_bytes(raw)
    ran = ready.here("verify", str(tmp_path / "x.y"), status=4)
    assert ran.out == ""
    (line,) = ran.err.splitlines()
    assert line.isprintable()
    assert line.startswith(f"error: {tmp_path / 'x.y'}: not a Deedbook ledger: ")
    assert what in line
    assert "expected a line of format 1.1, of envelope 1.0, " in line
    assert line.endswith(" [NOT_A_LEDGER]")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_that_reads_a_ledger_refuses_another_file(ready, tmp_path, command):
    (tmp_path / "notes.md").write_bytes(NOTES)
    before = (ready.path / ".deedbook/workspace/.events.jsonl").read_bytes()
    seq = ["1"] if command == "explain" else []
    ran = ready.here(*COMMANDS[command], str(tmp_path / "notes.md"), *seq, status=4)
    assert "NOT_A_LEDGER" in ran.out + ran.err
    assert (ready.path / ".deedbook/workspace/.events.jsonl").read_bytes() == before


def test_outcome_as_json_is_an_error_with_a_code(ready, tmp_path):
    (tmp_path / "notes.md").write_bytes(NOTES)
    (error,) = ready.here("verify", "--json", str(tmp_path / "notes.md"), status=4).fits("output_error_v1")["errors"]
    assert (error["code"], error["place"]) == ("NOT_A_LEDGER", str(tmp_path / "notes.md"))


def test_folder_without_a_ledger_is_no_ledger(ready, tmp_path):
    (tmp_path / "folder").mkdir()
    ran = ready.here("verify", str(tmp_path / "folder"), status=4)
    assert "not a Deedbook ledger: it is a folder without a file .events.jsonl" in ran.err


def test_file_whose_name_could_be_an_id_is_pointed_out(ready):
    (ready.path / "README").write_bytes(NOTES)
    ran = ready.here("verify", "README", status=2)
    assert "there is no session 'README'; to name the file, write ./README" in ran.err


# --- damaged ledgers stay ledgers -------------------------------------------------------------------------------------


HONEST = {
    "1.1": lambda: ledgers.call().bytes(),
    "1.0": lambda: b"".join(honest_1_0()),
    "seed-000": lambda: b"".join(complete()),
    "seed-002-unhashed": lambda: b"".join([boot("a"), *(unhashed("memory.version_check", {}) for _ in range(3))]),
}
DAMAGES = {
    "as it is": lambda raw: raw,
    "a byte order mark": lambda raw: b"\xef\xbb\xbf" + raw,
    "a first line of zeroes": lambda raw: b"\0" * raw.index(b"\n") + raw[raw.index(b"\n") :],
    "a first line that was cut": lambda raw: raw[40:],
    "a line before it": lambda raw: NOTES + raw,
    "a megabyte before it": lambda raw: (b"\n" * 64 + b"x" * 960) * 1024 + b"\n" + raw,
    "a first byte that flipped": lambda raw: b"\x7f" + raw[1:],
    "other line ends": lambda raw: raw.replace(b"\n", b"\r\n"),
}


@pytest.mark.campaign(keep=12)
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("form", HONEST)
def test_ledger_with_a_damaged_beginning_keeps_its_form(tmp_path, form, damage):
    raw = DAMAGES[damage](HONEST[form]())
    assert recognise(io.BytesIO(raw)) == form
    (tmp_path / "x").write_bytes(raw)
    report = verify(tmp_path / "x")
    assert report.format == form
    assert report.faultless is (damage == "as it is" or (damage == "other line ends" and form[0] == "s"))


@given(st.binary(max_size=400))
def test_whatever_stands_before_a_ledger_it_is_recognised(noise):
    raw = noise.replace(b"\n", b"") + b"\n" + ledgers.call().lines[1]
    assert recognise(io.BytesIO(raw)) is not None


@given(st.binary(max_size=400))
def test_any_bytes_have_a_form_or_are_described(raw):
    file = io.BytesIO(raw)
    form, described = recognise(file), describe_other(file)
    assert form in (None, *HONEST)
    assert described.isprintable()


@pytest.mark.parametrize("offset", [-700, -3, -2, -1, 0, 1, 2])
def test_later_line_is_found_wherever_it_begins(offset):
    raw = b"x" * ((1 << 20) + offset) + b"\n" + ledgers.call().lines[1]
    assert recognise(io.BytesIO(raw)) == "1.1"


def test_file_in_the_place_of_a_ledger_is_a_damaged_ledger(ready, tmp_path):
    place = Place(tmp_path / "workspace")
    shutil.copytree(ready.path, place.path)
    (name,) = place.sessions()
    place.ledger(name).write_bytes(NOTES)
    for named in (name, str(place.ledger(name)), ".deedbook"):
        assert place.here("verify", named, status=4).out.startswith("BROKEN")
    assert "[LEDGER_UNSOUND]" in place.here("tree", str(place.ledger(name)), status=4).err
