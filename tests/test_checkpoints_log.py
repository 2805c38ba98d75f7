"""The log as a fold of the workspace ledger: from its newest checkpoint it comes to what the whole file says."""

from contextlib import closing

import logs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from writing import shared

from deedbook.approvals.keys import KeyRing
from deedbook.format.canonical import encode
from deedbook.format.errors import LedgerError
from deedbook.format.events import Entry, label
from deedbook.format.files import Folder
from deedbook_log.checkpoints.keys import LogKeys
from deedbook_log.checkpoints.leaves import LEAF, Leaf
from deedbook_log.checkpoints.log import WorkspaceLog
from deedbook_log.checkpoints.writer import CheckpointWriter

STEPS = st.lists(st.sampled_from(["event", "a", "b", "torn", "rotate", "again"]), max_size=12)


def writer(state, ledger, place):
    keys = LogKeys(ledger.session_id, KeyRing(place / "keys"))
    return CheckpointWriter(state, ledger, keys, WorkspaceLog.read_recent(ledger), lambda made: None), keys


def other(ledger):
    """Make an entry that is not of the log."""
    told = {"digest": "0" * 64, "previous": None, "looser": ["x" * 300], "tighter": []}
    return Entry(label("ledger.charter", "runtime", None), ledger.span(), ledger.root, encode(told))


def torn(log):
    """Make the leaf that a killed writer left without a checkpoint."""
    log.catch_up()
    leaf = Leaf.of(log.tree.size, log.ledger.session_id, log.own.tree, log.own.head)
    return Entry(label(LEAF, "runtime", None), log.ledger.span(), log.ledger.root, encode(leaf.payload()))


def stands(log):
    return log.tree.size, log.tree.root, log.own.tree.root, log.own.head, log.own.end, log.newest


@settings(max_examples=settings.default.max_examples // 2)
@given(steps=STEPS)
def test_log_read_from_its_newest_checkpoint_is_that_of_the_whole_ledger(tmp_path_factory, steps):
    place = tmp_path_factory.mktemp("log")
    mine, yours = shared(place, durability="os"), shared(place, durability="os")
    with Folder.at(place) as state, closing(mine), closing(yours):
        first, keys = writer(state, mine, place)
        second, _ = writer(state, yours, place)
        keys.activate(first.rotate(lost=False).key)
        for step in steps:
            if step == "event":
                yours.append([other(yours)])
            elif step == "torn":
                mine.append(lambda: [torn(WorkspaceLog.read_recent(mine))])
            elif step == "rotate":
                keys.activate(second.rotate(lost=False).key)
            elif step == "again":
                first, _ = writer(state, mine, place)
            else:
                (first if step == "a" else second).write("asked", [])
        first.write("asked", [])
        whole = WorkspaceLog.read_whole(mine)
        assert stands(WorkspaceLog.read_recent(mine)) == stands(whole)
        assert keys.load_signing_key(WorkspaceLog.read_recent(mine)).public == keys.load_signing_key(whole).public
        assert logs.audit(place)


def test_log_whose_leaves_are_not_what_was_signed_is_refused(tmp_path):
    with Folder.at(tmp_path) as state, closing(shared(tmp_path, durability="os")) as ledger:
        made, keys = writer(state, ledger, tmp_path)
        keys.activate(made.rotate(lost=False).key)
        made.write("asked", [])
        leaf = Leaf.of(5, ledger.session_id, made.log.own.tree, made.log.own.head)
        ledger.append([Entry(label(LEAF, "runtime", None), ledger.span(), ledger.root, encode(leaf.payload()))])
        for read in (WorkspaceLog.read_recent, WorkspaceLog.read_whole):
            with pytest.raises(LedgerError, match="leaf 5 stands where leaf 1 should"):
                read(ledger)
        with pytest.raises(LedgerError, match="leaf 5"):
            made.write("asked", [])


def test_checkpoint_is_not_signed_with_a_key_that_did_not_sign_the_one_before(tmp_path):
    with Folder.at(tmp_path) as state, closing(shared(tmp_path, durability="os")) as ledger:
        made, keys = writer(state, ledger, tmp_path)
        keys.activate(made.rotate(lost=False).key)
        made.write("asked", [])
        newest = WorkspaceLog.read_recent(ledger)
        raw = newest.newest.note.splitlines()
        newest.newest = type(newest.newest)(1, "0" * 64, (), "\n".join([raw[0], "2", *raw[2:], ""]))
        with pytest.raises(Exception, match="not the one that signed"):
            keys.load_signing_key(newest)
