"""Spans of a ledger, in eight bytes each: what is there twice is found, what was never there is not known."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deedbook_audit.verification import spans
from deedbook_audit.verification.spans import Spans


@pytest.fixture(autouse=True, scope="module")
def short_runs():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spans, "RUN", 4)
        yield


def span(number):
    return b"%016x" % number


numbers = st.one_of(st.integers(1, 12), st.integers(1, 2**64 - 1), st.sampled_from([2**64 - 1, 2**63, 2**60]))


@given(st.lists(numbers, max_size=60), st.lists(numbers, max_size=10))
def test_spans_know_what_was_there_and_nothing_else(told, asked):
    known = Spans()
    for at, number in enumerate(told):
        known.add(span(number))
        for other in (*asked, told[0]):
            assert (span(other) in known) == (other in told[: at + 1])


@given(st.lists(numbers, max_size=60))
def test_every_span_that_is_there_twice_is_found_at_once_or_at_the_end(told):
    known, found, seen = Spans(), set(), set()
    again = {number for number in told if number in seen or seen.add(number)}
    for number in told:
        if not known.add(span(number)):
            found.add(number)
    assert found | {int(each, 16) for each in known.find_duplicates()} == again


def test_old_spans_take_eight_bytes_each():
    known = Spans()
    for number in range(1, 40_001):
        known.add(span(number * 2**40))
    assert sum(sys.getsizeof(run) for run in known._runs) < 40_000 * 8 + 100 * len(known._runs)
    assert len(known._new) + len(known._recent) <= 8
    assert span(2**40) in known
    assert span(7) not in known
