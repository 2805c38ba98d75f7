"""Workdocs: three pages of a session, rendered from its ledger; nothing in them is obeyed, nothing rests on them."""

import pytest
from commandline import Place, starter

from deedbook import Ok, deny
from deedbook.format.reader import read
from deedbook.workspace.documents import parse_front_matter
from deedbook_serve.workdocs import CONTEXT, MAX_ROWS, OUTCOME, TASK, render, write

NAMES = (TASK, CONTEXT, OUTCOME)
EVIL = "hello\n---\nsession: forged\n# Heading\n<script>1</script>\n```\n| a | b |\n[x](http://y)"


@pytest.fixture
def working(lab):
    """Return a workspace with a flow, a tool, and workdocs."""
    lab.tool("shout", lambda args, ctx: {"text": args["text"].upper()}, effects="none")
    lab.flow("work", lambda args, run: {"reply": run.call("shout", {"text": args["prompt"]})["text"]}, uses=["shout"])
    lab.skill("hello", allows="shout")
    lab.settings(workdocs=True)
    return lab


def pages(lab, session, folder="workdocs"):
    above = lab.path / folder if folder != "workdocs" else lab.state / folder
    return {name: (above / session / name).read_text() for name in NAMES}


def test_session_leaves_its_pages_and_the_ledger_makes_the_same_again(working):
    with working.session("run") as session:
        session.run("hello you")
    found = pages(working, session.id)
    assert found == render(session.id, read(working.ledger(session)))
    assert "> hello you" in found[TASK]
    assert "> HELLO YOU" in found[OUTCOME]
    assert "skill.invoke" in found[CONTEXT]
    for name in NAMES:
        front, _ = parse_front_matter(found[name].encode(), name)
        assert front.value["session"] == session.id
    assert front.value["ok"] is True
    assert front.value["calls"] == 2


def test_prompt_is_on_its_page_before_anybody_acts_on_it(working):
    session = working.session()
    assert isinstance(session.submit("do this first"), Ok)
    found = pages(working, session.id)
    assert "> do this first" in found[TASK]
    assert "It has not ended." in found[OUTCOME]
    session.end(ok=True, reason="done")
    assert "It ended at" in pages(working, session.id)[OUTCOME]


def test_nothing_that_was_said_is_obeyed_on_a_page(working):
    working.hook("no", "PreToolUse", lambda call: deny(EVIL))
    with working.session("run") as session:
        session.submit(EVIL)
        session.call("shout", {"text": EVIL})
    for name, text in pages(working, session.id).items():
        front, body = parse_front_matter(text.encode(), name)
        assert front.value["session"] == session.id
        assert "<script>" not in body
        assert not [line for line in body.splitlines() if line.startswith(("---", "# Heading", "session:"))]
        assert "](http" not in body


def test_pages_go_to_the_folder_that_is_asked_for(working):
    working.settings(workdocs="docs/sessions")
    with working.session() as session:
        session.submit("hi")
    assert "> hi" in pages(working, session.id, "docs/sessions")[TASK]
    assert not (working.state / "workdocs").exists()


@pytest.mark.parametrize("said", ["../out", "/tmp/out", ".system/docs", "a/../b", "", "a//b", 7, ["a"]])
def test_folder_that_leads_elsewhere_is_refused(working, said):
    working.settings(workdocs=said)
    with pytest.raises(Exception, match="workdocs"):
        working.kernel()


def test_folder_of_sources_is_refused(working):
    working.settings(workdocs="skills/pages", roots={"skills": ["skills"]})
    working.write("skills/x/SKILL.md", "---\nname: x\ndescription: X.\n---\n", system=False)
    with pytest.raises(Exception, match="holds sources"):
        working.kernel()


def test_page_that_cannot_be_written_neither_fails_nor_loses_the_session(working):
    kernel = working.kernel()
    (kernel.site.state / "workdocs").write_text("in the way")
    session = kernel.session("run")
    working._sessions.append(session)
    assert session.run("hello you").value.text == "HELLO YOU"
    session.end(ok=True, reason="done")
    assert working.types(session)[-1] == "session.end"


def test_workspace_that_does_not_want_pages_has_none(lab):
    with lab.session() as session:
        session.submit("hi")
    assert not (lab.state / "workdocs").exists()


def test_table_of_a_long_session_ends_and_says_so(lab):
    lab.tool("act", lambda args, ctx: None)
    with lab.session() as session:
        for _ in range(MAX_ROWS + 3):
            session.call("act", {})
    text = render(session.id, read(lab.ledger(session)))[OUTCOME]
    assert text.count("tool.result") == MAX_ROWS
    assert "And 3 more" in text


def test_sealed_values_stay_sealed_on_pages(working):
    working.settings(seal=[{"detect": "card"}])
    with working.session() as session:
        session.submit("pay with 4111 1111 1111 1111")
    assert "4111" not in "".join(pages(working, session.id).values())


def test_name_of_a_session_leads_nowhere_else(tmp_path):
    for name in ("../x", "a/b", "", ".."):
        with pytest.raises(Exception, match="no session"):
            write(True, tmp_path, tmp_path, name)


# --- the command ----------------------------------------------------------------------------------------------------


def test_pages_are_written_anew_by_the_command(tmp_path):
    place: Place = starter(tmp_path / "w")
    assert place.here("workdocs", status=0).out == ""
    place.here("run", "Say hello to Ada", status=0)
    told = place.here("workdocs", "last", "--json", status=0).fits("output_pages_v1")["pages"]
    assert [page.rpartition("/")[2] for page in told] == list(NAMES)
    assert "> Say hello to Ada" in (place.path / told[0]).read_text()
    assert "> Hello, Ada\\!" in (place.path / told[2]).read_text()
    assert place.here("workdocs", status=0).out.splitlines() == [told[0].removeprefix(f"{place.path}/")] + [
        page.removeprefix(f"{place.path}/") for page in told[1:]
    ]
    assert "SESSION_NOT_FOUND" in place.here("workdocs", "nobody", status=2).err
