"""export --as cloudevents: what the official SDK for Python reads, and what the specification says beyond that."""

import json
import re
from hashlib import sha256
from pathlib import Path

import ledgers
import pytest
from cloudevents.core.formats.json import JSONFormat
from commandline import Place

from deedbook.format.families import CATALOGUE, NOTHING_DECLARED
from deedbook.format.schema import data_folder
from deedbook_inspect.observing.cloudevents import encode_events
from deedbook_inspect.observing.ledger_reader import LedgerReader

LINES = {"run": ledgers.run, "approved": ledgers.approved, "workspace": ledgers.workspace, "served": ledgers.served}


@pytest.fixture(params=LINES)
def book(request, tmp_path: Path):
    """Give an honest ledger, and its file."""
    made = LINES[request.param]()
    place = tmp_path / "ledger.jsonl"
    place.write_bytes(b"".join(made.lines))
    return made, place


def exported(place: Path, **settings):
    with LedgerReader(place) as recording:
        return list(encode_events(recording(), **settings))


def test_official_sdk_reads_every_event(book):
    made, place = book
    for line, stored in zip(exported(place), map(json.loads, made.lines), strict=True):
        event = JSONFormat().read(None, line)
        attributes = event.get_attributes()
        assert event.get_specversion() == "1.0"
        assert event.get_id() == f"{made.session_id}:{stored['seq']}"
        assert event.get_type() == f"deedbook.{stored['event_type']}.v1"
        assert event.get_time().isoformat(timespec="milliseconds") == stored["ts"].replace("Z", "+00:00")
        assert event.get_data() == stored["payload"]
        assert attributes["traceparent"] == f"00-{made.trace_id}-{stored['span_id']}-01"
        assert attributes["deedbookhash"] == stored["envelope_hash"]
        assert attributes.get("deedbookparent") == stored["parent_span_id"]
        assert attributes["deedbooklayer"] == NOTHING_DECLARED.layer(stored["event_type"])


def test_attributes_are_what_the_specification_allows(book):
    """Names of lower-case letters and digits, at most 20; strings and 32-bit integers; nothing null or empty."""
    ids = set()
    for line in exported(book[1]):
        assert line.count(b"\n") == 1
        event = json.loads(line)
        event.pop("data")
        for name, value in event.items():
            assert re.fullmatch(r"[a-z0-9]{1,20}", name)
            assert (type(value) is str and value) or (type(value) is int and abs(value) < 2**31)
        assert re.fullmatch(r"[a-z][a-z0-9+.-]*:\S+", event["source"])
        assert re.fullmatch(r"urn:deedbook:schema:event_\w+_v1", event["dataschema"])
        assert (data_folder("schemas") / f"{event['dataschema'].rpartition(':')[2]}.json").exists()
        ids.add((event["source"], event["id"]))
    assert len(ids) == len(book[0].lines)


def test_payload_is_the_bytes_that_the_line_commits_to(book):
    for line in exported(book[1]):
        payload = line.partition(b'"data":')[2].removesuffix(b"}\n")
        assert sha256(payload).hexdigest() == json.loads(line)["deedbookpayload"]


def test_without_data_nothing_of_a_payload_is_there(book):
    for line in exported(book[1], data=False, source="https://example.com/ledgers"):
        event = json.loads(line)
        assert not {"data", "datacontenttype", "dataschema"} & set(event)
        assert event["source"] == "https://example.com/ledgers"
        assert JSONFormat().read(None, line).get_data() is None


def test_payload_that_was_taken_out_is_said_to_be_gone(tmp_path: Path):
    made = ledgers.call()
    gone = [json.loads(line) for line in made.lines][1]
    payload = ledgers.canonical(gone["payload"])
    raw = b"".join(made.lines).replace(payload, b'{"$excised":"%b"}' % gone["payload_hash"].encode())
    (tmp_path / "gone.jsonl").write_bytes(raw)
    lines = list(map(json.loads, exported(tmp_path / "gone.jsonl")))
    assert len(lines) == len(made.lines)
    assert (lines[1]["data"], "subject" in lines[1]) == ({"$excised": gone["payload_hash"]}, False)


def test_event_of_a_plugin_has_neither_schema_nor_layer(tmp_path: Path):
    made = ledgers.Book()
    made.add("x.acme.seen", {"n": 1})
    (tmp_path / "one.jsonl").write_bytes(made.lines[0])
    (event,) = map(json.loads, exported(tmp_path / "one.jsonl"))
    assert "x.acme.seen" not in CATALOGUE
    assert not {"dataschema", "deedbooklayer"} & set(event)
    assert event["type"] == "deedbook.x.acme.seen.v1"


def test_subject_holds_no_control_characters(tmp_path: Path):
    made = ledgers.Book()
    made.add("tool.denied", {"kind": "tool", "name": "a\x1b[2J\nb", "code": "TOOL_NOT_FOUND", "reason": ""})
    (tmp_path / "one.jsonl").write_bytes(made.lines[0])
    (event,) = map(json.loads, exported(tmp_path / "one.jsonl"))
    assert event["subject"].isprintable()
    assert event["data"]["name"] == "a\x1b[2J\nb"


def test_sealed_value_stays_the_mark_that_it_is(tmp_path: Path):
    made = ledgers.Book()
    made.add("user.message", {"text": {"$sealed": ledgers.HASH, "size": 9}})
    (tmp_path / "one.jsonl").write_bytes(made.lines[0])
    (event,) = map(json.loads, exported(tmp_path / "one.jsonl"))
    assert event["data"] == {"text": {"$sealed": ledgers.HASH, "size": 9}}


def test_command_writes_a_session_and_one_that_is_torn_as_far_as_it_goes(told: Place, tmp_path: Path):
    run = next(each["id"] for each in told.here("sessions", "--json").json["sessions"] if each["events"] > 10)
    lines = told.here("export", run, "--as", "cloudevents", status=0).out.splitlines()
    assert [json.loads(line)["deedbookseq"] for line in lines] == list(range(len(told.events(run))))
    subjects = {json.loads(line).get("subject") for line in lines}
    assert {"echo", "model/standard", "greet", "worker", None} <= subjects
    (tmp_path / "cut.jsonl").write_bytes(told.ledger(run).read_bytes()[:-20])
    cut = Place(tmp_path).here("export", "./cut.jsonl", "--as", "cloudevents", "--no-data", status=4)
    assert len(cut.out.splitlines()) == len(lines) - 1
    assert told.here("export", run, "--no-data").status == 2


def test_command_refuses_a_line_that_is_not_what_was_written(told: Place, tmp_path: Path):
    run = next(each["id"] for each in told.here("sessions", "--json").json["sessions"] if each["events"] > 10)
    raw = told.ledger(run).read_bytes()
    (tmp_path / "forged.jsonl").write_bytes(raw.replace(b"Say hello to Ada", b"Say hello to Eve"))
    refused = Place(tmp_path).here("export", "./forged.jsonl", "--as", "cloudevents")
    assert (refused.status, "is not what was written" in refused.err) == (4, True)


def test_ledger_of_an_old_form_comes_out_the_same_each_time(told: Place, tmp_path: Path):
    run = next(each["id"] for each in told.here("sessions", "--json").json["sessions"] if each["events"] > 10)
    (tmp_path / "old.jsonl").write_text(told.here("export", run, "--as", "seed-002", status=0).out)
    once, again = exported(tmp_path / "old.jsonl"), exported(tmp_path / "old.jsonl")
    assert once == again
    present = list(map(json.loads, exported(told.ledger(run))))
    for old, new in zip(map(json.loads, once), present, strict=True):
        JSONFormat().read(None, json.dumps(old))
        assert (old["type"], old["traceparent"], old["id"]) == (new["type"], new["traceparent"], new["id"])
        assert "deedbookhash" not in old
