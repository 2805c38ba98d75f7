"""An approved call against the workspace ledger: answered there, used there, once; also where payloads are gone."""

import json
import shutil

import ledgers
import pytest
from commandline import Place

SETTINGS = """schema_version: v1
principals: {ada: {key: ada.pub, roles: [approver]}}
abilities: {note: {summary: Write a note., handler: {tool: file-write}}}
policies: {baseline: {kind: rules, rules: [{match: {effects: [write]}, then: ask}], default: deny}}
"""
ARGS = json.dumps({"path": "n.txt", "text": "hi", "expected_hash": "", "who": "me", "why": "try"})


@pytest.fixture(scope="module")
def used(tmp_path_factory):
    """Give a workspace in which one call was approved and performed."""
    place = Place(tmp_path_factory.mktemp("uses") / "w")
    (place.path / ".system").mkdir(parents=True)
    (place.path / ".system" / "deedbook.yaml").write_text(SETTINGS)
    place.here("keys", "new", "ada", "--out", ".system/ada.pub", status=0)
    place.here("call", "note", "--args", ARGS, status=3)
    place.here("approvals", "approve", place.request(), "--as", "ada", status=0)
    session = place.here("approvals", "run", "last", status=0).session
    place.here("verify", status=0)
    return place, session


@pytest.fixture
def case(used, tmp_path):
    """Give a copy of it that may be changed, and the session that acted."""
    shutil.copytree(used[0].path, tmp_path / "w")
    return Place(tmp_path / "w"), used[1]


def kind(line):
    return json.loads(line)["event_type"]


def rewrite(place, change):
    file = place.path / ".deedbook" / "workspace" / ".events.jsonl"
    file.write_bytes(b"".join(ledgers.forge(change(file.read_bytes().splitlines(keepends=True)), genesis="workspace")))


def test_call_under_an_approval_that_its_session_did_not_use_is_found(case):
    place, session = case
    rewrite(place, lambda lines: [line for line in lines if kind(line) != "approval.used"])
    assert "expected an approval.used by this session, found none" in place.here("verify", status=4).out
    assert "expected an approval.used by this session" in place.here("verify", session, status=4).out


def test_approval_that_is_used_twice_is_found(case):
    place, _ = case

    def again(lines):
        line = next(line for line in lines if kind(line) == "approval.used")
        return [*lines, line.replace(json.loads(line)["span_id"].encode(), b"f" * 16)]

    rewrite(place, again)
    assert "expected used once, found 2 times" in place.here("verify", status=4).out


@pytest.mark.parametrize("event", ["approval.requested", "policy.check", "tool.call", "tool.result"])
def test_session_stays_sound_and_readable_where_a_payload_was_taken_out(case, event):
    place, session = case
    lines = (place.path / ".deedbook" / "sessions" / session / ".events.jsonl").read_bytes().splitlines()
    seq = next(seq for seq, line in enumerate(lines) if kind(line) == event)
    place.here("ledger", "excise", session, str(seq), "--reason", "a password", "--yes", status=0)
    assert "of 2 calls judged again" in place.here("verify", status=0).out
    place.here("replay", session, status=0)
    place.here("replay", session, "--html", status=0)
