"""Histograms: durations of any number in little space; what they say is near the exact figure, and never below it."""

import math

from hypothesis import given
from hypothesis import strategies as st

from deedbook_inspect.observing.histograms import BOUNDS, Histogram

DURATIONS = st.lists(st.integers(0, 200) | st.integers(0, 2_000_000) | st.integers(0, 2**45), min_size=1, max_size=60)


def histogram(durations):
    made = Histogram()
    for duration in durations:
        made.add(duration)
    return made


@given(DURATIONS, st.sampled_from([0.0, 0.5, 0.9, 0.99, 1.0]))
def test_quantile_is_at_most_a_thirty_second_above_the_exact_one_and_never_below(durations, share):
    exact = sorted(durations)[max(0, math.ceil(share * len(durations)) - 1)]
    assert exact <= histogram(durations).quantile(share) <= exact * (1 + 1 / 31)


@given(DURATIONS)
def test_longest_sum_and_count_are_exact(durations):
    told = histogram(durations).as_json()
    assert (told["count"], told["sum"], told["max"]) == (len(durations), sum(durations), max(durations))
    assert told["p50"] <= told["p90"] <= told["p99"] <= told["max"]


@given(DURATIONS)
def test_exported_buckets_count_exactly(durations):
    *counts, every = histogram(durations).count_cumulative()
    assert counts == [sum(duration <= bound for duration in durations) for bound in BOUNDS]
    assert every == len(durations)


@given(st.integers(0, 2**45))
def test_one_duration_is_every_quantile_of_itself(duration):
    assert {histogram([duration]).quantile(share) for share in (0, 0.5, 1)} == {duration}


def test_nothing_has_no_durations():
    assert Histogram().as_json() is None
    assert Histogram().quantile(0.5) == 0
    assert Histogram().count_cumulative() == [0] * (len(BOUNDS) + 1)


def test_size_does_not_grow_with_what_is_counted():
    made = histogram(range(0, 3_600_000, 97))
    assert made.count == 37114
    assert len(made._fine) < 700
