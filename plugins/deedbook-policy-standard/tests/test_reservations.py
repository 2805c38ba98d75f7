"""Budgets over sessions: parallel sessions never exceed one together, and a reservation counts until it is settled."""

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor, as_completed

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from persons import approving, perform_once

from deedbook.call.handlers import Outcome
from deedbook.contract import Call, Failed, Principal, allow, deny
from deedbook.format.canonical import encode
from deedbook.format.errors import BindingError, Err, LedgerError, Ok, fault
from deedbook.format.events import Entry, label
from deedbook.format.reader import read
from deedbook.ledger.ledger import Ledger
from deedbook_approvals.answering import answer
from deedbook_audit.rederive import rejudge
from deedbook_policy_standard.accounts import NUMBERS, AccountId, Terms, add
from deedbook_policy_standard.balances import BALANCES, MAX_BETWEEN, RESERVED, SETTLED, Balances
from deedbook_policy_standard.budgets import USED, Budget
from deedbook_policy_standard.reservations import Budgets

ALL = AccountId("all", "workspace", "", "")
WAIT = 20
"""How many seconds a test waits for an event; then it fails."""


def spending(**body):
    match = {"kind": ["tool", "flow", "model"]}
    return {"spending": {"kind": "budget", "match": match, "per": "workspace", "account": "all", **body}}


def request(**more):
    return {"messages": [{"role": "user", "content": "x"}], **more}


def asking(lab, answer, count=1, **more):
    """Declare a flow that asks the model *count* times and replies with how often it was refused."""

    def ask(args, run):
        refused = []
        for _ in range(count):
            try:
                run.agent("lead").complete(request(**more))
            except Failed as problem:
                refused.append(str(problem))
        return {"reply": "\n".join(refused)}

    lab.role("lead")
    lab.flow("ask", ask)
    lab.model(answer)


def recorded(lab, *types):
    return [each for each in read(lab.state / "workspace") if each.type in types]


def balance(lab, account=ALL):
    """Return the balance of an account, as a process reads it that starts now."""
    ledger = lab.kernel().ledger
    found = Balances.load(ledger)
    return found.get(account)


# --- what counts ------------------------------------------------------------------------------------------------------


def test_calls_of_several_sessions_count_together(lab):
    lab.tool("a", lambda args, ctx: {})
    lab.settings(policies=spending(limits={"calls": 3}))
    results = []
    for _ in range(2):
        with lab.session() as session:
            results += [session.call("a", {}) for _ in range(2)]
    assert [type(each) for each in results] == [Ok, Ok, Ok, Err]
    denied = results[3].error
    assert denied.code == "GATE_DENIED"
    assert denied.message == "calls of the account all/workspace: 3 of 3 are used or reserved, and this call may use 1"
    assert [each.type for each in recorded(lab, RESERVED, SETTLED, BALANCES)] == [BALANCES, *[RESERVED] * 3]
    check = lab.all("policy.check")[-1].payload
    assert check["facts"][USED]["accounts"]["all/workspace"]["calls"] == {"**": 3}


def test_denied_calls_reserve_nothing(lab):
    lab.tool("a", lambda args, ctx: {})
    lab.policy("never", lambda call: deny("never"), pure=True)
    lab.settings(policies=spending(limits={"calls": 3}))
    with lab.session() as session:
        assert isinstance(session.call("a", {}), Err)
        assert isinstance(session.call("b", {}), Err)
    assert recorded(lab, RESERVED) == []


@pytest.mark.parametrize(("per", "left"), [("principal", [0, 0, 2]), ("actor", [0, 2, 2]), ("workspace", [0, 0, 0])])
def test_accounts_are_those_of_who_is_accountable_of_who_acts_or_of_all(lab, per, left):
    lab.tool("a", lambda args, ctx: {})
    lab.settings(policies=spending(per=per, limits={"calls": 2}))
    people = [Principal("ann", "t"), Principal("bot", "t", on_behalf_of="ann"), Principal("bob", "t")]
    with lab.session(principal=people[0]) as session:
        assert all(isinstance(session.call("a", {}), Ok) for _ in range(2))
    allowed = []
    for person in people:
        with lab.session(principal=person) as session:
            allowed.append(sum(isinstance(session.call("a", {}), Ok) for _ in range(3)))
    assert allowed == left


def test_period_begins_with_an_empty_account(lab):
    lab.tool("a", lambda args, ctx: {})
    lab.settings(policies=spending(every="month", limits={"calls": 1}))
    times = {"2026-01-31": 1769860800.0, "2026-01-31 later": 1769893200.0, "2026-02-01": 1769904000.0}
    allowed = []
    for moment in times.values():
        with lab.session(clock=lambda moment=moment: moment) as session:
            allowed.append([isinstance(session.call("a", {}), Ok) for _ in range(2)])
    assert allowed == [[True, False], [False, False], [True, False]]


def test_calls_are_limited_by_glob(lab):
    for name in ("file/a", "file/b", "other"):
        lab.tool(name, lambda args, ctx: {})
    lab.settings(policies=spending(limits={"calls": {"file/*": 2, "**": 3}}))
    with lab.session() as session:
        allowed = [isinstance(session.call(name, {}), Ok) for name in ("file/a", "file/b", "file/a", "other", "other")]
    assert allowed == [True, True, False, True, False]
    assert balance(lab)["calls"] == {"**": 3, "file/*": 2}


def test_policies_that_share_an_account_count_a_call_once(lab):
    lab.tool("a", lambda args, ctx: {})
    both = {**spending(limits={"calls": 3}), "second": spending(limits={"calls": {"a": 2}})["spending"]}
    lab.settings(policies=both)
    with lab.session() as session:
        assert [isinstance(session.call("a", {}), Ok) for _ in range(3)] == [True, True, False]
    assert balance(lab)["calls"] == {"**": 2, "a": 2}


def test_depth_limits_nested_calls(lab):
    lab.tool("inner", lambda args, ctx: {})
    lab.tool("middle", lambda args, ctx: ctx.call("inner", {}), uses=["inner"])
    lab.tool("outer", lambda args, ctx: ctx.call("middle", {}), uses=["middle"])
    lab.settings(policies={"flat": {"kind": "budget", "match": {"kind": ["tool"]}, "limits": {"depth": 1}}})
    with lab.session() as session:
        assert isinstance(session.call("middle", {}), Ok)
        assert "depth: 2 is deeper than 1" in session.call("outer", {}).error.message
    assert recorded(lab, RESERVED, SETTLED, BALANCES) == []


# --- models -----------------------------------------------------------------------------------------------------------


def test_model_call_reserves_its_most_and_is_settled_by_what_it_used(lab):
    asking(lab, lambda asked, ctx: {"text": "hi", "usage": {"input_tokens": 7, "output_tokens": 3}}, max_tokens=50)
    lab.settings(policies=spending(limits={"tokens": 10_000}))
    with lab.session() as session:
        assert isinstance(session.call("ask", {"prompt": "x"}), Ok)
        sent = len(encode(dict(lab.payload("llm.request")["request"])))
    reserved = next(each for each in recorded(lab, RESERVED) if each.payload["ability"].startswith("model/"))
    (settled,) = recorded(lab, SETTLED)
    before, after = (each.payload["accounts"][0] for each in (reserved, settled))
    assert (before["amount"]["input_tokens"], before["amount"]["output_tokens"]) == (sent, 50)
    assert (after["amount"]["input_tokens"], after["amount"]["output_tokens"]) == (7, 3)
    assert settled.payload["span"] == reserved.payload["span"] == lab.one("llm.request").span
    assert (balance(lab)["input_tokens"], balance(lab)["output_tokens"]) == (7, 3)


def test_model_call_that_could_exceed_is_refused_before_it_is_made(lab):
    asked = []
    asking(lab, lambda request, ctx: asked.append(request) or "hi", count=2, max_tokens=1000)
    lab.settings(policies=spending(limits={"output_tokens": 1001}))
    with lab.session() as session:
        assert session.call("ask", {"prompt": "x"}).value is not None
    assert len(asked) == 2  # the first used one token of the thousand that it reserved
    lab.settings(policies=spending(limits={"output_tokens": 1001}))
    with lab.session() as session:
        session.call("ask", {"prompt": "x"})
        assert lab.types().count("llm.request") == 0
        assert {each.payload["code"] for each in lab.all("tool.denied")} == {"GATE_DENIED"}


@pytest.mark.parametrize(
    ("more", "sent", "refused"),
    [
        ({"limits": {"tokens": 10**6}}, {}, "the request has no max_tokens"),
        ({"limits": {"tokens": 10**6}, "assume": {"output_tokens": 9}}, {}, ""),
        ({"limits": {"cost_usd": 9}, "prices": {"model/other": {}}}, {"max_tokens": 9}, "the price of this call"),
        ({"limits": {"cost_usd": 9}, "prices": {"model/*": {}}}, {}, "the price of this call"),
        ({"limits": {"cost_usd": 9}, "prices": {"model/*": {}}}, {"max_tokens": 9}, ""),
    ],
)
def test_what_cannot_be_reserved_is_refused(lab, more, sent, refused):
    asking(lab, lambda request, ctx: "hi", **sent)
    price = {"input_per_million": 3, "output_per_million": 15}
    prices = {"prices": dict.fromkeys(more["prices"], price)} if "prices" in more else {}
    lab.settings(policies=spending(**{**more, **prices}))
    with lab.session() as session:
        session.call("ask", {"prompt": "x"})
    assert lab.types().count("llm.request") == (not refused)
    if refused:
        assert refused in lab.payload("tool.denied")["reason"]


@pytest.mark.parametrize(
    ("usage", "cost"), [({"input_tokens": 100, "output_tokens": 10}, 450_000), ({"cost_usd": 0.25}, 250_000_000)]
)
def test_cost_is_what_the_provider_says_else_the_price(lab, usage, cost):
    told = {"input_tokens": 1, "output_tokens": 1, **usage}
    asking(lab, lambda request, ctx: {"text": "hi", "usage": told}, max_tokens=50)
    price = {"input_per_million": 3, "output_per_million": 15}
    lab.settings(policies=spending(limits={"cost_usd": 9}, prices={"model/*": price}))
    with lab.session() as session:
        session.call("ask", {"prompt": "x"})
    assert balance(lab)["nano_usd"] == cost


@pytest.mark.parametrize(("written", "asked"), [(15, True), (None, False)])
def test_price_states_when_and_where_it_was_read_and_what_is_not_known(lab, written, asked):
    """A budget cannot be kept with a price that is not known, so the call is denied."""
    asking(lab, lambda request, ctx: "hi", max_tokens=50)
    read = {"date": "2026-11-20", "source": "https://example.com/pricing"}
    price = {**read, "input_per_million": 3, "cached_input_per_million": 0.3, "output_per_million": written}
    lab.settings(policies=spending(limits={"cost_usd": 9}, prices={"model/*": price}))
    with lab.session() as session:
        session.call("ask", {"prompt": "x"})
        stated = session.bindings.charter.document["policies"]["spending"]["settings"]["prices"]["model/*"]
    assert {name: stated[name] for name in read} == read
    assert lab.types().count("llm.request") == asked
    if not asked:
        assert "prices names no price of its model, or null" in lab.payload("tool.denied")["reason"]


def test_date_of_a_price_that_is_no_date_is_refused(lab):
    price = {"date": "2026-13-01", "input_per_million": 3, "output_per_million": 15}
    lab.settings(policies=spending(limits={"cost_usd": 9}, prices={"model/*": price}))
    with pytest.raises(BindingError, match="date"):
        lab.session()


def test_failed_model_call_has_used_what_it_reserved(lab):
    def fail(asked, ctx):
        raise Failed("PROVIDER_ERROR", "no answer")

    asking(lab, fail, max_tokens=50)
    lab.settings(policies=spending(limits={"tokens": 10_000}))
    with lab.session() as session:
        session.call("ask", {"prompt": "x"})
    assert balance(lab)["output_tokens"] == 50


@pytest.mark.parametrize("way", ["raised", "reported", "open at the end of the session"])
def test_call_with_an_unknown_outcome_has_used_what_it_reserved(lab, way):
    """Nobody knows that the effect did not happen, so the budget does not get its part back."""

    def pay(args, ctx):
        raise Failed("NO_ANSWER", "the bank does not answer", lost=True)

    lab.tool("pay", pay, effects="write")
    lab.settings(policies=spending(limits={"calls": 1, "seconds": 60}, assume={"seconds": 30}))
    with lab.session() as session:
        if way == "raised":
            assert session.call("pay", {}).details == {"outcome": "unknown"}
        else:
            ticket = session.before("pay", {}).value
            if way == "reported":
                session.after(ticket, Outcome("unknown", error=fault("OUTCOME_UNKNOWN", "the bank does not answer")))
    assert lab.payload("tool.error")["outcome"] == "unknown"
    assert (balance(lab)["calls"], balance(lab)["ms"]) == ({"**": 1}, 30_000)
    with lab.session() as session:
        assert session.call("pay", {}).error.code == "GATE_DENIED"


# --- parallel ---------------------------------------------------------------------------------------------------------


@settings(max_examples=settings.default.max_examples // 5, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_parallel_sessions_never_make_more_calls_than_the_limit(make_lab, data):
    most, sessions, calls = data.draw(st.tuples(st.integers(0, 6), st.integers(1, 3), st.integers(1, 10)))
    lab = make_lab()
    lab.tool("a", lambda args, ctx: {})
    lab.settings(policies=spending(limits={"calls": most}))
    opened = [lab.session() for _ in range(sessions)]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda at: opened[at % sessions].call("a", {}), range(calls)))
    for session in opened:
        session.end(ok=True, reason="done")
    assert sum(isinstance(result, Ok) for result in results) == min(most, calls)
    assert {each.error.code for each in results if isinstance(each, Err)} <= {"GATE_DENIED"}


def test_parallel_model_calls_never_reserve_more_than_the_limit(lab):
    begun, go_on = threading.Semaphore(0), threading.Event()

    def answer(asked, ctx):
        begun.release()
        assert go_on.wait(WAIT)
        return "hi"

    asking(lab, answer, max_tokens=100)
    lab.settings(policies=spending(limits={"output_tokens": 350}))
    sessions = [lab.session() for _ in range(6)]
    with ThreadPoolExecutor(6) as pool:
        running = [pool.submit(session.call, "ask", {"prompt": "x"}) for session in sessions]
        assert all(begun.acquire(timeout=WAIT) for _ in range(3))
        refused = [each for _, each in zip(range(3), as_completed(running, WAIT), strict=False)]
        assert [type(each.result()) for each in refused] == [Ok] * 3
        go_on.set()
        results = [each.result(WAIT) for each in running]
    for session in sessions:
        session.end(ok=True, reason="done")
    assert all(isinstance(each, Ok) for each in results)
    reasons = [each.payload["reason"] for session in sessions for each in lab.all("tool.denied", session)]
    assert len(reasons) == 3
    assert all("300 of 350 are used or reserved" in reason for reason in reasons)
    assert [lab.types(session).count("llm.request") for session in sessions].count(1) == 3
    assert balance(lab)["output_tokens"] == 3


def test_processes_never_make_more_calls_than_the_limit(lab):
    lab.tool("a", lambda args, ctx: {})
    lab.settings(policies=spending(limits={"calls": 7}))
    lab.kernel()  # compiled once
    children = [fork(lambda: call_often(lab, 4)) for _ in range(3)]
    allowed = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert sum(allowed) == 7
    assert balance(lab)["calls"] == {"**": 7}


def call_often(lab, times):
    with lab.session() as session:
        return sum(isinstance(session.call("a", {}), Ok) for _ in range(times))


def fork(run):
    """Call *run* in a process of its own, whose status is the result; return its id."""
    child = os.fork()
    if child:
        return child
    status = 99
    try:
        status = run()
    finally:
        os._exit(status)


def test_reservation_of_a_killed_process_counts_in_full(lab):
    asking(lab, lambda asked, ctx: os.kill(os.getpid(), signal.SIGKILL), max_tokens=60)
    lab.settings(policies=spending(limits={"output_tokens": 100}))
    lab.kernel()
    child = fork(lambda: bool(lab.session().call("ask", {"prompt": "x"})))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert balance(lab)["output_tokens"] == 60
    lab.model(lambda asked, ctx: "hi")
    with lab.session() as session:
        session.call("ask", {"prompt": "x"})
    assert "60 of 100 are used or reserved" in lab.payload("tool.denied")["reason"]
    lab.kernel().recover()
    assert balance(lab)["output_tokens"] == 60


# --- between the judgement and the reservation ------------------------------------------------------------------------


def test_call_is_judged_again_if_the_balance_changed_meanwhile(lab):
    others = []

    def spend(call):
        if call.ability == "a" and not others:  # in another session, while this call is judged
            others.append(lab.session())
            assert isinstance(others[0].call("b", {}), Ok)
        return allow()

    lab.tool("a", lambda args, ctx: {})
    lab.tool("b", lambda args, ctx: {})
    lab.hook("spend", "PreToolUse", spend)
    lab.settings(policies=spending(limits={"calls": 1}))
    with lab.session() as session:
        denied = session.call("a", {})
        assert denied.error.code == "GATE_DENIED"
        assert lab.types(session).count("tool.denied") == 1
        assert lab.types(session).count("tool.call") == 0
        (check,) = lab.all("policy.check", session)
    assert check.payload["decision"] == "deny"
    assert check.payload["facts"][USED]["accounts"]["all/workspace"]["calls"] == {"**": 1}
    others[0].end(ok=True, reason="done")


def test_what_is_only_observed_is_counted_and_not_refused(lab):
    lab.tool("a", lambda args, ctx: {})
    lab.settings(policies=spending(limits={"calls": 1}), enforcement="observe")
    with lab.session() as session:
        assert all(isinstance(session.call("a", {}), Ok) for _ in range(3))
    assert balance(lab)["calls"] == {"**": 3}


def test_reason_of_an_ask_does_not_change_with_the_balance():
    body = {**spending(limits={"calls": 2}, then="ask")["spending"]}
    reasons = {judge(body, used=used).reason for used in (2, 5)}
    assert reasons == {"calls of the account all/workspace: the limit leaves too little for this call"}


def judge(body, used):
    call = Call("a", "tool", {}, "none", frozenset(), Principal("ann", "t"), None, None, "enforce", "s",
                "2026-01-01T00:00:00.000Z", b"{}",
                {USED: {"depth": 0, "accounts": {"all/workspace": {"calls": {"**": used}}}}})  # fmt: skip
    return Budget(body, None)(call)


# --- without such a budget --------------------------------------------------------------------------------------------


def test_workspace_without_such_a_budget_has_no_part_of_the_feature(lab):
    lab.tool("a", lambda args, ctx: {})
    lab.settings(policies={"own": {"kind": "budget", "limits": {"calls": 3}}})
    with lab.session() as session:
        assert isinstance(session.call("a", {}), Ok)
        assert session.door._parts.before_intents == ()
    assert "feature/budgets" not in session.bindings.charter.document["plugins"]
    assert recorded(lab, RESERVED, SETTLED, BALANCES) == []


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"per": "actor"}, "per: actor needs a name for the account"),
        ({"account": "x"}, "account is for budgets over sessions"),
        ({"per": "workspace", "account": "x", "limits": {"cost_usd": 1}}, "needs prices"),
        ({"per": "workspace", "account": "x", "limits": {"seconds": 1}}, "needs assume.seconds"),
    ],
)
def test_contradicting_settings_are_refused_with_their_place(lab, body, pointer):
    lab.settings(policies={"own": {"kind": "budget", "limits": {"calls": 3}, **body}})
    with pytest.raises(BindingError) as caught:
        lab.kernel()
    assert any(pointer in each.message for each in caught.value.errors)
    assert all(str(each.place).startswith(".system/deedbook.yaml:") for each in caught.value.errors)


# --- the index --------------------------------------------------------------------------------------------------------


def test_process_reads_back_to_the_newest_event_with_all_balances(lab):
    lab.tool("a", lambda args, ctx: {})
    lab.settings(policies=spending(limits={"calls": MAX_BETWEEN * 2}))
    with lab.session() as session:
        for _ in range(MAX_BETWEEN + 3):
            assert isinstance(session.call("a", {}), Ok)
    assert len(recorded(lab, BALANCES)) == 2
    ledger = Reading(lab.kernel().ledger)
    assert Balances.load(ledger).get(ALL)["calls"] == {"**": MAX_BETWEEN + 3}
    assert 0 < ledger.lines < 50


class Reading:
    """A workspace ledger that counts the lines that are read back."""

    def __init__(self, ledger):
        self._ledger, self.lines = ledger, 0

    def __getattr__(self, name):
        return getattr(self._ledger, name)

    def backwards(self):
        for each in self._ledger.backwards():
            self.lines += 1
            yield each


def test_balance_that_cannot_be_read_denies(lab):
    lab.tool("a", lambda args, ctx: {})
    lab.settings(policies=spending(limits={"calls": 9}))
    ledger = lab.kernel().ledger
    lab.damaged = True
    row = {"name": "all", "per": "workspace", "who": "", "since": "", "amount": {}, "balance": {"calls": {"**": "x"}}}
    payload = {"session": "s", "span": "0", "ability": "a", "accounts": [row]}
    ledger.append([Entry(label(RESERVED, "runtime", None), ledger.span(), ledger.root, encode(payload))])
    with lab.session() as session:
        denied = session.call("a", {})
    assert denied.error.code == "LEDGER_UNSOUND"
    with pytest.raises(LedgerError):
        balance(lab)


AMOUNTS = st.fixed_dictionaries({
    "calls": st.dictionaries(st.sampled_from(["**", "a"]), st.integers(0, 9)),
    **{name: st.integers(0, 99) for name in NUMBERS},
})  # fmt: skip


@given(AMOUNTS, AMOUNTS)
def test_what_is_taken_back_leaves_what_was_before(one, other):
    back = add(add(one, other), other, -1)
    assert {name: count for name, count in back.pop("calls").items() if count} == {
        name: count for name, count in one["calls"].items() if count
    }
    assert back == {name: one[name] for name in NUMBERS}


@given(st.integers(0, 200), st.integers(1, 60), st.integers(1, 200))
def test_reserved_amounts_stay_within_the_limit(used, wanted, limit):
    terms = Terms.of({"per": "workspace", "account": "all", "limits": {"output_tokens": limit}})
    call = Call("model/x", "model", {"max_tokens": wanted}, "read", frozenset(), Principal("ann", "t"), None, None,
                "enforce", "s", "2026-01-01T00:00:00.000Z", b"{}", {})  # fmt: skip
    excess = terms.find_excess({"output_tokens": used}, terms.estimate(call))
    assert (excess is None) is (used + wanted <= limit)


# --- judged again -----------------------------------------------------------------------------------------------------


def test_recorded_decisions_follow_from_the_recorded_facts(lab):
    lab.tool("a", lambda args, ctx: {})
    lab.settings(policies=spending(limits={"calls": 1}))
    with lab.session() as session:
        session.call("a", {})
        session.call("a", {})
    found = [(each.change, each.verdict.outcome) for each in rejudge(lab.ledger(session), session.bindings)]
    assert found == [("same", "allow"), ("same", "deny")]


def test_call_beyond_the_limit_that_a_person_approves_runs_and_counts(lab):
    ran = []
    lab.tool("a", lambda args, ctx: ran.append(args) or {})
    approving(lab)
    lab.settings(policies=spending(limits={"calls": 1}, then="ask"))
    with lab.session() as session:
        assert isinstance(session.call("a", {}), Ok)
        assert session.call("a", {}).error.code == "NEEDS_HUMAN"
        asked = lab.payload("approval.requested")["approval"]
    assert balance(lab)["calls"] == {"**": 1}
    answer(lab.path, asked, approve=True, catalogue=lab.catalogue())
    with lab.kernel() as kernel:
        assert isinstance(perform_once(kernel, asked), Ok)
    assert len(ran) == 2
    assert balance(lab)["calls"] == {"**": 2}


# --- after the death of a process -------------------------------------------------------------------------------------


def left_open(lab, spoil):
    """Make a model call whose settlement is lost with its process; *spoil* is called in the process when it is due."""
    asking(lab, lambda asked, ctx: {"text": "hi", "usage": {"input_tokens": 2, "output_tokens": 3}}, max_tokens=60)
    lab.settings(policies=spending(limits={"output_tokens": 100}))
    lab.kernel()
    child = fork(spoil)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert balance(lab)["output_tokens"] == 60


def test_answered_call_of_a_dead_process_is_settled_by_its_record(lab, monkeypatch):
    def die(*_):
        os.kill(os.getpid(), signal.SIGKILL)

    def run():
        monkeypatch.setattr(Terms, "settle", die)
        return bool(lab.session().call("ask", {"prompt": "x"}))

    left_open(lab, run)
    for _ in range(2):
        lab.kernel().recover()
        assert (balance(lab)["input_tokens"], balance(lab)["output_tokens"]) == (2, 3)
    assert balance(lab)["calls"] == {"**": 2}


def test_reservation_of_a_call_that_never_began_is_given_back(lab, monkeypatch):
    def run():
        session, append = lab.session(), Ledger.append

        def die(self, entries, **more):
            if any(b"llm.request" in each.label.encode() for each in entries):
                os.kill(os.getpid(), signal.SIGKILL)
            return append(self, entries, **more)

        monkeypatch.setattr(Ledger, "append", die)
        return bool(session.call("ask", {"prompt": "x"}))

    left_open(lab, run)
    lab.kernel().recover()
    assert balance(lab)["output_tokens"] == 0
    assert balance(lab)["calls"] == {"**": 1}  # the flow had begun


def test_call_that_was_settled_late_is_not_settled_again_by_its_own_process(lab):
    answered, go_on = threading.Event(), threading.Event()
    settle = Terms.settle

    def late(self, *args):
        answered.set()
        assert go_on.wait(WAIT)
        return settle(self, *args)

    asking(lab, lambda asked, ctx: {"text": "hi", "usage": {"input_tokens": 2, "output_tokens": 3}}, max_tokens=60)
    lab.settings(policies=spending(limits={"output_tokens": 100}))
    with pytest.MonkeyPatch.context() as patch, lab.session() as session, ThreadPoolExecutor(1) as pool:
        patch.setattr(Terms, "settle", late)
        running = pool.submit(session.call, "ask", {"prompt": "x"})
        assert answered.wait(WAIT)
        Budgets().sessions_recovered(lab.kernel())
        assert balance(lab)["output_tokens"] == 3
        patch.undo()
        go_on.set()
        assert isinstance(running.result(WAIT), Ok)
    assert balance(lab)["output_tokens"] == 3
    assert [bool(each.payload.get("late")) for each in recorded(lab, SETTLED)] == [True]
