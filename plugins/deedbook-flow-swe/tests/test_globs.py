"""Globs are compared without a file at hand: whether one covers another, and whether two overlap."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deedbook.policy.conditions import glob_test
from deedbook_flow_swe.contract import fill
from deedbook_flow_swe.globs import covers, overlap, whole_glob

T = "tasks/{task-id}"


@pytest.mark.parametrize(
    ("wide", "narrow", "answer"),
    [
        (f"{T}/a/*", f"{T}/a/spec.md", True),
        (f"{T}/a/*", f"{T}/a/adr-*.md", True),
        (f"{T}/a/*", f"{T}/a/b/spec.md", False),
        (f"{T}/a/", f"{T}/a/b/spec.md", True),
        (f"{T}/**", f"{T}/a/*", True),
        (f"{T}/a/*", f"{T}/a/**", False),
        (f"{T}/a/*", f"{T}/b/spec.md", False),
        (f"{T}/a/adr-*.md", f"{T}/a/*", False),
        ("tasks/*/a", f"{T}/a", True),
        (f"{T}/a", "tasks/*/a", False),
        ("tasks/{unit-id}/a", f"{T}/a", False),
        ("**/rewards.md", "agents/x/rewards.md", True),
        ("**/rewards.md", "rewards.md", True),
        ("**/rewards.md", "agents/x-rewards.md", False),
        ("agents/*/rewards.md", "agents/x/y/rewards.md", False),
    ],
)
def test_glob_covers(wide, narrow, answer):
    assert covers(wide, narrow) is answer


@pytest.mark.parametrize(
    ("one", "other", "answer"),
    [
        (f"{T}/a/*", f"{T}/a/spec.md", True),
        (f"{T}/a/adr-*.md", f"{T}/a/*-1.md", True),
        (f"{T}/a/adr-*.md", f"{T}/a/spec.md", False),
        (f"{T}/*/patch.diff", f"{T}/{{unit-id}}/patch.diff", True),
        (f"{T}/a", "tasks/{project}/a", False),
        (f"{T}/a/", f"{T}/ab/c", False),
        ("**/x", "a/b/x", True),
        ("**/x", "x", True),
        ("a/**/x", "a/x", True),
        ("a/**", "a", False),
    ],
)
def test_globs_overlap(one, other, answer):
    assert overlap(one, other) is answer
    assert overlap(other, one) is answer


PATHS = st.lists(st.sampled_from(["a", "b", "ab"]), min_size=1, max_size=3).map("/".join)
GLOBS = st.lists(st.sampled_from(["a", "b", "*", "a*", "**", "{task-id}"]), min_size=1, max_size=3).map("/".join)


def fits(glob, path):
    return glob_test([whole_glob(fill(glob, {"task-id": "ab"}))])(path)


@given(GLOBS, GLOBS, PATHS)
def test_comparison_never_contradicts_a_path(one, other, path):
    """Globs that one path fits overlap; what fits a covered glob fits the one that covers it."""
    if fits(one, path) and fits(other, path) and "{" not in one + other:
        assert overlap(one, other)
    if covers(one, other) and fits(other, path):
        assert fits(one, path)


@given(GLOBS)
def test_glob_covers_and_overlaps_itself(glob):
    assert covers(glob, glob)
    assert overlap(glob, glob)
