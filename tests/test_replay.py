"""Replay has no side effects, says first whether the ledger is sound, and obeys nothing that others wrote."""

import base64
import json
import re
import subprocess
import sys
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path

import pytest
from commandline import Place, environment
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deedbook.contract import Event
from deedbook.format.families import CATALOGUE
from deedbook.format.folds import fold
from deedbook_audit.upcasting.reader import read as upcast
from deedbook_inspect.replaying.account import AccountFold, measure_milliseconds
from deedbook_inspect.replaying.handovers import HandoverFold
from deedbook_inspect.replaying.page import MOST_EVENTS, VerificationResult, render_page
from deedbook_inspect.replaying.payloads import BRIEF, MAX_VALUE, PayloadCutter

GUARDED = Path(__file__).with_name("guarded.py")
STYLE = "body { color: red }"
VOID = {"meta", "rect", "br"}
HOSTILE = (
    "</pre></details><script>alert(1)</script><img src=x onerror=alert(2)>\"' onmouseover=alert(3) <!-- ]]> "
    "\x1b[2J\x00\u202egnp.exe\ud800 &lt;b&gt; javascript:alert(4) </style><style>*{display:none}"
)
EVENTS = {
    "session.start": {"purpose": "run", "principal": {"id": "ada", "via": "cli", "roles": [], "on_behalf_of": None}},
    "session.end": {"ok": True, "reason": "COMPLETED"},
}


def event(seq, kind, payload, parent=0, **more):
    span = f"{seq + 1:016x}"
    above = None if seq == 0 else f"{parent + 1:016x}"
    return Event(seq, kind, "runtime", "ada", span, above, f"2026-11-22T08:00:00.{seq % 1000:03d}Z", payload, **more)


def story(*events):
    """Return events from (type, payload, parent), the parent by its number."""
    return [event(seq, kind, payload, *parent) for seq, (kind, payload, *parent) in enumerate(events)]


def told(events, checked=None):
    """Return the page of *events* in which everything is well-formed, and nothing can run or be loaded."""
    account = fold(AccountFold(), events)
    made = "".join(render_page("5e" * 16, account, checked or VerificationResult(True, "sound, unwitnessed"), STYLE))
    made.encode()
    return made, read(made)


def test_agents_are_the_roles_that_handed_over(tmp_path: Path):
    roles = (None, "lead", "planner", "lead")
    steps = [
        ("agent.transition", {"from": role, "to": to}) for role, to in zip(roles, [*roles[1:], "DONE"], strict=True)
    ]
    assert fold(HandoverFold(), story(*steps)) == {"runtime": "lead", "lead": "planner", "planner": "lead"}
    old = tmp_path / "audit.jsonl"
    row = {"id": "0", "session_id": "s", "ts": 1700000000.5, "type": "agent.transition", "actor": "planner"}
    old.write_text(json.dumps({**row, "payload": {"to": "PLAN"}, "schema_version": "v1", "parent_id": None}) + "\n")
    assert fold(HandoverFold(), upcast(old)) == {"planner": "PLAN"}


class Page(HTMLParser):
    """Reads a page strictly: every tag is closed in order, and no attribute leads out or runs anything."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.ids, self.links, self.words, self.marks = [], [], [], [], []

    def handle_starttag(self, tag, attrs):
        said = dict(attrs)
        assert len(said) == len(attrs)
        assert tag not in {"script", "img", "iframe", "object", "embed", "link", "base", "form", "input", "meta-x"}
        assert not [name for name in said if name.startswith("on") or name in ("style", "src", "srcdoc", "action")]
        self.ids += [said["id"]] if "id" in said else []
        if "href" in said:
            assert said["href"].startswith("#")
            self.links.append(said["href"][1:])
        if tag == "mark":
            self.marks.append(said.get("class", ""))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        assert tag in VOID

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] != ["style"]:
            self.words.append(data)


def read(made):
    parsed = Page()
    parsed.feed(made)
    parsed.close()
    assert not parsed.open
    assert len(set(parsed.ids)) == len(parsed.ids)
    assert set(parsed.links) <= set(parsed.ids)
    return parsed


# --- no side effects --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded(told: Place, tmp_path_factory):
    """Call the three forms of replay, and one that writes, where writing, sockets and processes are forbidden."""
    folder = tmp_path_factory.mktemp("guarded")
    (folder / "there").touch()
    forms = [["replay", "last"], ["replay", "last", "--json"], ["replay", "last", "--html"]]
    writing = ["replay", "last", "--html", "--out", str(folder / "page.html")]
    ran = subprocess.run(
        [sys.executable, str(GUARDED), str(folder), json.dumps([*forms, writing])],
        cwd=told.path, env=environment(), capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert sorted(place.name for place in folder.iterdir()) == ["there"]
    return json.loads(ran.stdout)


def test_replay_in_every_form_writes_nothing_connects_to_nothing_and_starts_nothing(guarded):
    text, snapshot, made = guarded["answers"][:3]
    assert [text[0], snapshot[0], made[0]] == [0, 0, 0]
    assert "tool.call: echo" in text[1]
    assert json.loads(snapshot[1])["closed"] is True
    assert made[1].startswith("<!DOCTYPE html>")


def test_guard_stops_what_it_forbids(guarded):
    status, why = guarded["answers"][3]
    assert (status, why.split(" ")[0]) == ("forbidden", "os.mkdir")
    assert "done" not in guarded["tried"].values()
    assert len(guarded["tried"]) == 16


# --- what is said first -----------------------------------------------------------------------------------------------


def test_replay_says_first_what_verification_says(told: Place, tmp_path):
    sound = told.here("replay", "last", status=0).out.splitlines()[0]
    assert "sound" in sound
    raw = told.ledger(told.here("sessions", "--json").json["sessions"][0]["id"]).read_bytes()
    (tmp_path / "bad.jsonl").write_bytes(raw.replace(b"Say hello to Ada", b"Say hello to Eve", 1))
    elsewhere = Place(tmp_path)
    unsound = elsewhere.here("replay", "./bad.jsonl", status=4).out.splitlines()
    assert unsound[0] != sound
    assert any("Say hello to Eve" in line for line in unsound), "a replay shows what stands there"
    answer = elsewhere.here("replay", "./bad.jsonl", "--json", status=4).fits("output_replay_v1")
    assert (answer["verified"], answer["verdict"]) == (False, unsound[0])
    made = elsewhere.here("replay", "./bad.jsonl", "--html", status=4).out
    assert f'<div class="verdict bad"><p class="words">{unsound[0].replace("<", "&lt;")}' in made
    assert 'class="verdict odd"' in told.here("replay", "last", "--html", status=0).out, "nobody else vouches for it"


def test_page_says_how_far_somebody_else_vouches():
    for covered, look in ((True, "good"), (False, "odd")):
        made, _ = told(story(*EVENTS.items()), VerificationResult(True, "sound", ("a note",), is_covered=covered))
        assert f'class="verdict {look}"' in made


def test_page_that_was_not_verified_says_so():
    made, parsed = told(story(*EVENTS.items()), VerificationResult(None, "not verified: the ledger is large"))
    assert 'class="verdict odd"' in made
    assert "not verified: the ledger is large" in parsed.words


def test_page_is_written_where_it_is_asked_for(told: Place, tmp_path):
    ran = told.here("replay", "last", "--html", "--out", str(tmp_path / "page.html"), status=0)
    assert (ran.out, "page.html" in ran.err) == ("", True)
    made = (tmp_path / "page.html").read_text(encoding="utf-8")
    parsed = read(made)
    style = re.search("<style>(.*?)</style>", made, re.DOTALL)[1]
    allowed = base64.b64encode(sha256(style.encode()).digest()).decode()
    assert f"default-src &#39;none&#39;; style-src &#39;sha256-{allowed}&#39;; base-uri &#39;none&#39;" in made
    assert {"said", "decisions", "calls", "costs", "timeline", "tree"} <= set(parsed.ids)
    assert "@media print" in style
    assert "prefers-color-scheme: dark" in style
    assert "url(" not in style
    assert "--out is for --html" in told.here("replay", "last", "--out", "x", status=2).err


# --- what stands on the page ------------------------------------------------------------------------------------------


def test_nothing_that_others_wrote_becomes_a_part_of_the_page():
    nested = {HOSTILE: [HOSTILE, {"a": HOSTILE}]}
    made, parsed = told(
        story(
            ("session.start", {"purpose": HOSTILE, "principal": HOSTILE, "charter": HOSTILE, "enforcement": HOSTILE}),
            ("user.message", {"text": f"{HOSTILE}\n\tsecond line\r\n{HOSTILE}"}),
            ("hook.fired", {"event": HOSTILE, "decision": HOSTILE, "asked": [{"hook": HOSTILE, "reason": HOSTILE}]}),
            ("policy.check", {"ability": HOSTILE, "decision": HOSTILE, "asked": [{"policy": nested, "rule": HOSTILE}]}),
            ("tool.call", {"tool_name": HOSTILE, "args": nested}),
            ("tool.result", {"tool_name": HOSTILE, "result": HOSTILE}, 4),
            ("llm.request", {"ability": HOSTILE, "request": {"messages": [{"role": HOSTILE, "content": HOSTILE}, 7]}}),
            ("llm.error", {"ability": HOSTILE, "code": HOSTILE, "message": HOSTILE, "outcome": HOSTILE}, 6),
            ("tool.denied", {"name": HOSTILE, "code": HOSTILE, "reason": HOSTILE, "by": {"rule": HOSTILE}}),
            ("approval.requested", {"approval": HOSTILE, "reason": HOSTILE, "name": HOSTILE}),
            ("x.odd.kind", nested),
            ("session.end", {"ok": HOSTILE, "reason": HOSTILE}),
        )
    )
    assert "alert(1)" in "".join(parsed.words), "it is shown"
    assert "\\u{202e}" in made
    assert not set(made) & {"\x1b", "\x00", "\u202e", "\ud800"}
    assert made.count("</style>") == 1


MEMBERS = (
    "asked", "decision", "event", "ability", "tool_name", "name", "args", "request", "response", "result", "by", "code",
    "reason", "text", "reply", "seq", "digests", "hash", "payload", "outcome", "approval", "errors", "principal",
    "session", "messages", "usage", "rule", "hook", "policy", "$sealed", "$excised", "size", "kind", "late", "flow",
)  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.just(HOSTILE),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(MEMBERS), inner, max_size=4),
    max_leaves=6,
)
PAYLOADS = st.dictionaries(st.sampled_from(MEMBERS), VALUES, max_size=6)


@given(st.lists(st.tuples(st.sampled_from(sorted(CATALOGUE)), PAYLOADS, st.integers(0, 9)), max_size=10))
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_page_of_whatever_a_ledger_holds_is_well_formed(found):
    told([event(0, "session.start", {})] + [event(seq, *each) for seq, each in enumerate(found, 1)])


def test_page_shows_who_decided_and_where_the_rule_stands():
    asked = [{"policy": "baseline", "decision": "deny", "reason": "no", "rule": ".system/policies/baseline.yaml:9"}]
    _, parsed = told(
        story(
            ("session.start", EVENTS["session.start"]),
            ("policy.check", {"ability": "rm", "decision": "deny", "enforcement": "enforce", "asked": asked}),
            ("tool.denied", {"name": "rm", "kind": "tool", "code": "GATE_DENIED", "reason": "no",
                             "by": {"policy": "baseline", "rule": ".system/policies/baseline.yaml:9"}}),
            ("approval.requested", {"approval": "ab" * 16, "name": "pay", "reason": "it is a lot"}),
            ("approval.granted", {"approval": "ab" * 16, "approver": "grace"}, 3),
            ("tool.call", {"tool_name": "pay", "args": {}}, 4),
            ("tool.error", {"tool_name": "pay", "code": "X", "message": "m", "outcome": "unknown"}, 5),
        )
    )  # fmt: skip
    words = " ".join(parsed.words)
    assert words.count(".system/policies/baseline.yaml:9") >= 3
    assert "decided by policy baseline" in words
    assert "approved by grace (request abababab)" in words
    assert "outcome unknown" in words
    assert "not ended" in words


def test_sealed_erased_taken_out_and_corrected_values_are_marked():
    sealed, erased = "a1" * 32, "e2" * 32
    _, parsed = told(
        story(
            ("session.start", EVENTS["session.start"]),
            ("user.message", {"text": {"$sealed": sealed, "size": 12}}),
            ("tool.call", {"tool_name": "pay", "args": {"card": {"$sealed": erased, "size": 21}}}),
            ("agent.reply", {"$excised": "f3" * 32}),
            ("session.end", EVENTS["session.end"]),
            ("payload.erased", {"seq": 2, "digests": [erased], "reason": "asked", "by": "ada"}),
            ("ledger.excised", {"seq": 3, "payload_hash": "f3" * 32, "size": 9, "reason": "law", "by": "ada"}),
            ("event.amended", {"seq": 1, "hash": "00" * 32, "payload": {"text": "meant"}, "reason": "typo", "by": "a"}),
        )
    )
    words = " ".join(parsed.words)
    assert "sealed, 12 bytes" in words
    assert "erased, 21 bytes" in words
    assert "taken out of the line; only its hash is left" in words
    assert {"sealed", "erased"} <= set(parsed.marks)
    assert "corrected by" in words
    assert '"meant"' in words
    assert "No outcome was recorded: it is unknown whether it happened." in words


def test_ledger_of_thousands_of_events_makes_a_page_of_reasonable_size():
    events = [event(0, "session.start", EVENTS["session.start"])]
    for seq in range(1, 2_000, 2):
        events += [event(seq, "tool.call", {"tool_name": "echo", "args": {"text": "x" * 200}})]
        long = {"tool_name": "echo", "result": "y" * (60_000 if seq < 99 else 200)}
        events += [event(seq + 1, "tool.result", long, seq)]
    made, parsed = told(events)
    assert len(made) < 6_000_000
    assert "cut here; the ledger holds the whole" in made
    assert len([name for name in parsed.ids if name.startswith("e")]) == 2_001
    assert MOST_EVENTS >= 10_000


def test_page_is_written_in_small_parts():
    events = [event(0, "session.start", EVENTS["session.start"])]
    events += [event(seq, "tool.call", {"tool_name": "echo", "args": {"text": "x" * 500}}) for seq in range(1, 400)]
    parts = list(render_page("5e" * 16, fold(AccountFold(), events), VerificationResult(True, "sound"), STYLE))
    assert max(map(len, parts)) * 5 < sum(map(len, parts))


def test_text_on_a_page_keeps_its_first_line_even_if_it_is_empty():
    """A browser leaves out one line feed after `<pre>`."""
    made, _ = told(story(("session.start", EVENTS["session.start"]), ("user.message", {"text": "\n\nfirst <b>"})))
    assert '<pre dir="auto">\n\n\nfirst &lt;b&gt;</pre>' in made


@pytest.mark.parametrize("value", ["x" * 20_000, {"a": "x" * 20_000}, {"x" * 20_000: 1}, [1] * 20_000])
def test_values_after_the_limit_of_a_page_are_cut_to_their_beginning(value):
    cutter = PayloadCutter((), total=20_000)
    sizes = [sum(map(len, payload.lines)) for payload in (cutter.cut(value), cutter.cut(value), cutter.cut(value))]
    assert sizes[1] > MAX_VALUE // 2
    assert sizes[2] <= 2 * BRIEF
    assert all(cutter.cut(value).is_cut for _ in range(2))


def test_json_of_a_page_is_escaped_between_its_keys_and_marks():
    """Control characters stand for the markup of keys and marks until the text is escaped."""
    control = "\x01\x02\x03<b>&"
    sealed = {"$sealed": f"{control}ab", "size": control}
    made, parsed = told(
        story(("session.start", {}), ("x.odd.kind", {control: control, "first": sealed, "second": [sealed, 7]}))
    )
    shown = "\\u0001\\u0002\\u0003&lt;b&gt;&amp;"
    assert f"\n  <b>&#34;{shown}&#34;</b>: &#34;{shown}&#34;,\n" in made
    shown = "\\u{1}\\u{2}\\u{3}&lt;b&gt;&amp;"
    mark = f'<mark class="sealed" title="{shown}ab">sealed, {shown} bytes</mark>'
    assert f"  <b>&#34;first&#34;</b>: {mark},\n  <b>&#34;second&#34;</b>: [\n    {mark},\n    7\n  ]\n}}</pre>" in made
    assert parsed.marks == ["sealed", "sealed"]


@pytest.mark.parametrize(("size", "is_cut"), [(-1, False), (0, False), (1, True)])
def test_json_that_just_fits_is_whole(size: int, is_cut: bool):
    payload = PayloadCutter(()).cut(["x" * (MAX_VALUE - 8 + size)])
    assert sum(len(line) + 1 for line in payload.lines[:2]) == MAX_VALUE - 1 + size
    assert payload.is_cut is is_cut
    assert payload.lines[-1].text == ("" if is_cut else "]")


def test_mark_of_a_sealed_value_is_short_whatever_a_ledger_says_of_it():
    (line,) = PayloadCutter(()).cut({"$sealed": "a" * 10_000, "size": "b" * 10_000}).lines
    assert max(len(line.mark.text), len(line.mark.title)) <= 120


def test_templates_are_loaded_by_the_page_alone():
    program = "import sys, deedbook_inspect.commands.replay, deedbook_inspect.commands.stats; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not {"jinja2", "prometheus_client", "deedbook_inspect.replaying.page"} & {*ran.stdout.split()}
    assert "deedbook_inspect.commands.replay" in ran.stdout.split()


def test_tree_that_is_very_deep_is_no_deep_page():
    _, parsed = told([event(seq, "session.start" if not seq else "context.noted", {}, seq - 1) for seq in range(3000)])
    assert len([name for name in parsed.ids if name.startswith("e")]) == 3000


def test_times_that_are_none_take_no_time():
    assert measure_milliseconds("2026-11-22T08:00:00.000Z", "2026-11-22T08:00:01.250Z") == 1250
    assert measure_milliseconds("yesterday", "2026-11-22T08:00:01.250Z") == 0
    assert measure_milliseconds("2026-11-22T08:00:01.250Z", "2026-11-22T08:00:00.000Z") == 0
