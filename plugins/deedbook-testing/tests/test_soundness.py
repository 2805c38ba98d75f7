"""The check of ledgers that other tests use can fail."""

import pytest

from deedbook import guard
from deedbook_testing.soundness import assert_sound


@pytest.fixture
def workspace(tmp_path):
    """Give a workspace with one recorded call, and its ledger."""
    (tmp_path / ".system").mkdir()
    (tmp_path / ".system/deedbook.yaml").write_text(
        "schema_version: v1\ndefault: {write: allow}\nagents: {crew: {kind: program, unknown_tools: allow}}\n"
    )
    with guard("crew", workspace=tmp_path) as governed:
        governed.call("send", {"text": "first"}, lambda _: "done")
    (ledger,) = tmp_path.glob(".deedbook/sessions/*/.events.jsonl")
    return tmp_path, ledger


def test_edited_ledger_is_found(workspace):
    place, ledger = workspace
    assert_sound(place)
    ledger.write_bytes(ledger.read_bytes().replace(b"first", b"other"))
    with pytest.raises(AssertionError, match="payload_hash"):
        assert_sound(place)


def test_folder_without_a_workspace_is_no_sound_one(tmp_path):
    with pytest.raises(AssertionError):
        assert_sound(tmp_path)
