"""The section ``features:``, the event types that plugins declare, and who checks and shows them."""

from pathlib import Path

import pytest

from deedbook import EventType, Failed
from deedbook.contract.features import FeatureSpec, featureimpl
from deedbook.format.errors import BindingError
from deedbook.format.families import DeclaredTypes
from deedbook.format.folds import SnapshotFold, fold
from deedbook.format.reader import read
from deedbook.format.schema import Schemas, data_folder
from deedbook.format.sealed import is_sealed
from deedbook_audit.selection import StateFolder, select_all
from deedbook_audit.verify import verify_file
from deedbook_audit.whole import verify
from deedbook_inspect.event_tree import TreeFold, transcript
from deedbook_inspect.reading import types_in

COUNT = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}, "additionalProperties": False}
SETTINGS = {"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": False}


def feature(*, name="x.shop.counted", n=None, **row):
    """Return the class of a feature that counts when a session ends."""

    class Shop:
        spec = FeatureSpec(settings=SETTINGS, records={name: EventType(schema=COUNT, **row)})

        @featureimpl
        def session_ending(self, session, settings):
            session.record(name, {"n": settings["n"] if n is None else n})

    return Shop


def test_feature_gets_its_settings_and_records_before_the_session_ends(lab):
    lab.offer("feature", "shop", feature(text="{n} sold", layer="L2"))
    lab.settings(features={"shop": {"n": 3}})
    with lab.session():
        pass
    assert lab.types()[-2:] == ["x.shop.counted", "session.end"]
    assert lab.payload("x.shop.counted") == {"n": 3}
    assert not lab.verify().structure.failures


def test_payload_of_a_plugin_with_sealed_parts_is_sound(lab):
    """Its schema describes the payload as it was recorded, so an auditor opens the sealed parts that are there."""
    lab.offer("feature", "shop", feature())
    lab.settings(features={"shop": {"n": 3}}, seal=["x.shop.counted/n"])
    with lab.session():
        pass
    assert is_sealed(lab.payload("x.shop.counted")["n"])
    assert not lab.verify().structure.failures
    for place in lab.state.rglob("sealed/*"):
        place.unlink()
    assert not lab.verify().structure.failures


def test_charter_names_the_feature_its_settings_and_its_event_types(lab):
    lab.offer("feature", "shop", feature(text="{n} sold", layer="L2"))
    lab.settings(features={"shop": {"n": 3}})
    document = lab.kernel().active_charter.charter.document
    assert document["features"]["shop"]["settings"] == {"n": 3}
    row = document["records"]["x.shop.counted"]
    assert (row["text"], row["layer"], row["by"]) == ("{n} sold", "L2", "feature/shop")
    assert document["schemas"][row["schema"]] == COUNT
    assert "feature/shop" in document["plugins"]


def test_charter_without_features_has_no_member_for_them(lab):
    document = lab.kernel().active_charter.charter.document
    assert "features" not in document
    assert {row["by"] for row in document["records"].values()} == {"feature/freeze"}  # it needs no line in YAML


def test_installed_feature_that_is_not_named_takes_no_part(lab):
    lab.offer("feature", "shop", feature())
    with lab.session():
        pass
    assert lab.types() == ["session.start", "session.end"]


def test_record_that_does_not_fit_is_reported_and_the_session_ends(lab):
    lab.offer("feature", "shop", feature(n="many"))
    lab.settings(features={"shop": {}})
    kernel = lab.kernel()
    with kernel.session() as session:
        pass
    assert lab.types(session) == ["session.start", "session.end"]
    [(name, error)] = kernel.notices.found
    assert name == "shop"
    assert "x.shop.counted: $.n: expected integer, found string" in error.message


def test_session_records_nothing_that_no_feature_declares(lab):
    lab.offer("feature", "shop", feature(n=1))
    lab.settings(features={"shop": {}})
    with lab.session() as session:
        for name in ("x.shop.sold", "tool.call", "session.end"):
            with pytest.raises(Failed, match="is no event type that feature declares") as caught:
                session.record(name, {"n": 1})
            assert caught.value.code == "NOT_AVAILABLE"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("x.other.counted", r"the names of its event types are x\.shop\.<name>"),
        ("tool.call", r"the names of its event types are x\.shop\.<name>"),
        ("x.shop.", r"the names of its event types are x\.shop\.<name>"),
        ("x.shop.Counted", r"the names of its event types are x\.shop\.<name>"),
    ],
)
def test_event_type_under_another_name_is_refused(lab, name, why):
    lab.offer("feature", "shop", feature(name=name))
    lab.settings(features={"shop": {}})
    with pytest.raises(BindingError, match=why):
        lab.kernel()


def test_only_the_distribution_of_a_granted_family_declares_its_event_types(lab):
    lab.offer("feature", "shop", feature(name="workflow.counted", n=1), distribution="deedbook-flow-workflow")
    lab.settings(features={"shop": {}})
    with lab.session():
        pass
    assert lab.payload("workflow.counted") == {"n": 1}
    assert lab.verify().sound
    lab.offer("feature", "stall", feature(name="workflow.sold", n=1), distribution="other")
    lab.settings(features={"stall": {}})
    with pytest.raises(BindingError, match=r"the names of its event types are x\.stall\.<name>$"):
        lab.kernel()


def test_verification_without_the_charter_notes_a_granted_family(lab, tmp_path):
    lab.offer("feature", "shop", feature(name="workflow.counted", n=1), distribution="deedbook-flow-workflow")
    lab.settings(features={"shop": {}})
    with lab.session() as session:
        pass
    copy = tmp_path / "alone" / ".events.jsonl"
    copy.parent.mkdir()
    copy.write_bytes(lab.ledger(session).read_bytes())
    report = verify_file(copy, schemas=Schemas.load(data_folder("schemas")))
    assert not report.structure.failures
    assert any("workflow" in note and "not at hand" in note for note in report.notes)


def test_feature_that_has_a_section_of_its_own_is_not_named_here(lab):
    class Bare:
        pass

    lab.offer("feature", "bare", Bare)
    lab.settings(features={"bare": {}})
    with pytest.raises(BindingError, match="it has a section of its own"):
        lab.kernel()


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"schema": []}, "needs a JSON Schema, and a text"),
        ({"schema": COUNT, "text": 1}, "needs a JSON Schema, and a text"),
        ({"schema": COUNT, "layer": "L9"}, "is 'L9', not one of L1, L2"),
    ],
)
def test_wrong_declaration_is_a_broken_plugin(lab, row, why):
    class Wrong:
        spec = FeatureSpec(records={"x.shop.counted": EventType(**row)})

    lab.offer("feature", "shop", Wrong)
    lab.settings(features={"shop": {}})
    with pytest.raises(BindingError, match=why):
        lab.kernel()


# --- flows ----------------------------------------------------------------------------------------------------------


def test_flow_records_the_event_types_that_its_spec_declares(lab):
    def go(_, run):
        run.record("x.offered_counter.counted", {"n": 2})
        return "counted"

    lab.flow("counter", go, records={"x.offered_counter.counted": EventType(schema=COUNT)})
    with lab.session() as session:
        assert session.context(session.call("counter", {}).value["context"]).reply == "counted"
    assert lab.payload("x.offered_counter.counted") == {"n": 2}


def test_flow_records_no_event_type_of_another_plugin(lab):
    def go(_, run):
        run.record("x.shop.counted", {"n": 2})

    lab.offer("feature", "shop", feature(n=1))
    lab.settings(features={"shop": {}})
    lab.flow("counter", go)
    with lab.session() as session:
        assert session.call("counter", {}).error.code == "NOT_AVAILABLE"


# --- readers --------------------------------------------------------------------------------------------------------


@pytest.fixture
def recorded(lab) -> Path:
    """Return the ledger of a session with an event of a feature."""
    lab.offer("feature", "shop", feature(text="sold: {n}{missing}", layer="L2"))
    lab.settings(features={"shop": {"n": 3}})
    with lab.session():
        pass
    return lab.ledger()


def test_tree_and_transcript_show_the_text_of_the_type(recorded):
    declared = types_in(recorded)
    tree = fold(TreeFold(declared), read(recorded))
    assert any(line.endswith("x.shop.counted  sold: 3") for line in tree.lines())
    assert [row["layer"] for row in tree.as_json()["events"]] == ["L4", "L2", "L4"]
    assert any(line.endswith("x.shop.counted: sold: 3") for line in transcript(read(recorded), declared))
    assert fold(SnapshotFold(declared), read(recorded)).layers == {"L4": 2, "L2": 1}


def test_reader_without_the_charter_shows_the_payload(recorded, tmp_path):
    alone = tmp_path / "alone" / "session.jsonl"
    alone.parent.mkdir()
    alone.write_bytes(recorded.read_bytes())
    assert types_in(alone) == DeclaredTypes()
    tree = fold(TreeFold(types_in(alone)), read(alone))
    assert any(line.endswith('x.shop.counted  {"n":3}') for line in tree.lines())


def test_verdict_names_the_family_and_payloads_are_checked_by_the_charter(lab, recorded):
    found = verify(select_all(StateFolder(lab.state)))
    assert found.verdict.summary.endswith("; not checked: the plugins' own rules for x.shop.*")
    notes = [note for report in found.reports for note in report.notes]
    assert "events of plugins: the rules of x.shop were not checked" in notes
