"""What a policy kind says of policies before any call (`PolicyChecks`), and what the kernel makes of it."""

import attrs
import pytest
import workshop
from cases import for_each

from deedbook.charter.policies import lint_policies
from deedbook.contract import GateSpec, PolicyProblem
from deedbook.format.errors import BindingError
from deedbook.plugins.policy_kinds import installed_kinds
from deedbook_author.policy_coverage import lint_own_policies, reachable_rules

P = ".system/policies/p.yaml"
BODY = "limit: 3\nrules:\n  - {then: allow, when: a and b}\n  - {then: deny}\n"


def kind(**methods):
    """Return a policy kind with some of the optional methods."""
    made = {name: staticmethod(method) for name, method in methods.items()}
    return type("Kind", (workshop.Judge,), {"spec": GateSpec(reads=frozenset({"session.calls"})), **made})


@pytest.fixture
def shop(tmp_path):
    made = workshop.bench(tmp_path)
    made.ability("echo", "schema_in: {type: object, properties: {n: {}}}\n")
    made.ability("other")
    yield made
    made.withdraw()


def use(shop, body=BODY + "match: {abilities: echo}\n", **methods):
    shop.offer("policy", "own", kind(**methods))
    shop.policy("p", body, kind="own")
    return shop


def noted(shop, **more):
    return lint_policies(shop.compile().document, installed_kinds(shop.catalogue()), shop.workspace().policies, **more)


# --- check ------------------------------------------------------------------------------------------------------------


def test_problem_refuses_the_workspace_at_its_place_in_the_yaml(shop):
    at_pointer = PolicyProblem(message="no such limit", pointer="/limit", code="NOT_AVAILABLE")
    in_text = PolicyProblem(message="and is no word", pointer="/rules/0/when", at=2)
    use(shop, check=lambda body, abilities: [at_pointer, in_text])
    assert shop.faults(shop.compile) == [
        ("NOT_AVAILABLE", f"{P}:4:1", "no such limit"),
        ("BINDING_INVALID", f"{P}:6:27", "and is no word"),
    ]


def test_kind_is_given_the_abilities_that_the_policy_is_asked_about(shop):
    seen = []
    use(shop, check=lambda body, abilities: seen.append((body, abilities)) or []).compile()
    ((body, (echo,)),) = seen
    assert body["limit"] == 3
    assert (echo.id, echo.kind, echo.effects) == ("echo", "tool", "read")
    assert {"type": "object", "properties": {"n": {}}} in echo.takes


def test_schema_counts_where_check_finds_nothing(shop):
    made = kind(check=lambda body, abilities: [])
    made.spec = GateSpec(settings={"type": "object", "required": ["most"]})
    shop.offer("policy", "own", made)
    shop.policy("p", "limit: 3\n", kind="own")
    ((code, _, message),) = shop.faults(shop.compile)
    assert (code, '"most" is missing' in message) == ("BINDING_INVALID", True)


def test_facts_of_a_policy_are_those_of_its_spec_and_of_its_body(shop):
    use(shop, reads=lambda body: {"session.usage"} if body["limit"] else ())
    assert shop.compile().document["policies"]["p"]["reads"] == ["session.calls", "session.usage"]


def test_fact_that_does_not_exist_is_refused(shop):
    use(shop, reads=lambda body: ["session.call"])
    ((_, _, message),) = shop.faults(shop.compile)
    assert "reads 'session.call', which is no fact; did you mean" in message


def fails(*_):
    raise KeyError("limit")


WRONG = (
    {"check": fails},
    {"reads": fails},
    {"check": lambda body, abilities: ["wrong"]},
    {"reads": lambda body: [1]},
)


@for_each("methods", WRONG)
def test_method_that_fails_refuses_the_workspace(shop, methods):
    use(shop, **methods)
    ((code, place, message),) = shop.faults(shop.compile)
    (name,) = methods
    assert (code, place) == ("PLUGIN_BROKEN", f"{P}:1")
    assert message.startswith(f"policy kind 'own': {name} ")


def test_method_that_takes_other_arguments_or_an_object_makes_no_kind(shop):
    use(shop, check=lambda body: [])
    ((code, _, message),) = shop.faults(shop.compile)
    assert (code, "`check(body)` should take (body, abilities)" in message) == ("PLUGIN_BROKEN", True)
    shop.offer("policy", "own", type("Kind", (kind(),), {"lint": lambda self, body, abilities: []}))
    ((code, _, message),) = shop.faults(shop.compile)
    assert (code, "`lint` must be a static or a class method" in message) == ("PLUGIN_BROKEN", True)


# --- lint and reachable -----------------------------------------------------------------------------------------------


def test_notes_name_policy_rule_and_places(shop):
    use(
        shop,
        lint=lambda body, abilities: [
            PolicyProblem(rule=1, other_rules=(0,), message="is never reached: rule 1 always decides"),
            PolicyProblem(pointer="/limit", message="limits nothing"),
        ],
    )
    assert [(note.place, str(note)) for note in noted(shop)] == [
        (f"{P}:7", f"rule 2 of policy p is never reached: rule 1 always decides ({P}:6)"),
        (f"{P}:4:1", "policy p limits nothing"),
    ]
    assert noted(shop, policy="another") == []


def test_notes_on_a_pack_are_not_doubtful(shop):
    use(shop, lint=lambda body, abilities: [PolicyProblem(message="is odd")])
    document, kinds, sources = shop.compile().document, installed_kinds(shop.catalogue()), shop.workspace().policies
    assert [str(each) for each in lint_own_policies(document, kinds, sources)] == ["policy p is odd"]
    packed = attrs.evolve(sources["p"], origin=attrs.evolve(sources["p"].origin, packed=True))
    assert lint_own_policies(document, kinds, {"p": packed}) == []


def test_lint_that_fails_is_an_error_of_the_plugin(shop):
    use(shop, lint=fails)
    with pytest.raises(BindingError, match="policy kind 'own': lint fails: KeyError"):
        noted(shop)


def test_kind_that_is_not_installed_any_more_has_nothing_to_say(shop):
    document = use(shop, lint=fails).compile().document
    shop.distributions.clear()
    kinds = installed_kinds(shop.catalogue())
    assert lint_policies(document, kinds) == []
    assert reachable_rules(document, kinds, "p") is None


def test_rules_that_can_decide_are_those_that_the_kind_names(shop):
    use(shop, reachable=lambda body, abilities: [0, None])
    assert reachable_rules(shop.compile().document, installed_kinds(shop.catalogue()), "p") == {0, None}
    shop.offer("policy", "own", kind())
    assert reachable_rules(shop.compile().document, installed_kinds(shop.catalogue()), "p") is None


def test_lint_of_a_workspace_whose_kind_is_not_installed_says_so(shop):
    shop.policy("p", "rules: []\n", kind="absent")
    ((code, place, message),) = shop.faults(shop.compile)
    assert (code, place) == ("PLUGIN_MISSING", f"{P}:1")
    assert "policy 'absent' is not installed" in message
