"""Layers: every event type that is written has one of seed 000's eight, and where events are shown it is shown."""

import ledgers
import pytest
from cases import for_each
from hypothesis import given
from hypothesis import strategies as st
from test_folds import events_of

from deedbook.format.events import ALIASES
from deedbook.format.families import CATALOGUE, LAYERS, NOTHING_DECLARED
from deedbook.format.folds import SnapshotFold, fold
from deedbook_inspect.event_tree import TreeFold

NAMED = {
    "tool.call": "L1", "tool.denied": "L1", "task.started": "L1", "llm.response": "L2", "agent.transition": "L3",
    "worker.report": "L3", "user.message": "L3", "context.planned": "L3", "flow.call": "L3", "session.start": "L4",
    "ledger.created": "L4", "event.amended": "L4", "skill.invoke": "L5", "hook.fired": "L6", "policy.check": "L6",
    "approval.granted": "L6", "schema.violation": "L7", "workflow.started": "L8", "workflow.policy_gated": "L8",
}  # fmt: skip
"""What seed 000 says of its events, or what follows from what it says of its layers."""


@for_each("event_type", CATALOGUE)
def test_every_type_that_is_written_has_a_layer(event_type):
    assert NOTHING_DECLARED.layer(event_type) in LAYERS


@for_each("event_type", NAMED)
def test_type_has_the_layer_that_the_architecture_gives_it(event_type):
    assert NOTHING_DECLARED.layer(event_type) == NAMED[event_type]


@pytest.mark.parametrize("alias", ALIASES)
def test_older_name_has_the_layer_of_the_present_one(alias):
    assert NOTHING_DECLARED.layer(alias) == NOTHING_DECLARED.layer(ALIASES[alias])


@given(st.from_regex(r"x\.[a-z]{1,9}(\.[a-z]{1,9}){1,2}", fullmatch=True))
def test_type_of_a_plugin_has_none(event_type):
    assert NOTHING_DECLARED.layer(event_type) is None


def test_tree_and_snapshot_say_the_layer_of_every_event():
    told = events_of(ledgers.run())
    shown = [each["layer"] for each in fold(TreeFold(), told).as_json()["events"]]
    assert shown == [NOTHING_DECLARED.layer(event.type) for event in told]
    counted = fold(SnapshotFold(), told).as_json()["layers"]
    assert counted == {layer: shown.count(layer) for layer in sorted(set(shown))}
    assert sum(counted.values()) == len(told)
