"""The benchmarks: all are listed and importable, the cheap ones run, and the floor hashes what a call hashes."""

import hashlib
import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.__main__ import BENCHMARKS, main
from benchmarks.calls import Record, floor
from benchmarks.measures import Measure, Value, as_json, table
from benchmarks.rounds import Figure, Times
from benchmarks.workspaces import ARGS, session

ROOT = Path(__file__).parents[1]
CHEAP = ("hashing", "calls", "policies", "abilities", "workers", "routing", "compiling", "bridge", "checkpoints")
"""What runs in its quick form by default; a campaign adds `MORE`. The others start servers or many interpreters."""
MORE = (
    "validation", "dispatch", "durable", "rejudging", "runs", "workflows", "cycles", "sandbox", "cards", "pipelines",
)  # fmt: skip


def hashes(work):
    """Return how often *work* calls `hashlib.sha256`, as Python's profiler counts it."""
    counted = []
    sys.setprofile(lambda _frame, event, function: counted.append(event == "c_call" and function is hashlib.sha256))
    try:
        work()
    finally:
        sys.setprofile(None)
    return sum(counted)


@pytest.mark.parametrize("variant", [{}, {"observers": 1}, {"durability": "boundary", "effects": "write"}])
def test_floor_makes_as_many_hashes_as_a_call(variant, tmp_path):
    with session(**variant) as made:
        least = floor(Record.of(made), tmp_path / "floor.jsonl")
        assert hashes(least) == hashes(lambda: made.call("echo", ARGS)) > 0


def test_every_benchmark_is_listed_and_can_be_imported(capsys):
    found = {path.stem for path in (ROOT / "benchmarks").glob("*.py") if "\ndef run(plan: Plan)" in path.read_text()}
    assert {*found, "peers"} == set(BENCHMARKS)
    assert all(callable(import_module(f"benchmarks.{name}").run) for name in BENCHMARKS)
    assert main(["--list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(BENCHMARKS)


@pytest.mark.parametrize("names", [["hasing"], ["calls", "nothing"], ["--json", "/nowhere/results.json", "calls"]])
def test_wrong_usage_is_one_line_and_status_2(names, capsys):
    assert main(names) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("error: ")
    assert told.err.count("\n") == 1


def test_quick_forms_run(tmp_path, sample_size):
    names = CHEAP + MORE[: sample_size(0, len(MORE))]
    results = tmp_path / "results.json"
    command = [sys.executable, "-m", "benchmarks", "--quick", "--json", str(results), *names]
    ran = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    told = json.loads(results.read_bytes())
    assert told["quick"] is True
    figures = [row for row in told["rows"] if row["kind"] == "figure"]
    assert {row["benchmark"] for row in figures} == set(names)
    assert all(row["low"] <= row["measured"] <= row["high"] for row in figures)


def test_figure_is_the_median_of_the_ratios_of_rounds():
    times = Times({"ours": [10, 40, 90], "floor": [10, 20, 30]})
    assert times.ratio("ours", "floor") == Figure(2, 1.5, 2.5)


@pytest.mark.parametrize(
    ("sense", "measured", "verdict"),
    [
        ("at most", 2, "ok"), ("at most", 2.4, "near"), ("at most", 2.6, "MISS"),
        ("at least", 2, "ok"), ("at least", 1.7, "near"), ("at least", 1.5, "MISS"),
    ],
)  # fmt: skip
def test_verdict_allows_for_what_runs_differ_by(sense, measured, verdict):
    line = Measure("what", sense, 2, measured)
    assert as_json("calls", line)["verdict"] == verdict
    assert verdict in list(table([line]))[-1]
    assert "verdict" not in as_json("calls", Value("what", measured))
