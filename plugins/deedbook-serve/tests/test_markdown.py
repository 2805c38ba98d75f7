"""Whatever a text holds, a page shows it and obeys nothing in it."""

import json

from cases import for_each
from hypothesis import given
from hypothesis import strategies as st

from deedbook.workspace.documents import parse_front_matter
from deedbook_serve.markdown import block, escape, front, quote, row


@for_each(
    ("text", "wanted"),
    [
        ("plain words, 2026-11-22T05:14:32.756Z", "plain words, 2026-11-22T05:14:32.756Z"),
        ("# no\n## heading", r"\# no \#\# heading"),
        ("- item", r"\- item"),
        ("1. item", r"1\. item"),
        ("12. item = 3 - 4 task.created", r"12\. item = 3 - 4 task.created"),
        ("| a | b |", r"\| a \| b \|"),
        ("<script>x</script>", r"\<script\>x\</script\>"),
        ("[a](http://b.c)", r"\[a\]\(http\://b.c\)"),
        ("![x](y) `code` *bold* _em_ &amp; $m$ ~~s~~", r"\!\[x\]\(y\) \`code\` \*bold\* \_em\_ \&amp; \$m\$ \~\~s\~\~"),
        ("www.evil.com me@x.org", r"www\.evil.com me\@x.org"),
        ("---", r"\---"),
        ("\x1b[31mred\x07", None),
    ],
)
def test_nothing_in_a_text_means_anything_to_markdown(text, wanted):
    got = escape(text)
    assert "\n" not in got
    assert "\x1b" not in got
    assert wanted is None or got == wanted


def test_quotation_stays_one_whatever_its_lines_hold():
    assert quote("a\n\n---\nb: c") == ["> a", ">", r"> \---", "> b: c"]
    assert quote("") == [">"]


@given(st.recursive(st.text() | st.integers(-9, 9), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_block_holds_its_value_and_nothing_can_close_it(value):
    fence, *inside, end = block(value)
    assert json.loads("\n".join(inside)) == value
    assert end == fence.removesuffix("json")
    assert not any(line.startswith(end) for line in inside)
    assert all(line.isprintable() for line in inside)


@given(st.dictionaries(st.from_regex(r"[a-z_]{1,8}", fullmatch=True), st.text() | st.none() | st.integers(0, 9)))
def test_front_matter_holds_what_it_was_given_and_no_more(members):
    text = "\n".join([*front(members), "body", ""])
    found, body = parse_front_matter(text.encode(), "p")
    assert (found.value, body.strip()) == (members, "body")


def test_cell_of_a_table_cannot_end_its_row():
    assert row(["a|b", "c\nd"]) == r"| a\|b | c d |"
