"""Allowing by default, denying what is on the list, and ending the loop."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deedbook.contract import ALLOW, Call, Principal
from deedbook_hook_standard import DenyTools


def denied(hook, asked):
    decision = hook.pre_tool_use(asked)
    assert decision.outcome in ("allow", "deny")
    assert bool(decision.reason) is (decision.outcome == "deny")
    return decision.outcome == "deny"


def test_allow_allows_everything_with_the_shared_decision(bind, call):
    assert bind("allow").pre_tool_use(call("rm")) is ALLOW


@pytest.mark.parametrize("ability", ["rm", "delete", "drop_table", "shell/rm", "a/b/delete", "RM", "db/Drop_Table"])
def test_deny_tools_denies_dangerous_names_where_none_are_set(bind, call, ability):
    assert denied(bind("deny-tools"), call(ability))


@pytest.mark.parametrize("ability", ["echo", "rmdir", "warm", "rm/list", "delete_all", "drop-table", "r"])
def test_deny_tools_leaves_other_names_alone(bind, call, ability):
    assert bind("deny-tools").pre_tool_use(call(ability)) is ALLOW


@pytest.mark.parametrize(
    ("name", "ability", "expected"),
    [
        ("git/push*", "git/push", True),
        ("git/push*", "git/push_force", True),
        ("git/push*", "a/git/push", False),
        ("git/*", "git/a/b", False),
        ("git/**", "git/a/b", True),
        ("drop*", "db/drop_index", True),
        ("drop*", "drop/list", False),
        ("*", "a/b", True),
        ("a.b", "axb", False),
        ("a?", "ab", False),
        ("[ab]", "a", False),
        ("(rm|echo)", "echo", False),
        ("DELETE", "delete", True),
        ("STRASSE", "straße", True),
    ],
)
def test_deny_tools_reads_names_as_globs(bind, call, name, ability, expected):
    assert denied(bind("deny-tools", names=["other", name]), call(ability)) is expected


def test_deny_tools_says_which_ability_and_why(bind, call):
    assert bind("deny-tools").pre_tool_use(call("shell/rm")).reason == "shell/rm is on the list of dangerous tools"


def test_deny_tools_with_names_no_longer_denies_the_usual_ones(bind, call):
    assert not denied(bind("deny-tools", names=["echo"]), call("rm"))


@given(
    st.lists(st.text("ab/*.", min_size=1, max_size=5), min_size=1, max_size=4), st.text("ab/.", min_size=1, max_size=6)
)
def test_deny_tools_denies_if_any_name_does_in_any_order(names, ability):
    asked = Call(
        ability, "tool", {}, "write", frozenset(), Principal("a", "b"), None, None, "enforce", "s", "", b"{}", {}
    )
    one = any(denied(DenyTools({"names": [name]}, None), asked) for name in names)
    assert denied(DenyTools({"names": names}, None), asked) is one
    assert denied(DenyTools({"names": names[::-1]}, None), asked) is one


@pytest.mark.parametrize(
    ("settings", "ok", "stops"),
    [
        ({}, True, True),
        ({}, False, True),
        ({"after": "any"}, False, True),
        ({"after": "success"}, True, True),
        ({"after": "success"}, False, False),
        ({"after": "failure"}, True, False),
        ({"after": "failure"}, False, True),
    ],
)
def test_stop_ends_the_loop_after_the_turns_that_are_set(bind, settings, ok, stops):
    decision = bind("stop", **settings).stop("s", ok, "2026-01-01T00:00:00.000Z", {})
    assert decision.outcome == ("deny" if stops else "allow")
    assert bool(decision.reason) is stops
