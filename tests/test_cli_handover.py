"""`deedbook context save --hand-over` and `context load`: a run that waits goes on in another state folder."""

import json
import shutil
from hashlib import sha256
from pathlib import Path

import pytest
from commandline import Place, starter

from deedbook.format.canonical import encode
from deedbook.format.events import Entry, first_hash, label, line_prefix, seal_line, split_line
from deedbook.format.reader import read

SKILL = """\
    ---
    name: pay
    description: Pays.
    triggers: [pay]
    allowed-tools: [echo]
    version: 1
    schema_version: v1
    metadata:
      deedbook:
        rules:
          - pattern: '^pay(?P<more>.*)$'
            steps: [{ability: echo, args: {text: hi}, description: Say hi}]
            answer: paid
    ---
    # Pay
    """
PEOPLE = """\
    schema_version: v1
    id: people
    kind: rules
    match: {abilities: [echo]}
    rules: [{match: {}, then: ask, reason: a person decides}]
    """


@pytest.fixture
def first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """Give a workspace with a run whose echo needs a person; ada has a key."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    place = starter(tmp_path / "first")
    settings = (place.path / ".system/deedbook.yaml").read_text()
    place.write(".system/deedbook.yaml", f"{settings}\nprincipals:\n  ada: {{key: ada.pub, roles: [approver]}}\n")
    place.system("policies/people.yaml", PEOPLE)
    place.system("skills/pay/SKILL.md", SKILL)
    place.here("keys", "new", "ada", "--out", ".system/ada.pub", status=0)
    return place


def copy_of(place: Place, name: str) -> Place:
    """Return a copy of the workspace with an empty state folder."""
    shutil.copytree(place.path / ".system", place.path.parent / name / ".system")
    return Place(place.path.parent / name)


def handed_over(place: Place, prompt: str = "pay") -> tuple[str, str]:
    """Begin a run that waits for a person, and hand it over; return its session and the bundle."""
    session = place.here("run", prompt, status=3).session
    bundle = str(place.path.parent / f"{session}.json")
    place.here("context", "save", session, bundle, "--hand-over", status=0)
    return session, bundle


def approve_and_resume(place: Place, session: str) -> str:
    """Go on as far as the request, which is made again; approve it, and go on; return the reply."""
    place.here("resume", session, status=3)
    place.here("approvals", "approve", place.request(), "--as", "ada", status=0)
    return place.here("resume", session, status=0).out


def test_suspended_run_goes_on_and_completes_in_another_state_folder(first: Place):
    session, bundle = handed_over(first)
    second = copy_of(first, "second")
    out = second.here("context", "load", bundle, status=0)
    assert f"session {session} is here now" in out.err
    assert approve_and_resume(second, session) == "paid\n"
    assert first.here("verify", status=0)
    assert second.here("verify", status=0)
    older, newer = first.ledger(session).read_bytes(), second.ledger(session).read_bytes()
    assert newer.startswith(older)
    assert [event.type for event in read(second.ledger(session))].count("tool.call") == 1


def test_session_that_was_handed_over_does_not_go_on_where_it_was(first: Place):
    session, _ = handed_over(first)
    before = first.ledger(session).read_bytes()
    for command in (("resume", session), ("sessions", "close", session)):
        ran = first.here(*command)
        assert (ran.status, ran.out) == (1, "")
        assert "[SESSION_HANDED_OVER]" in ran.err
        assert "context load BUNDLE" in ran.err
    assert first.ledger(session).read_bytes() == before
    listed = first.here("approvals", "list", "--json", status=0).json["approvals"]
    assert listed == []


def test_load_is_recorded_with_the_head_and_the_bundle(first: Place):
    session, bundle = handed_over(first)
    second = copy_of(first, "second")
    second.here("context", "load", bundle, status=0)
    own = list(read(second.path / ".deedbook/workspace/.events.jsonl"))
    (received,) = [event.payload for event in own if event.type == "ledger.received"]
    head = json.loads(Path(bundle).read_text())["head"]
    assert (received["session_id"], received["head"], received["by"]) == (session, head, "local")
    assert ("ledger.session", head) in [(event.type, event.payload.get("head")) for event in own]


def test_session_can_be_taken_back_and_goes_on(first: Place):
    session, bundle = handed_over(first)
    assert first.here("context", "load", bundle, status=0).err == ""
    assert first.here("resume", session).status == 1
    first.here("context", "load", bundle, "--take-back", status=0)
    assert approve_and_resume(first, session) == "paid\n"
    assert first.here("verify", status=0)


def test_session_comes_back_with_what_was_recorded_meanwhile(first: Place):
    session, bundle = handed_over(first)
    second = copy_of(first, "second")
    second.here("context", "load", bundle, status=0)
    second.here("resume", session, status=3)
    back = f"{bundle}.back"
    second.here("context", "save", session, back, "--hand-over", status=0)
    first.here("context", "load", back, status=0)
    assert approve_and_resume(first, session) == "paid\n"
    assert first.here("verify", status=0)
    assert second.here("verify", status=0)
    assert "[SESSION_HANDED_OVER]" in second.here("resume", session).err


def test_received_session_is_not_handed_on_before_it_went_on(first: Place):
    session, bundle = handed_over(first)
    second = copy_of(first, "second")
    second.here("context", "load", bundle, status=0)
    ran = second.here("context", "save", session, f"{bundle}.more", "--hand-over")
    assert (ran.status, "[RESUME_REFUSED]" in ran.err) == (1, True)
    assert not Path(f"{bundle}.more").exists()


def test_sealed_values_travel_with_the_session_and_only_when_it_is_handed_over(first: Place):
    first.configure("  - {detect: card}\n", "  - {detect: card}\n  - user.message/text\n")
    session = first.here("run", "pay", status=3).session
    plain = first.path.parent / "plain.json"
    first.here("context", "save", session, str(plain), status=0)
    assert json.loads(plain.read_text())["sealed"] == {}
    bundle = str(first.path.parent / "run.json")
    first.here("context", "save", session, bundle, "--hand-over", status=0)
    assert json.loads(Path(bundle).read_text())["sealed"]
    second = copy_of(first, "second")
    second.here("context", "load", bundle, status=0)
    assert approve_and_resume(second, session) == "paid\n"


def test_bundle_is_written_again_after_the_first_one_is_lost(first: Place):
    session, bundle = handed_over(first)
    before = Path(bundle).read_bytes()
    Path(bundle).unlink()
    first.here("context", "save", session, bundle, "--hand-over", status=0)
    assert Path(bundle).read_bytes() == before


# --- what is refused --------------------------------------------------------------------------------------------------


def refuse(place: Place, bundle: str, *options: str) -> str:
    """Load *bundle*, which has to be refused and to write nothing; return the error."""
    before = place.sessions()
    ran = place.here("context", "load", bundle, *options)
    assert ran.status not in (0, 70), ran
    assert ran.out == ""
    assert ran.err.startswith("error: ")
    assert "Traceback" not in ran.err
    assert "\x1b" not in ran.err
    assert place.sessions() == before
    return ran.err


def test_bundle_that_does_not_hand_over_is_not_taken_in(first: Place):
    session = first.here("run", "pay", status=3).session
    bundle = str(first.path.parent / "run.json")
    first.here("context", "save", session, bundle, status=0)
    second = copy_of(first, "second")
    second.here("context", "load", bundle, "--check", status=0)
    assert "--hand-over" in refuse(second, bundle)


def test_only_a_suspended_session_is_handed_over(first: Place):
    session = first.here("run", "greet Ada", status=3).session
    first.here("sessions", "close", session, status=0)
    ran = first.here("context", "save", session, "run.json", "--hand-over", status=1)
    assert "only a suspended one is handed over" in ran.err
    assert not (first.path / "run.json").exists()


def test_workspace_with_another_charter_does_not_take_a_session_in(first: Place):
    _, bundle = handed_over(first)
    second = copy_of(first, "second")
    second.system("skills/pay/SKILL.md", SKILL.replace("answer: paid", "answer: stolen"))
    assert "charter" in refuse(second, bundle)


def test_other_record_of_the_same_session_is_kept(first: Place):
    session, bundle = handed_over(first)
    second = copy_of(first, "second")
    second.here("context", "load", bundle, status=0)
    approve_and_resume(second, session)
    first.here("context", "load", bundle, "--take-back", status=0)
    approve_and_resume(first, session)
    third = f"{bundle}.third"
    second.here("context", "save", session, third, status=0)
    before = first.ledger(session).read_bytes()
    assert "[BUNDLE_REFUSED]" in refuse(first, third)
    assert "[BUNDLE_REFUSED]" in refuse(first, third, "--take-back")
    assert first.ledger(session).read_bytes() == before


def spoil(text: str, **members: object) -> str:
    """Return a bundle with other members, in the form in which bundles are saved."""
    return json.dumps({**json.loads(text), **members}, separators=(",", ":"), sort_keys=True, ensure_ascii=False)


def events_of(text: str) -> list[str]:
    found: list[str] = json.loads(text)["events"]
    return found


HOSTILE = {
    "empty": lambda _: "",
    "cut": lambda text: text[: len(text) // 2],
    "a list": lambda _: "[]",
    "deep": lambda _: "[" * 100_000,
    "deep inside": lambda text: spoil(text, context=0).replace(":0,", ":" + '{"a":' * 500 + "1" + "}" * 500 + ",", 1),
    "version 1": lambda text: spoil(text, schema_version="v1"),
    "version 4": lambda text: spoil(text, schema_version="v4"),
    "another member": lambda text: spoil(text, more=1),
    "no events": lambda text: spoil(text, events=[]),
    "events that are none": lambda text: spoil(text, events=[1]),
    "events in one text": lambda text: spoil(text, events=["\n".join(events_of(text))]),
    "an event less at the end": lambda text: spoil(text, events=events_of(text)[:-1]),
    "an event less at the beginning": lambda text: spoil(text, events=events_of(text)[1:]),
    "an event less within": lambda text: spoil(text, events=events_of(text)[:3] + events_of(text)[4:]),
    "an event twice": lambda text: spoil(text, events=[*events_of(text), events_of(text)[-1]]),
    "an edited event": lambda text: text.replace("a person decides", "nobody decides"),
    "another context": lambda text: text.replace('"state":"NEEDS_HUMAN"', '"state":"COMPLETED"'),
    "another run": lambda text: spoil(text, run="f" * 16),
    "a run that is no text": lambda text: spoil(text, run=["\x1b[31m"]),
    "another head": lambda text: spoil(text, head="0" * 64),
    "another session": lambda text: spoil(text, session="../../escape"),
    "other digests": lambda text: spoil(text, digests={"context": "0" * 64, "events": "0" * 64}),
    "a sealed value of nobody": lambda text: spoil(text, sealed={"0" * 64: "AAAA"}),
    "a sealed value as a path": lambda text: spoil(text, sealed={"../x": "AAAA"}),
    "sealed values that are none": lambda text: spoil(text, sealed=[1]),
    "two members of one name": lambda text: text.replace("{", '{"head":"x",', 1),
    "a number out of range": lambda text: text.replace('"attempts":', '"attempts":1e999,"x":', 1),
    "other white space": lambda text: text.replace(":", ": ", 1),
    "control characters": lambda text: spoil(text, session="\x1b[31m"),
}  # fmt: skip


def test_edited_cut_foreign_and_hostile_bundles_are_refused(first: Place):
    _, bundle = handed_over(first)
    second, whole = copy_of(first, "second"), Path(bundle).read_text()
    for name, change in HOSTILE.items():
        changed = change(whole)
        assert changed != whole, name
        Path(bundle).write_text(changed)
        assert "[BUNDLE_REFUSED]" in refuse(second, bundle), name
        assert "[BUNDLE_REFUSED]" in refuse(first, bundle, "--take-back"), name
    Path(bundle).write_bytes(b'{"\xff": 1}')
    assert "[BUNDLE_REFUSED]" in refuse(second, bundle)
    assert list((second.path / ".deedbook").glob("sessions/*")) == []


def forge(text: str, **principal: object) -> str:
    """Return a bundle whose session has another principal; all its hashes are right again."""
    made = json.loads(text)
    lines: list[str] = []
    before = first_hash(made["session"])
    for raw in made["events"]:
        line = split_line(raw.encode())
        payload = line.event.payload
        if line.seq == 0:
            payload = {**payload, "principal": {**payload["principal"], **principal}}
        entry = Entry(
            label(line.event_type, line.actor, line.principal), line.span_id, line.parent_span_id, encode(payload)
        )
        prefix = line_prefix(line.session_id, line.trace_id)
        sealed, before = seal_line(prefix, line.seq, line.ts, before, entry)
        lines.append(sealed.decode().rstrip("\n"))
    whole = "".join(f"{line}\n" for line in lines).encode()
    digests = {**made["digests"], "events": sha256(whole).hexdigest()}
    return spoil(text, events=lines, head=before, digests=digests)


@pytest.mark.parametrize(
    "principal",
    [{"roles": ["approver", "admin"]}, {"id": "nobody"}, {"id": "ada"}, {"on_behalf_of": "ada"}, {"roles": None}],
    ids=str,
)
def test_forged_principal_is_refused(first: Place, principal: dict[str, object]):
    """A ledger that is sound in itself can still say anything: the rights of its principal come from this workspace."""
    _, bundle = handed_over(first)
    second, place = copy_of(first, "second"), Path(bundle)
    text = place.read_text()
    assert forge(text) == text
    place.write_text(forge(text, **principal))
    assert "principal" in refuse(second, bundle)


def test_huge_bundle_is_refused_unread(first: Place):
    place = first.path / "huge.json"
    with place.open("wb") as file:
        file.truncate(10 * 1024**3)
    assert "at most 67108864 are read" in refuse(first, str(place))


def test_older_bundle_names_its_session_or_is_refused(first: Place):
    place = first.write("old.json", '{"context":{"run":"a"},"head":"0","schema_version":"v2"}')
    assert "--session" in first.here("context", "load", str(place), status=2).err
    session = first.here("run", "pay", status=3).session
    assert "LEDGER_UNSOUND" in refuse(first, str(place), "--session", session)
