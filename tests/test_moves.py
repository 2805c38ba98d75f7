"""Plugins that moved to another distribution: charters and lock files that name the old one are still understood."""

import pytest
import workshop

from deedbook.charter.store import Store
from deedbook.format import canonical
from deedbook.format.errors import BindingError
from deedbook.format.files import Folder
from deedbook.plugins.moves import read_moves
from deedbook.plugins.plugins import discover
from deedbook.policy.charter import Charter
from deedbook_audit.charters import Charters
from deedbook_audit.recheck import recheck
from deedbook_policy_standard.rules import Rules

OLD, NEW = "deedbook", "deedbook-policy-standard"
RULES = [{"match": {"args": {"/n": 2}}, "then": "deny", "reason": "two"}]


def test_every_plugin_that_moved_is_offered_by_its_new_distribution_only():
    for key, move in read_moves().items():
        assert discover().find(*key.split("/", 1)).distribution == move.new != move.old


# --- judging recorded calls -------------------------------------------------------------------------------------------


@pytest.fixture
def judged(lab, kernel_schemas):
    """Give what judges a recorded session again under a charter whose entry of the kind ``rules`` is changed."""
    lab.tool("echo", lambda args, ctx: args)
    lab.settings(policies={"baseline": {"kind": "rules", "rules": RULES, "default": "allow"}})
    session = lab.session()
    for n in range(3):
        session.call("echo", {"n": n})
    session.end(ok=True, reason="done")

    def again(**changes):
        document = canonical.decode(session.bindings.charter.raw)
        document["plugins"]["policy/rules"] |= changes
        charter = Charter.of(document)
        with Folder.at(lab.path) as root, Folder.at(lab.state) as state:
            Store(state).keep(charter, root)
            charters = Charters(root, state, kernel_schemas, plugins=False)
            return recheck(lab.ledger(session), lambda _: charters(charter.digest))

    return again


@pytest.mark.parametrize("distribution", [OLD, NEW])
def test_decisions_are_derived_again_whichever_home_the_charter_names(judged, distribution):
    told = judged(distribution=distribution)
    assert (told.calls, told.same, told.failures, dict(told.recorded)) == (3, 3, (), {})


@pytest.mark.parametrize("changes", [{"distribution": "elsewhere"}, {"distribution": OLD, "version": "0.0.9"}])
def test_code_of_another_distribution_or_version_is_not_asked(judged, changes):
    told = judged(**changes)
    assert told.failures == ()
    assert sum(dict(told.recorded).values()) == 3


# --- the next start ---------------------------------------------------------------------------------------------------


@pytest.fixture
def shop(tmp_path):
    """Give a workspace whose rules are offered by the old distribution."""
    made = workshop.Workshop(tmp_path)
    made.offer("tool", "echo", workshop.Echo)
    made.offer("policy", "rules", Rules, distribution=OLD)
    made.ability("echo")
    made.policy("base", "rules:\n  - {match: {}, then: allow}\n")
    yield made
    made.withdraw()


def move(shop, to=NEW):
    del shop.distributions[OLD]
    shop.offer("policy", "rules", Rules, distribution=to)


def test_next_start_says_in_one_line_that_the_code_moved(shop):
    shop.open()
    move(shop)
    changes = shop.open().changes
    assert (changes.looser, changes.tighter) == ((), ())
    assert changes.other == (f"plugin policy/rules moved from {OLD} 1.0 to {NEW} 1.0",)


def test_code_from_anywhere_else_is_looser(shop):
    shop.open()
    move(shop, to="acme")
    assert shop.open().changes.looser == ("plugin policy/rules: acme 1.0, other code than deedbook 1.0",)


def test_lock_that_pins_the_old_distribution_refuses_and_says_that_the_code_moved(shop):
    shop.settings("lock: required\n")
    shop.lock()
    move(shop)
    with pytest.raises(BindingError) as refused:
        shop.open()
    (message,) = (error.message for error in refused.value.errors)
    assert message == (f"policy 'rules' moved from {OLD}: {NEW} 1.0 is not pinned; look at it, then run: deedbook lock")


# --- without it -------------------------------------------------------------------------------------------------------


def test_workspace_without_the_distribution_names_what_to_install(shop):
    del shop.distributions[OLD]
    (error,) = shop.faults(shop.compile)
    assert error[0] == "PLUGIN_MISSING"
    assert "It is in deedbook-policy-standard: pip install deedbook-policy-standard" in error[2]
