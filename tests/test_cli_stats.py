"""``deedbook stats`` as people and scrapers meet it."""

import json
import shutil
from pathlib import Path

import pytest
from commandline import Place, play
from prometheus_client.parser import text_string_to_metric_families


@pytest.fixture
def run(told: Place) -> str:
    """Give the id of the run."""
    return next(each["id"] for each in told.here("sessions", "--json").json["sessions"] if each["events"] > 10)


def stats(place: Place, *args: str, status: int = 0):
    return place.here("stats", "--json", *args, status=status).fits("output_stats_v1")


def test_stats_of_a_workspace_agree_with_what_its_ledgers_hold(told: Place, run: str):
    every = stats(told)
    assert every == stats(told, "all")
    ids = [each["id"] for each in told.here("sessions", "--json").json["sessions"]]
    each = [stats(told, name) for name in (*ids, "workspace")]
    assert every["ledgers"] == 3
    assert every["events"] == sum(one["events"] for one in each)
    assert every["sessions"] == {"ok": 2}
    assert stats(told, *ids)["abilities"] == every["abilities"]
    one = stats(told, run)
    told_of = told.here("replay", run, "--json").json
    assert one["layers"] == told_of["layers"]
    assert {row["ability"]: row["calls"] for row in one["abilities"]} == told_of["calls"]
    spent = (sum(row["input_tokens"] for row in one["models"]), sum(row["output_tokens"] for row in one["models"]))
    assert spent == (told_of["cost"]["input"], told_of["cost"]["output"])
    assert {row["provider"] for row in one["models"]} == {"rules"}
    assert {row["role"] for row in one["models"]} == {"lead", "planner", "worker", "reviewer"}


def test_stats_for_people_has_every_table_that_has_rows(told: Place):
    lines = told.here("stats", status=0).out.splitlines()
    assert lines[0].startswith("3 ledgers, ")
    assert {"abilities", "models", "roles", "hooks", "policies"} <= set(lines)
    assert not {"denials", "errors"} & set(lines)
    assert any(line.split()[:4] == ["echo", "tool", "2", "ok"] for line in lines)


def test_stats_cut_long_names_in_tables_only(place: Place):
    name = "local/weights.gguf@sha256:" + "0" * 150
    play(place, [{"role": "lead", "response": {"text": "{}", "model": name}}], usual=False)
    place.here("run", "--profile", "played", "Say hello to Ada")
    assert max(map(len, place.here("stats", status=0).out.splitlines())) < 160
    assert name in [row["model"] for row in stats(place)["models"]]


def test_stats_for_prometheus_are_read_by_its_own_parser(told: Place):
    families = {each.name: each for each in text_string_to_metric_families(told.here("stats", "--prometheus").out)}
    calls = {sample.labels["ability"]: sample.value for sample in families["deedbook_ability_calls"].samples}
    assert calls == {row["ability"]: row["calls"] for row in stats(told)["abilities"]}
    assert families["deedbook_ability_call_duration_seconds"].type == "histogram"
    assert told.here("stats", "--prometheus", "--json").status == 2


def test_stats_of_a_window(told: Place, run: str):
    first = stats(told, run)["first"]
    assert stats(told, run, "--since", first)["events"] == stats(told, run)["events"]
    assert stats(told, run, "--until", first)["events"] == 0
    assert stats(told, "--since", "1w")["events"] == stats(told)["events"]
    assert told.here("stats", "--until", "1w").out == "nothing to count\n"
    refused = told.here("stats", "--since", "teatime")
    assert (refused.status, "is no time; say" in refused.err) == (2, True)


def test_stats_with_prices_say_what_was_not_recorded(told: Place, tmp_path: Path):
    told_of = told.write(
        "prices.yaml", "schema_version: v1\nmodels: {rules-1: {input_per_million: 1, output_per_million: 10}}\n"
    )
    rows = stats(told, "--prices", str(told_of))["models"]
    for row in rows:
        exact = (row["input_tokens"] + 10 * row["output_tokens"]) / 1_000_000
        assert row["cost_usd"] == {"recorded": 0, "priced": pytest.approx(exact), "unpriced_answers": 0}
    head = "schema_version: v2\nsource: the vendor's page\n"
    price = "{input_per_million: 1, output_per_million: null}"
    told_of.write_text(f'{head}date: "2026-11-20"\nmodels: {{rules-1: {price}}}\n')
    dated = stats(told, "--prices", str(told_of))
    assert dated["prices"] == {"date": "2026-11-20", "source": "the vendor's page"}
    for row in dated["models"]:
        cost = {"recorded": 0, "priced": 0, "unpriced_answers": sum(row["outcomes"].values())}
        assert row["cost_usd"] == cost
    assert "prices of 2026-11-20, from the vendor's page" in told.here("stats", "--prices", str(told_of), status=0).out
    told_of.write_text(f"{head}models: {{}}\n")
    assert "date" in told.here("stats", "--prices", str(told_of), status=1).err
    told_of.write_text("schema_version: v1\nmodels: {rules-1: {input: 1}}\n")
    refused = told.here("stats", "--json", "--prices", str(told_of), status=1).fits("output_error_v1")
    assert refused["errors"][0]["code"] == "SCHEMA_VIOLATION"
    assert told.here("stats", "--prices", "nowhere.yaml").status == 1


def test_stats_of_a_session_whose_last_line_is_torn_count_as_far_as_it_goes_and_say_so(
    told: Place, run: str, tmp_path: Path
):
    lines = told.ledger(run).read_bytes().splitlines(keepends=True)
    (tmp_path / "live.jsonl").write_bytes(b"".join(lines[:24]) + lines[24][:100])
    counted = stats(Place(tmp_path), "./live.jsonl", status=4)
    assert [each["code"] for each in counted["damaged"]] == ["LEDGER_UNSOUND"]
    assert counted["events"] == 24
    assert counted["sessions"] == {"interrupted": 1}
    assert {row["ability"]: row["outcomes"] for row in counted["abilities"]} == {
        "review": {"unknown": 1}, "model/standard": {"ok": 3}, "echo": {"ok": 1}
    }  # fmt: skip
    assert {row["provider"] for row in counted["models"]} == {"[unknown]"}


def test_stats_count_a_damaged_ledger_up_to_the_damage_and_say_so(told: Place, run: str, tmp_path: Path):
    shutil.copytree(told.path, tmp_path / "copy")
    place = Place(tmp_path / "copy")
    lines = place.ledger(run).read_bytes().splitlines(keepends=True)
    place.ledger(run).write_bytes(b"".join([*lines[:10], b"no event\n", *lines[10:]]))
    counted = stats(place, status=4)
    (damaged,) = counted["damaged"]
    assert (damaged["code"], run in damaged["ledger"]) == ("LEDGER_UNSOUND", True)
    assert counted["events"] == stats(told)["events"] - len(lines) + 10
    said = place.here("stats", status=4)
    assert "is counted as far as it can be read" in said.err
    assert said.out.startswith("3 ledgers")


def test_stats_of_an_old_form(told: Place, run: str, tmp_path: Path):
    old = told.here("export", run, "--as", "seed-002", status=0).out
    (tmp_path / "old.jsonl").write_text(old)
    counted, present = stats(Place(tmp_path), "./old.jsonl"), stats(told, run)
    assert (counted["events"], counted["layers"]) == (present["events"], present["layers"])
    assert {row["ability"]: row["calls"] for row in counted["abilities"]} == {
        row["ability"]: row["calls"] for row in present["abilities"]
    }


def test_stats_of_what_is_not_there(place: Place):
    assert place.here("stats", status=0).out == "nothing to count\n"
    assert stats(place)["ledgers"] == 0
    assert place.here("stats", "nobody").status == 2
    assert json.loads(place.here("stats", "nobody", "--json").out)["errors"][0]["code"] == "SESSION_NOT_FOUND"
