"""The house rules in a real workspace; `lab` comes from deedbook-testing."""

from pathlib import Path
from shutil import copytree

import pytest

DATA = Path(__file__).parents[1] / "acme_policies" / "data"
WRITE = {"text": "x", "expected_hash": "", "who": "w", "why": "a try"}


@pytest.fixture
def call(lab):
    """Call an ability as a principal, and return the result."""
    copytree(DATA, lab.path / ".system", dirs_exist_ok=True)
    lab.settings(principals={"ada": {"roles": ["editor"]}, "bot": {}})
    for name in ("file-read", "file-list", "file-write"):
        lab.settings(abilities={name: {"summary": "It.", "handler": {"tool": name}}})
    lab.write("private/diary.txt", "x", system=False)

    def go(who, ability, /, **args):
        kernel = lab.kernel()
        with kernel.session(principal=kernel.principal(who)) as session:
            return session.call(ability, args)

    return go


def test_what_is_private_stays_so_for_editors_too(call):
    refused = call("ada", "file-read", path="private/diary.txt").error
    assert (refused.code, refused.message) == ("GATE_DENIED", "private/ is closed to all principals")


def test_editors_write_and_others_do_not(call):
    assert call("ada", "file-write", path="new.txt", **WRITE).value["path"] == "new.txt"
    assert call("bot", "file-write", path="other.txt", **WRITE).error.code == "GATE_DENIED"


def test_no_one_lists_folders(call):
    assert call("ada", "file-list", path=".").error.code == "GATE_DENIED"
