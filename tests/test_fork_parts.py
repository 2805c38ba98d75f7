"""What a fork is made of: the parent that is read, the work it was asked to do, what differs, and the command."""

import pytest
from commandline import Place

from deedbook.continuation.differences import find_differences
from deedbook.continuation.parent import read_parent
from deedbook.format.errors import LedgerError
from deedbook_inspect.forking.fork import plan_fork
from deedbook_inspect.forking.work import list_work


@pytest.fixture
def greeting(lab):
    """Declare a run that needs no model."""
    lab.tool("echo", lambda args, ctx: args)
    lab.skill("greet", allows="echo", triggers="hello")
    lab.flow("work", lambda args, run: {"reply": run.call("echo", {"text": "hi"})["text"], "state": "COMPLETED"})
    return lab


def test_parent_that_is_not_sound_or_of_an_older_form_is_refused(greeting, tmp_path):
    with greeting.session("run") as session:
        session.run("hello there")
    parent = session.id
    place = tmp_path / "bad.jsonl"
    place.write_bytes(greeting.ledger(parent).read_bytes().replace(b"hello there", b"hello Theo!", 1))
    with pytest.raises(LedgerError) as caught:
        read_parent(place)
    assert caught.value.error.code == "LEDGER_UNSOUND"
    place.write_bytes(b'{"event_type":"session.start"}\n')
    with pytest.raises(LedgerError) as caught:
        read_parent(place)
    assert caught.value.error.code == "FORK_REFUSED"
    whole = read_parent(greeting.ledger(parent))
    with pytest.raises(LedgerError, match="and no event 999"):
        plan_fork(greeting.kernel(), whole, 999, goes_on=False, leaves=False, prompts=())


def test_work_of_a_session_is_what_it_was_asked_and_not_what_it_did(greeting):
    with greeting.session() as session:
        session.run("hello there")
        session.submit("just told")
        session.call("echo", {"text": "x"})
        session.call("nothing", {})
    asked = [(task.kind, task.text or task.ability) for task in list_work(read_parent(greeting.ledger(session)))]
    assert asked == [("run", "hello there"), ("submit", "just told"), ("call", "echo"), ("call", "nothing")]


def test_differences_name_every_place():
    before = {"a": 1, "b": [1, {"c": None}], "s": {"$sealed": "x", "size": 1}, "same": [1, 2.5, "x"]}
    now = {"a": True, "b": [1, {"c": 0}, 3], "s": {"$sealed": "y", "size": 1}, "same": [1, 2.5, "x"]}
    assert [(each.path, each.before, each.now) for each in find_differences(before, now)] == [
        ("/a", "1", "true"),
        ("/b/1/c", "null", "0"),
        ("/b/2", None, "3"),
    ]
    assert [str(each) for each in find_differences(1, "1")] == ['the whole: recorded 1, now "1"']


def test_command_forks_a_run_and_says_what_was_served(place: Place):
    parent = place.run("run", "Say hello to Ada", status=0).session
    ran = place.here("fork", "last", "--at", "20", status=0)
    assert "served 3 recorded outcomes up to event 20; nothing was done after it" in ran.err
    assert place.here("verify", ran.session, status=0)
    told = place.here("fork", parent, "--at", "20", "--run", "--json", status=0).fits("output_fork_v1")
    assert (told["reply"], told["fork"]) == ("Hello, Ada!", {"parent": parent, "at": 20, "served": 3})
    again = place.here("fork", parent, "--at", "36", "--prompt", "Say hello to Bob", status=0)
    assert again.out == "Hello, Bob!\n"
    skill = place.path / ".system/skills/greet/SKILL.md"
    skill.write_text(skill.read_text().replace("Hello, ${name}", "Hi, ${name}"))
    left = place.here("fork", parent, "--at", "36", "--json", status=1).fits("output_fork_v1")
    assert left["error"]["code"] == "FORK_DIVERGED"
    (differs,) = left["fork"]["diverged"]["differences"]
    assert differs["path"].endswith("/steps/0/args/text")
    assert "no event 99" in place.here("fork", parent, "--at", "99", status=1).err
    raw = place.ledger(parent).read_bytes()
    place.ledger(parent).write_bytes(b"".join(raw.splitlines(keepends=True)[:9]))
    broken = place.here("verify", ran.session, status=4).out.splitlines()[0]
    assert broken.startswith(f"BROKEN in session {ran.session}")
    assert f"event 20 of session {parent}" in broken
