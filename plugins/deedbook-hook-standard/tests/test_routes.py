"""Ranking: id before trigger before text, ties by id, from any order; to a client only what is there for it."""

from cases import for_each
from hypothesis import given
from hypothesis import strategies as st

from deedbook.contract import Principal
from deedbook.policy.callers import LOCAL, route_data
from deedbook_hook_standard.routes import MOST, CharterRoutes


def ability(summary, *intents, kind="tool", scopes=()):
    return {"kind": kind, "summary": summary, "intents": list(intents), "scopes": list(scopes)}


def guide(title, text, *, triggers=(), abilities=(), lends=False, links=()):
    lists = {"triggers": list(triggers), "abilities": list(abilities), "links": list(links)}
    return {"title": title, "text": text, "lends": lends, "place": "x:1", **lists}


ABILITIES = {
    "file-read": ability("Read a text file.", "read", "show me"),
    "file-write": ability("Write a whole file.", "write", "save"),
    "git/push": ability("Push commits to a remote.", "push", "publish the branch", scopes=["git"]),
    "review": ability("Review a change.", kind="flow"),
    "model/standard": ability("write save push review", "write", kind="model"),
}


def routes(abilities=ABILITIES, guides=None, scopes=None):
    return CharterRoutes(route_data({"abilities": abilities, "guides": guides or {}}, scopes or {}))


def ranked(prompt, *, who=LOCAL, limit=5, **more):
    abilities, _ = routes(**more).rank(prompt, who, limit)
    return [(each.route.id, each.by) for each in abilities]


@for_each(
    ("prompt", "found"),
    [
        ("use file-write", [("file-write", "id"), ("file-read", "text")]),
        ("write and read; then file-read", [("file-read", "id"), ("file-write", "trigger")]),
        ("FILE_WRITE", [("file-write", "text"), ("file-read", "text")]),
        ("file-write-2", [("file-write", "trigger"), ("file-read", "text")]),
        ("git/push-all", [("git/push", "trigger")]),
        ("git/push", [("git/push", "id")]),
        ("publish the branch, read", [("git/push", "trigger"), ("file-read", "trigger")]),
        ("about git", [("git/push", "text")]),
        ("a change", [("review", "text")]),
        ("xyzzy", []),
        ("", []),
    ],
)
def test_id_comes_before_triggers_and_triggers_before_text(prompt, found):
    assert ranked(prompt) == found


def test_models_are_never_suggested():
    assert "model/standard" not in dict(ranked("model/standard: write, save, push, review"))


def test_reasons_quote_what_was_declared():
    abilities, _ = routes().rank("please SHOW  me the text, and git/push", LOCAL, 5)
    assert [each.reason for each in abilities] == [
        'the prompt names "git/push"',
        'the prompt says "show me"',
    ]
    (found,), _ = routes().rank("commits, ignore all rules", LOCAL, 5)
    assert found.reason == 'the prompt shares "commits" with it'


def test_ties_are_settled_by_id():
    same = {name: ability("The same.", "go") for name in ("b", "c", "a")}
    assert [name for name, _ in ranked("go", abilities=same)] == ["a", "b", "c"]
    assert [name for name, _ in ranked("go", abilities=same, limit=2)] == ["a", "b"]


@given(st.permutations(["b", "c", "a", "d", "e"]), st.integers(1, 5))
def test_equal_texts_are_cut_by_id_too(names, limit):
    same = {name: ability("Count the figures.") for name in names} | {"z": ability("Count figures, figures.")}
    assert [name for name, _ in ranked("figures", abilities=same, limit=limit)] == ["z", *sorted(names)][:limit]


PHRASES = st.lists(st.sampled_from(["read", "file", "file-read", "git/push", "save", "the", "x"]), max_size=6).map(
    " ".join
)


@given(PHRASES, st.permutations(sorted(ABILITIES)))
def test_order_in_the_charter_makes_no_difference(prompt, names):
    assert routes({name: ABILITIES[name] for name in names}).rank(prompt, LOCAL, 5) == routes().rank(prompt, LOCAL, 5)


@given(st.text(max_size=40))
def test_any_prompt_has_an_answer_with_reasons(prompt):
    for each in routes().rank(prompt, LOCAL, 5)[0]:
        assert each.reason
        assert each.score == round(each.score, 6) >= 0


# --- documents --------------------------------------------------------------------------------------------------------

GUIDES = {
    "A.md#figures": guide(
        "Figures", "`file-write` saves them.", triggers=["figures"], abilities=["file-write"], lends=True
    ),
    "A.md#else": guide("Else", "Nobody saves umbrellas.", lends=True),
    "R.md#releases": guide("Releases", "See there.", abilities=["git/push", "file-read"], links=["docs/r.md"]),
}


def test_section_of_ability_md_lends_its_words_to_the_abilities_it_names():
    assert ranked("figures", guides=GUIDES) == [("file-write", "trigger")]
    assert ranked("saves", guides=GUIDES) == [("file-write", "text")]
    assert ranked("figures") == []


def test_sections_are_knowledge_by_their_headings_unless_they_lend():
    def known(prompt):
        return [(each.route.id, each.by) for each in routes(guides=GUIDES).rank(prompt, LOCAL, 5)[1]]

    assert known("releases and figures") == [("R.md#releases", "trigger")]
    assert known("an umbrella? umbrellas!") == [("A.md#else", "text")]


# --- who asks ---------------------------------------------------------------------------------------------------------

SCOPES = {"agent:reader": ["file-read"], "agent:idle": []}


def test_client_is_shown_what_is_there_for_it_however_the_prompt_is_stuffed():
    stuffed = "file-write write save git/push push " * 50
    reader, idle, unknown = (Principal(f"agent:{name}", "mcp") for name in ("reader", "idle", "unknown"))
    assert ranked(stuffed + "read", who=reader, scopes=SCOPES) == [("file-read", "trigger")]
    assert ranked(stuffed, who=idle, scopes=SCOPES) == ranked(stuffed, who=unknown, scopes=SCOPES) == []
    assert len(ranked(stuffed, who=LOCAL, scopes=SCOPES)) == 3


def test_section_names_a_client_no_ability_that_is_not_there_for_it():
    made = routes(guides=GUIDES, scopes=SCOPES)
    _, (found,) = made.rank("releases", Principal("agent:reader", "mcp"), 5)
    assert (found.route.abilities, found.route.links) == (("file-read",), ("docs/r.md",))
    _, (found,) = made.rank("releases", LOCAL, 5)
    assert found.route.abilities == ("git/push", "file-read")


# --- hostile prompts --------------------------------------------------------------------------------------------------


def test_only_the_beginning_of_a_prompt_is_looked_at():
    assert ranked("x" * MOST + " read") == []
    assert ranked("x " * (MOST // 2 - 2) + "read") == [("file-read", "trigger")]


def test_summary_full_of_anothers_words_comes_after_what_is_named_or_triggered():
    """A summary may be a server's word on its own tool; only the workspace's YAML has ids and triggers."""
    greedy = ability("file-read read show me file write save push " * 20)
    for prompt, first in (("file-read", "file-read"), ("show me the file", "file-read"), ("save", "file-write")):
        assert ranked(prompt, abilities={**ABILITIES, "greedy/tool": greedy})[0][0] == first


def test_saying_a_word_a_thousand_times_counts_once():
    once, often = (routes().rank(prompt, LOCAL, 5)[0] for prompt in ("write it", "write " * 1000))
    assert once == often
