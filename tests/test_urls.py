"""What other programs read a path or a URL as."""

import pytest
from cases import for_each
from hypothesis import given
from hypothesis import strategies as st

from deedbook.contract.urls import ROUNDS, UNREADABLE, readings, resolve_dots


@for_each(
    ("url", "common"),
    [
        ("https://H.example:443/a/./b/../c", "https://h.example/a/c"),
        ("https:h/..//../a", "https://h/a"),
        ("http://me:word@h:80?q=..", "http://h/?q=.."),
        ("http://127.1/", "http://127.0.0.1/"),
        ("http://0300.0250.1/", "http://192.168.0.1/"),
        ("http://256.1.1.1/", "http://256.1.1.1/"),
        ("http://08.1/", "http://08.1/"),
        ("http://[::FFFF:1]:80/", "http://[::ffff:1]:80/"),
        ("https://\uff45vil\u3002test./", "https://evil.test/"),
        ("file:/a/../b", "file:///b"),
        ("file://host/a/..", "file://host/"),
        ("notes://Box/a/../b", "notes://Box/b"),
        ("notes://box", "notes://box"),
        ("notes:/a/../b", "notes:/b"),
        ("mailto:a@b", "mailto:a@b"),
        ("/a//b/.", "/a/b/"),
        ("a/../b", "a/../b"),
        ("word: a/../b", "word: a/../b"),
    ],
)
def test_common_form_of_a_url(url, common):
    assert resolve_dots(url) == common


@for_each(
    ("text", "other"),
    [
        ("a\\..\\b", "a/../b"),
        ("ht\ntp\t://h/", "http://h/"),
        ("\x00 https://h/ ", "https://h/"),
        ("%2e%2E%2f", "../"),
        ("%252e", "."),
        ("%%32%65", "."),
        ("%c0%ae%C0%AE%c0%af", "../"),
        ("%" + "25" * 20 + "2e", UNREADABLE),
    ],
)
def test_text_has_the_reading_of_another_program(text, other):
    assert readings(text)[0] == text
    assert other in readings(text)


@pytest.mark.parametrize("text", ["", "a", "src/a b", "50 percent", "a:b c"])
def test_text_without_another_reading_is_read_as_it_is(text):
    assert readings(text) == (text,)


@given(st.text(alphabet="ab./\\%25eEfF:?#@\t\n https", max_size=40))
def test_readings_are_few_and_begin_with_the_text_itself(text):
    found = readings(text)
    assert found[0] == text
    assert len(found) == len(set(found)) <= 3 * ROUNDS
    assert all(len(each) <= len(text) + len("https://127.0.0.1/") for each in found)


@given(st.text(alphabet="ab./\\:?#@", max_size=20))
def test_common_form_is_its_own_common_form(text):
    common = resolve_dots(f"https://h/{text}")
    assert resolve_dots(common) == common
