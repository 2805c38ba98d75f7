"""Excerpts of long files: what matters for some names is kept, and every gap is marked."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deedbook_flow_swe.tools.excerpts import cut_text

MODULE = (
    '"""A module."""\n\nimport re\n\n'
    + "".join(f"def other_{n}(x):\n    return x + {n}\n\n\n" for n in range(60))
    + "@cache\ndef titleize(word):\n    return word.title()\n\n\n"
    + "".join(f"def more_{n}(x):\n    return x - {n}\n\n\n" for n in range(60))
    + "def caller(x):\n    return titleize(x)\n"
)


def test_short_file_is_whole():
    assert cut_text("a.py", "x = 1\n", ["y"], 100) == "x = 1\n"


def test_definition_of_a_name_is_kept_whole_with_its_decorator():
    found = cut_text("a.py", MODULE, ["titleize"], 500)
    assert "@cache\ndef titleize(word):\n    return word.title()\n" in found
    assert found.startswith('"""A module."""\n')
    assert "def other_30" not in found
    assert len(found.encode()) <= 500


def test_what_mentions_the_name_is_kept_if_there_is_room():
    assert "def caller(x):" in cut_text("a.py", MODULE, ["titleize"], 700)


def test_file_that_is_no_python_keeps_the_lines_around_the_name():
    text = "".join(f"line {n}\n" for n in range(200)) + "the limit is 5\n" + "".join(f"line {n}\n" for n in range(200))
    found = cut_text("a.txt", text, ["limit"], 400)
    assert "the limit is 5\n" in found
    assert "line 100\n" not in found


@pytest.mark.parametrize("text", ["def f(:\n" * 400, "\0" * 900, "(" * 900 + "\n"])
def test_file_that_cannot_be_parsed_is_cut_all_the_same(text):
    assert len(cut_text("a.py", text, ["f"], 300).encode()) <= 300


@given(st.lists(st.sampled_from(["x = 1\n", "def f():\n    pass\n", "é\n", "\n"]), max_size=120), st.integers(0, 600))
def test_excerpt_has_lines_of_the_file_in_order_within_the_limit(parts, most):
    text = "".join(parts)
    found = cut_text("a.py", text, ["f"], most)
    assert len(found.encode()) <= max(most, 0)
    lines = iter(text.splitlines())
    assert all(line in lines for line in found.splitlines() if not line.startswith("[lines "))
