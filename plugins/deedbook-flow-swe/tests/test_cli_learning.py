"""`deedbook swe metrics` and `deedbook swe routing`, with fifty generated tasks and with real ones."""

import json
from pathlib import Path
from shutil import copytree, rmtree

import pytest
from commandline import Place
from pipelines import copy_workspace
from ruamel.yaml import YAML
from stories import PHASES, Story, clean
from test_routing_choice import DOCUMENT

from deedbook.format import canonical
from deedbook.format.events import Entry, label
from deedbook.kernel import open_kernel
from deedbook_flow_swe.events import EVENTS
from deedbook_flow_swe.learning.examination import check_revisions
from deedbook_flow_swe.learning.ledger_files import read_records
from deedbook_flow_swe.learning.metrics import METRICS
from deedbook_flow_swe.learning.revision import build_revision, check_revision
from deedbook_flow_swe.learning.routing import RoutingPolicy

TASKS = 50


def failing(task: str, **how: object) -> Story:
    """Return a task whose implementation is sent back once."""
    story = Story(task, **how).passing(*PHASES[:4]).begin("verification").block("verification")
    return story.back("verification", "implementation").passing(*PHASES[3:]).end()


@pytest.fixture(scope="module")
def template(tmp_path_factory) -> Path:
    """Return a workspace with a routing policy and fifty generated tasks, which tests copy."""
    place = copy_workspace("small", tmp_path_factory.mktemp("learning") / "small")
    system = place / ".system"
    (system / "swe/routing").mkdir()
    with (system / "swe/routing/test.yaml").open("w") as file:
        YAML().dump({**DOCUMENT, "revision": {"tasks": TASKS, "runs": 10, "raise_at": 25}}, file)
    pipeline = system / "swe/pipeline.yaml"
    pipeline.write_text(pipeline.read_text().replace("id: small", "id: swe") + "routing: test\n")
    settings = system / "deedbook.yaml"
    settings.write_text(settings.read_text() + "lock: required\n")
    Place(place).here("lock", "--yes", status=0)
    add_tasks(place, [(clean if number % 2 else failing)(f"g{number}", generated=True) for number in range(TASKS)])
    return place


def add_tasks(place: Path, stories: list[Story]) -> None:
    """Record tasks, ten in a session, as their runner does."""
    with open_kernel(place) as kernel:
        for at in range(0, len(stories), 10):
            with kernel.session("open") as session:
                events = [event for story in stories[at : at + 10] for event in story.events if event.type in EVENTS]
                kinds = [(label(event.type, "agent", None), canonical.encode(event.payload)) for event in events]
                session.ledger.append(
                    [Entry(kind, session.ledger.span(), session.cause, payload) for kind, payload in kinds]
                )


@pytest.fixture
def shop(template, tmp_path) -> Place:
    """Return a copy of the workspace with fifty generated tasks."""
    return Place(Path(copytree(template, tmp_path / "small")))


def test_generated_tasks_do_not_count_unless_they_are_asked_for(shop):
    told = shop.here("swe", "metrics", "--json", status=0)
    assert told.fits("output_swe_metrics_v1")["tasks"] == 0
    assert f"{TASKS} generated tasks are left out" in told.err
    assert shop.here("swe", "metrics", status=0).out == "no task has begun\n"


def test_metrics_of_generated_tasks_have_values_and_sparklines(shop):
    told = shop.here("swe", "metrics", "--generated", "--json", status=0).fits("output_swe_metrics_v1")
    assert (told["tasks"], told["generated"]) == (TASKS, TASKS)
    assert list(told["metrics"]) == list(METRICS)
    assert told["metrics"]["phase_rollback_rate"]["implementation"] == pytest.approx(25 / 75, abs=1e-4)
    shown = shop.here("swe", "metrics", "--generated", status=0).out.splitlines()
    row = next(line for line in shown if line.startswith("phase_rollback_rate") and "implementation" in line)
    assert row.split()[2] == "0.3333"
    assert set(row.split()[3]) <= set("▁▂▃▄▅▆▇█")
    fewer = shop.here("swe", "metrics", "--generated", "--last", "4", "--json", status=0).json
    assert fewer["tasks"] == 4


def test_report_shows_the_tier_that_led_to_rework(shop):
    told = shop.here("swe", "routing", "report", "--generated", "--json", status=0)
    report = told.fits("output_swe_routing_report_v1")
    assert report["tasks"] == {"ended": TASKS, "generated": TASKS, "needed": TASKS, "runs": 10}
    (row,) = (each for each in report["combinations"] if each["phase"] == "implementation")
    assert (row["runs"], row["sent_back"], row["verdict"], row["in_force"]) == (150, 50, "raise", True)
    assert {each["verdict"] for each in report["combinations"]} == {"raise", "keep"}
    shown = shop.here("swe", "routing", "report", "--generated", status=0).out
    assert "implementation  default  mid *" in shown


def test_revision_needs_tasks_that_are_not_generated(shop):
    told = shop.here("swe", "routing", "revise", "--yes", status=1)
    assert "0 of 50 tasks have ended; a revision needs more data [NOT_ENOUGH_DATA]" in told.err


def test_revision_is_shown_recorded_and_in_force_without_a_change_of_the_charter(shop):
    before = shop.here("swe", "routing", "report", "--generated", "--json", status=0).json
    asked = shop.here("swe", "routing", "revise", "--generated", "--dry-run", status=0)
    assert asked.out == "implementation, rule default: mid → premium (50 of 150 runs were sent back)\n"
    told = shop.here("swe", "routing", "revise", "--generated", "--yes", "--json", status=0)
    revised = told.fits("output_swe_routing_revise_v1")
    assert revised["from_digest"] == before["digest"]
    after = shop.here("swe", "routing", "report", "--generated", "--json", status=0).json
    assert (after["digest"], after["revision"]) == (revised["to_digest"], revised["recorded"])
    with open_kernel(shop.path) as kernel:  # which would refuse a charter that differs from the lock
        assert kernel.bindings.charter.document["policies"]["swe-routing-swe"]["settings"]["policy"]["id"] == "test"
    assert shop.here("verify", status=0)
    assert "1 follow from the tasks that they name" in shop.here("doctor").out
    again = shop.here("swe", "routing", "revise", "--generated", "--yes", status=0)
    assert again.out == "the data gives no reason for a change\n"


def test_revision_asks_on_a_terminal_only(shop):
    told = shop.here("swe", "routing", "revise", "--generated", status=2)
    assert "There is no terminal to ask on; add --yes" in told.err


def test_revision_names_its_evidence_and_who_recorded_it(shop):
    shop.here("swe", "routing", "revise", "--generated", "--yes", status=0)
    lines = (shop.path / ".deedbook/workspace/.events.jsonl").read_text().splitlines()
    (event,) = (each for each in map(json.loads, lines) if each["event_type"] == "swe.routing_revised")
    assert (event["actor"], event["principal"]) == ("user", "local")
    assert event["payload"]["generated"] == TASKS
    assert {(row["task_id"], row["generated"]) for row in event["payload"]["evidence"]} == {
        (f"g{number}", True) for number in range(TASKS)
    }


def test_doctor_finds_a_revision_whose_evidence_is_gone(shop):
    shop.here("swe", "routing", "revise", "--generated", "--yes", status=0)
    rmtree(min((shop.path / ".deedbook/sessions").iterdir()))
    (check,) = check_revisions(shop.path / ".deedbook")
    assert (check.level, check.name) == ("fault", "routing revisions")
    assert "10 of the tasks that it names are not recorded" in check.found


@pytest.mark.parametrize(
    ("member", "value", "why"),
    [
        ("generated", 0, "its generated do not follow from its evidence"),
        ("to_digest", "0" * 64, "its to_digest do not follow from its evidence"),
        ("counts", [], "its counts do not follow from its evidence"),
        ("before", {}, "it cannot be read: KeyError('phases')"),
    ],
)
def test_check_finds_a_revision_that_does_not_follow(template, member, value, why):
    records = read_records(template / ".deedbook")
    payload = build_revision("swe", DOCUMENT, RoutingPolicy.parse(DOCUMENT), records)
    assert list(check_revision(payload, records)) == []
    assert why in next(check_revision({**payload, member: value}, records))


def test_pipeline_without_a_routing_policy_says_so(tmp_path):
    place = Place(copy_workspace("small", tmp_path / "small"))
    told = place.here("swe", "routing", "report", status=2)
    assert "has no routing policy" in told.err
