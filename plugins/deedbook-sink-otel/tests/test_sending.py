"""From a real workspace to a collector that decodes what arrives: ids, conventions, cursors, and every way to fail."""

import json
import signal
import subprocess
import sys
import time

import pytest
from otel_collector import OK, Answer, rejecting, told

from deedbook import allow, deny
from deedbook.cli import program as cli
from deedbook.plugins.commands import find_commands
from deedbook_sink_otel import cursors
from deedbook_sink_otel.commands import command
from deedbook_sink_otel.conventions import SCHEMA_URL


@pytest.fixture
def session(lab):
    """Give the id of a session in which one call ran and one was denied."""
    lab.tool("echo", lambda args, ctx: {"said": args["text"]})
    lab.policy("careful", lambda call: deny("no") if call.args["text"] == "no" else allow())
    with lab.session() as session:
        session.call("echo", {"text": "a very secret argument"})
        session.call("echo", {"text": "no"})
    return session.id


def by_name(collector):
    return {span.name: span for span in collector.spans}


# --- what arrives -----------------------------------------------------------------------------------------------------


def test_the_command_is_found_and_described_by_its_entry_point():
    offered = find_commands()["otel"]
    assert offered.load() is command
    assert (offered.describe().line, offered.describe().section) == (
        "Send spans to an OpenTelemetry collector.",
        "Record",
    )


def test_spans_arrive_with_the_ids_and_times_of_the_ledger(lab, session, otel, collector):
    said = otel("export", session)
    assert said.out == f"{len(collector.spans)} spans sent\n"
    events = {event.span: event for event in lab.events(session)}
    trace = json.loads(lab.ledger(session).read_bytes().splitlines()[0])["trace_id"]
    for span in collector.spans:
        event = events[span.span_id.hex()]
        assert span.trace_id.hex() == trace
        assert (span.parent_span_id.hex() or None) == event.parent
        assert span.start_time_unix_nano % 1_000_000_000 == int(event.ts[20:23]) * 1_000_000
        assert span.end_time_unix_nano >= span.start_time_unix_nano
    call, denied = by_name(collector)["session open"], [span for span in collector.spans if span.status.code == 2]
    assert not call.parent_span_id
    assert [told(span)["error.type"] for span in denied] == ["GATE_DENIED"]


def test_names_follow_the_pinned_conventions(session, otel, collector):
    otel("export", session)
    (scope,) = collector.scopes
    assert (scope.schema_url, scope.scope.name) == (SCHEMA_URL, "deedbook_sink_otel")
    tool = next(span for span in collector.spans if span.name == "execute_tool echo" and not span.status.code)
    attributes = told(tool)
    assert attributes["gen_ai.operation.name"] == "execute_tool"
    assert (attributes["deedbook.decision"], attributes["deedbook.policy.ids"]) == ("allow", ["careful"])
    assert (attributes["deedbook.layer"], attributes["deedbook.outcome"]) == ("L1", "ok")
    (resource,) = (each.resource for request in collector.requests for each in request.resource_spans)
    assert told(resource)["service.name"] == "deedbook"


def test_sent_twice_they_are_the_same_bytes(session, otel, collector):
    otel("export", session)
    otel("export", session)
    assert len(collector.raw) == 2
    assert collector.raw[0] == collector.raw[1]


def test_contents_stay_here_unless_asked_for(session, otel, collector):
    otel("export", "all")
    assert b"secret" not in b"".join(collector.raw)
    otel("export", session, "--contents")
    assert b"a very secret argument" in collector.raw[-1]


def test_values_of_sealed_members_stay_here_always(lab, otel, collector):
    lab.settings(seal=["tool.*/args/text"])
    lab.tool("echo", lambda args, ctx: {"said": "done"})
    with lab.session() as session:
        session.call("echo", {"text": "a very secret argument"})
    otel("export", session.id, "--contents")
    assert b"secret" not in b"".join(collector.raw)
    assert b"[sealed, 24 bytes]" in collector.raw[-1]


def test_headers_and_environment_are_those_of_opentelemetry(session, otel, collector, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-team=audit")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.name=books,deployment.environment.name=test")
    otel("export", session, "--header", "authorization=Bearer x")
    headers = {name.lower(): value for name, value in collector.headers[0].items()}
    assert (headers["authorization"], headers["content-encoding"]) == ("Bearer x", "gzip")
    (resource,) = (each.resource for request in collector.requests for each in request.resource_spans)
    assert told(resource)["service.name"] == "books"
    otel("export", session, "--header", "nothing", status=2)


def test_workspace_ledger_is_told_too_and_open_spans_are_counted(lab, session, otel, collector):
    assert "have begun and not ended" in otel("export", "workspace").err
    assert "ledger.created" in by_name(collector)


def test_ledger_of_an_old_form_is_told(lab, session, otel, collector, tmp_path, deedbook_command):
    exported = subprocess.run(
        [deedbook_command, "export", session, "--as", "seed-002"], cwd=lab.path, capture_output=True, check=True
    )
    (tmp_path / "old.jsonl").write_bytes(exported.stdout)
    otel("export", session)
    otel("export", str(tmp_path / "old.jsonl"))
    (tmp_path / "two.jsonl").write_bytes(exported.stdout + exported.stdout.replace(session.encode(), b"another"))
    otel("follow", f"{tmp_path}/two.jsonl#another")
    new, old, other = ({(span.name, span.span_id) for span in each.resource_spans[0].scope_spans[0].spans}
                       for each in collector.requests)  # fmt: skip
    assert old >= new
    assert other == old
    assert told(collector.spans[-1])["deedbook.session.id"] == "another"


def test_old_session_whose_end_does_not_say_how_is_no_failure(lab, session, otel, collector, tmp_path):
    rows = [
        {"event_type": "session.start", "payload": {"_span_id": "a"}},
        {"event_type": "session.end", "payload": {"_parent_span_id": "a", "_span_id": "b", "message": "ended"}},
    ]
    common = {"schema_version": "1.0", "session_id": "s", "trace_id": "t", "ts": "2025-12-18T02:28:10.544Z"}
    lines = (json.dumps({**row, **common, "payload_hash": ""}, sort_keys=True) for row in rows)
    (tmp_path / "old.jsonl").write_text("\n".join([*lines, ""]))
    otel("export", str(tmp_path / "old.jsonl"))
    assert [span.name for span in collector.spans] == ["session"]
    assert "error.type" not in told(collector.spans[0])
    assert collector.spans[0].status.code == 0


FOREIGN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize(("parent", "links"), [(FOREIGN, [FOREIGN]), ("00-0-0-01", []), ("", [])])
def test_trace_that_the_command_was_called_in_is_a_link(lab, otel, collector, parent, links, monkeypatch):
    monkeypatch.setenv("TRACEPARENT", parent)
    monkeypatch.chdir(lab.path)
    lab.write("skills/none/SKILL.md", "---\nname: none\ndescription: Nothing.\nallowed-tools: []\n---\n")
    monkeypatch.setattr(sys, "argv", ["deedbook", "run", "hello"])
    cli._status(cli.GlobalOptions())
    otel("export", "last")
    (root,) = (span for span in collector.spans if not span.parent_span_id)
    assert [f"00-{link.trace_id.hex()}-{link.span_id.hex()}-01" for link in root.links] == links
    assert root.trace_id.hex() not in FOREIGN


# --- cursors ----------------------------------------------------------------------------------------------------------


def test_with_a_cursor_only_what_is_new_is_sent(lab, session, otel, collector, tmp_path):
    cursor = ["--cursor", str(tmp_path / "c.json")]
    otel("export", "all", *cursor)
    before = len(collector.spans)
    assert otel("export", session, *cursor).out == "0 spans sent\n"
    with lab.session() as later:
        later.call("echo", {"text": "more"})
    otel("export", "all", *cursor)
    new = {told(span)["deedbook.session.id"] for span in collector.spans[before:]}
    assert later.id in new
    assert session not in new
    ids = [span.span_id for span in collector.spans]
    assert len(ids) == len(set(ids))
    assert otel("export", session, *cursor, "--from-start").out != "0 spans sent\n"
    assert (tmp_path / "c.json").stat().st_mode & 0o777 == 0o600


def test_batch_that_was_taken_before_the_cursor_was_kept_is_sent_again(session, otel, collector, tmp_path, monkeypatch):
    """A process killed in between, which is when at least once is not exactly once."""
    cursor = ["--cursor", str(tmp_path / "c.json")]
    with monkeypatch.context() as patch:
        patch.setattr(cursors.Cursor, "save", lambda self: (_ for _ in ()).throw(KeyboardInterrupt))
        otel("export", session, *cursor, status=130)
    assert len(collector.raw) == 1
    otel("export", session, *cursor)
    assert collector.raw[0] == collector.raw[1]


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"schema_version": "v2"}', '{"schema_version":"v1","sessions":{"a":1}}']
)
def test_cursor_that_is_none_is_refused(session, otel, tmp_path, text):
    (tmp_path / "c.json").write_text(text)
    assert "is no cursor" in otel("export", session, "--cursor", str(tmp_path / "c.json"), status=1).err


def test_cursor_in_use_is_refused(session, otel, tmp_path):
    with cursors.Cursor.open(tmp_path / "c.json"):
        said = otel("export", session, "--cursor", str(tmp_path / "c.json"), status=1)
    assert "is used by another process" in said.err


@pytest.mark.parametrize("change", ["cut", "replaced"])
def test_ledger_that_is_not_what_was_sent_is_refused(lab, session, otel, collector, tmp_path, change):
    cursor = ["--cursor", str(tmp_path / "c.json")]
    otel("export", session, *cursor)
    lines = lab.ledger(session).read_bytes().splitlines(keepends=True)
    place = tmp_path / ".events.jsonl"
    place.write_bytes(b"".join(lines[:-1]))
    if change == "replaced":
        place.write_bytes(b"".join(lines))
        told_of = json.loads((tmp_path / "c.json").read_text())
        told_of["sessions"][session][1] = "0" * 64
        (tmp_path / "c.json").write_text(json.dumps(told_of))
    said = otel("export", str(place), *cursor, status=1).err
    assert "verify" in said
    assert len(collector.raw) == 1


# --- what goes wrong --------------------------------------------------------------------------------------------------

HTML = Answer(200, b"<html>hello</html>", "text/html")
FAULTS = {
    "400": ([Answer(400, b"bad span", "text/plain")], "answered 400 Bad Request: bad span"),
    "404": ([Answer(404)], "answered 404 Not Found"),
    "401": ([Answer(401)], "answered 401 Unauthorized"),
    "500": ([Answer(500)], "answered 500 Internal Server Error"),
    "503 for too long": ([Answer(503)] * 9, "answered 503 Service Unavailable"),
    "429 until tomorrow": ([Answer(429, headers={"retry-after": "86400"})], "answered 429 Too Many Requests"),
    "a page": ([HTML], "which no OTLP endpoint does; is the path right"),
    "elsewhere": ([Answer(302, headers={"location": "http://127.0.0.1:1/"})], "answered 302 Found"),
    "silence": ([Answer(hangs=True)] * 9, "the collector cannot be reached"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_not_taken_is_said_once_and_sent_the_next_time(session, otel, collector, tmp_path, fault):
    answers, words = FAULTS[fault]
    cursor = ["--cursor", str(tmp_path / "c.json")]
    collector.script.extend(answers)
    failed = otel("export", session, *cursor, status=1)
    (line,) = failed.err.splitlines()
    assert words in line
    assert line.startswith("error: ")
    assert collector.requests == []
    assert not (tmp_path / "c.json").exists()
    collector.script.clear()
    otel("export", session, *cursor)
    assert {"execute_tool echo", "session open"} <= set(by_name(collector))


def test_collector_that_is_not_there_is_said(session, otel):
    said = otel("export", session, endpoint="http://127.0.0.1:1/v1/traces", status=1)
    assert "the collector cannot be reached" in said.err
    assert said.out == ""


def test_collector_that_is_busy_for_a_moment_is_asked_again(session, otel, collector):
    collector.script.extend([Answer(503, headers={"retry-after": "0"}), Answer(429, headers={"retry-after": "0"}), OK])
    otel("export", session)
    assert len(collector.paths) == 3
    assert len(collector.requests) == 1


def test_spans_that_the_collector_rejects_are_counted_and_not_sent_again(session, otel, collector, tmp_path):
    collector.script.append(rejecting(2))
    cursor = ["--cursor", str(tmp_path / "c.json")]
    said = otel("export", session, *cursor, status=1)
    assert "rejected 2 spans" in said.err
    assert otel("export", session, *cursor).out == "0 spans sent\n"


def test_forged_line_is_not_told(lab, session, otel, collector, tmp_path):
    forged = lab.ledger(session).read_bytes().replace(b"a very secret argument", b"a very secret falsehood")
    (tmp_path / "forged.jsonl").write_bytes(forged)
    assert "is not what was written" in otel("export", str(tmp_path / "forged.jsonl"), status=4).err
    assert b"falsehood" not in b"".join(collector.raw)


# --- following --------------------------------------------------------------------------------------------------------


def test_session_is_followed_as_it_is_written_until_it_ends(lab, collector, deedbook_command):
    lab.tool("echo", lambda args, ctx: {"said": args["text"]})
    with lab.session() as session:
        args = [deedbook_command, "otel", "follow", session.id, "--endpoint", collector.url]
        following = subprocess.Popen(args, cwd=lab.path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            for number in range(3):
                session.call("echo", {"text": f"{number}"})
                assert len(collector.wait_for(number + 1)) == number + 1
        except BaseException:
            following.kill()
            raise
    out, err = following.communicate(timeout=30)
    assert (following.returncode, out, err) == (0, b"4 spans sent\n", b"")
    assert [span.name for span in collector.spans][-1] == "session open"


def test_following_all_goes_on_where_it_was_stopped(lab, session, collector, deedbook_command):
    args = [deedbook_command, "otel", "follow", "--endpoint", collector.url]
    wanted = session
    for _ in range(2):
        following = subprocess.Popen(args, cwd=lab.path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            wait_for_cursor(lab, wanted)
        finally:
            following.send_signal(signal.SIGTERM)
            _, err = following.communicate(timeout=30)
        assert (following.returncode, err.strip()) == (130, b"error: interrupted")
        with lab.session() as later:
            later.call("echo", {"text": "more"})
        wanted = later.id
    ids = [span.span_id for span in collector.spans]
    assert len(ids) == len(set(ids))
    sessions = {told(span)["deedbook.session.id"] for span in collector.spans}
    assert len([name for name in sessions if not name.startswith("ws-")]) == 2


def wait_for_cursor(lab, session):
    """Wait until a cursor beside the ledgers says that *session* was told."""
    for _ in range(600):
        if any(session in place.read_text() for place in lab.state.glob("sinks/*.json")):
            return
        time.sleep(0.05)
    raise AssertionError(f"nothing was told of {session}")
