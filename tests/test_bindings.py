"""A charter, bound: who is asked where and in which order, what is constructed, how calls are written and checked."""

from hashlib import sha256

import attrs
import pytest
import workshop
from hypothesis import given, reject
from hypothesis import strategies as st

from deedbook.charter import judging, linker
from deedbook.contract import ALLOW, Call, Decision, Failed, GateSpec, HandlerSpec, Principal, hookimpl
from deedbook.format import canonical
from deedbook.format.errors import BindingError
from deedbook.policy.bound import EVERYTHING, Scope, event_names
from deedbook_author.policy_coverage import find_unguarded, find_unmatched

LOW = ".system/registry/low-level"
MODELS = (
    "profiles:\n  local:\n    models: {standard: {provider: chat, model: m-1}, large: {provider: chat, model: m-2}}\n"
)


@pytest.fixture
def shop(tmp_path):
    made = workshop.bench(tmp_path)
    yield made
    made.withdraw()


def ids(gates):
    return [gate.id for gate in gates]


def a_call(**more):
    given = {
        "ability": "echo", "kind": "tool", "args": {"text": "hi"}, "effects": "read", "tags": frozenset(),
        "principal": Principal("ada", "cli"), "role": None, "skill": None, "enforcement": "enforce", "session": "s",
        "now": "2026-01-02T03:04:05.006Z", "raw": b"{}", "facts": {},
    }  # fmt: skip
    return Call(**(given | more))


# --- where hooks and policies are asked -------------------------------------------------------------------------------


def test_a_hook_is_bound_only_where_its_match_can_hold(shop):
    shop.hook("reads", "match: {effects: [read]}\n")
    shop.hook("writes", "match: {effects: [write]}\n")
    shop.hook("tagged", "match: {tags: [a]}\n")
    shop.hook("flows", "match: {kind: [flow]}\n")
    shop.hook("texts", "match: {scopes: [text]}\n")
    shop.ability("echo", "routing_hints: {scopes: [text]}\n")
    shop.ability("loud", "effects: write\ntags: [a]\n")
    shop.ability("loop", handler="flow: loop")
    found = shop.freeze().abilities
    assert {name: set(ids(bound.guards)) for name, bound in found.items()} == {
        "echo": {"reads", "texts"}, "loud": {"writes", "tagged"}, "loop": {"flows"},
    }  # fmt: skip


def test_a_match_without_kind_leaves_models_alone_and_one_with_it_does_not(shop):
    shop.settings(MODELS)
    shop.hook("all", "match: {}\n")
    shop.hook("models", "match: {kind: [model], abilities: [model/large]}\n")
    found = shop.freeze().abilities
    assert (ids(found["model/standard"].guards), ids(found["model/large"].guards)) == ([], ["models"])


def test_the_part_of_a_match_that_depends_on_the_call_is_asked_at_the_call(shop):
    shop.hook("ada", "match: {principals: [ada]}\n")
    shop.hook("all", "match: {}\n")
    shop.ability("echo")
    ada, all_gate = shop.freeze().abilities["echo"].guards
    assert (ada.id, all_gate.id, all_gate.applies) == ("ada", "all", None)
    assert ada.applies(a_call())
    assert not ada.applies(a_call(principal=Principal("bob", "cli")))


def test_paths_are_looked_for_where_the_ability_says(shop):
    shop.hook("env", "match: {paths: ['**/.env']}\n")
    shop.ability("usual")
    shop.ability("other", "paths: [/to]\n")
    found = shop.freeze().abilities
    usual, other = found["usual"].guards[0].applies, found["other"].guards[0].applies
    assert (usual(a_call(args={"path": "a/.env"})), usual(a_call(args={"to": "a/.env"}))) == (True, False)
    assert (other(a_call(args={"path": "a/.env"})), other(a_call(args={"to": "a/.env"}))) == (False, True)


def test_a_match_guards_as_soon_as_one_path_fits(shop):
    """Asking needlessly can only make an answer stricter; so no match of a hook or a policy has to fit all paths."""
    shop.hook("src", "match: {paths: ['src/**']}\n")
    shop.policy("src", "rules: []\nmatch: {paths: ['src/**']}\n")
    shop.ability("echo")
    bound = shop.freeze().abilities["echo"]
    call = a_call(args={"paths": ["src/a", "elsewhere"]})
    assert bound.guards[0].applies(call)
    assert bound.policies[0].applies(call)


def test_a_hook_without_a_match_is_asked_only_where_it_is_named(shop):
    shop.hook("named", named=True)
    shop.ability("echo", "hooks: {pre_call: [named]}\n")
    shop.ability("other")
    found = shop.freeze().abilities
    assert (ids(found["echo"].guards), ids(found["other"].guards)) == (["named"], [])


def test_an_ability_that_names_a_hook_is_guarded_by_it_at_every_call(shop):
    shop.hook("ada", "match: {kind: [flow], principals: [ada]}\n")
    shop.ability("echo", "hooks: {pre_call: [ada]}\n")
    [gate] = shop.freeze().abilities["echo"].guards
    assert gate.applies is None


def test_a_policy_without_a_match_fits_all_tools_and_flows_if_it_is_inline_and_else_where_it_is_named(shop):
    shop.settings(MODELS + "policies: {everywhere: {kind: rules, rules: []}}\n")
    shop.policy("bound", "rules: []\n", named=True)
    shop.ability("echo", "policies: [bound]\n")
    shop.ability("loop", handler="flow: loop")
    found = shop.freeze().abilities
    assert {name: ids(bound.policies) for name, bound in found.items() if bound.kind != "model"} == {
        "echo": ["bound", "everywhere"], "loop": ["everywhere"],
    }  # fmt: skip
    assert ids(found["model/standard"].policies) == []


def test_hooks_are_asked_by_priority_then_by_id_whatever_their_files_are_called(shop):
    for name, priority in (("b", 5), ("c", 0), ("a", 5), ("d", -1), ("e", 100)):
        shop.hook(name, f"match: {{}}\npriority: {priority}\n")
    shop.ability("echo")
    assert ids(shop.freeze().abilities["echo"].guards) == ["e", "a", "b", "c", "d"]


def test_rewriters_stand_apart_and_only_they_may_transform(shop):
    shop.offer("hook", "pen", workshop.hook(rewrites=True))
    shop.hook("write", "match: {}\n", plugin="pen")
    shop.hook("look", "match: {}\n")
    shop.ability("echo")
    bound = shop.freeze().abilities["echo"]
    assert (ids(bound.rewriters), ids(bound.guards)) == (["write"], ["look"])
    assert bound.rewriters[0].may - bound.guards[0].may == {"transform"}


def test_observers_give_what_the_caller_sees(shop):
    class Cut(workshop.Guard):
        @hookimpl
        def post_tool_use(self, call, result):
            return {"text": result["text"][:1]}

    shop.offer("hook", "cut", Cut)
    shop.hook("cut", "match: {}\n", event="PostToolUse", plugin="cut")
    shop.ability("echo")
    bound = shop.freeze().abilities["echo"]
    assert (ids(bound.observers), ids(bound.guards)) == (["cut"], [])
    assert bound.observers[0].ask(a_call(), {"text": "abc"}) == Decision("transform", args={"result": {"text": "a"}})


def test_hooks_of_a_session_are_bound_by_event_and_those_that_only_watch_allow(shop):
    shop.hook("late", "priority: 1\n", event="SessionStop")
    shop.hook("first", "priority: 2\n", event="SessionStop")
    found = shop.freeze().hooks
    assert ids(found["SessionStop"]) == ["first", "late"]
    assert found["SessionStop"][0].ask("s", True, "now", {}) is ALLOW
    assert found["Stop"] == ()
    assert "PreToolUse" not in found


def test_facts_are_read_where_some_gate_asks_for_them(shop):
    shop.offer("hook", "counts", workshop.hook(reads=frozenset({"session.calls"})))
    shop.offer("hook", "ends", workshop.hook(reads=frozenset({"session.usage"})))
    shop.hook("counts", "match: {abilities: [echo]}\n", plugin="counts")
    shop.hook("ends", event="SessionStop", plugin="ends")
    shop.ability("echo")
    shop.ability("other")
    found = shop.freeze()
    assert (found.abilities["echo"].reads, found.abilities["other"].reads) == ({"session.calls"}, frozenset())
    assert found.reads == {"session.calls", "session.usage"}


def test_a_gates_limit_rules_and_place_come_from_its_file(shop):
    shop.hook("look", "match: {}\ntimeout_ms: 20\n")
    shop.policy("base", "match: {}\nrules:\n  - {match: {}, then: ask}\n")
    shop.ability("echo")
    bound = shop.freeze().abilities["echo"]
    assert (bound.guards[0].limit, bound.guards[0].place) == (0.02, ".system/hooks/look.yaml:1")
    assert (bound.policies[0].limit, bound.policies[0].rules) == (1.0, (".system/policies/base.yaml:6",))
    assert bound.policies[0].ask(a_call()).outcome == "ask"


def gate_of(shop):
    return shop.freeze().abilities["echo"].guards[0].digest


def test_a_gates_digest_is_of_what_it_is_told_and_of_its_code(shop):
    shop.ability("echo")
    shop.hook("look", "match: {}\n")
    digests = [gate_of(shop)]
    shop.hook("look", "# one line down\npriority: 3\nmatch: {}\n")
    assert gate_of(shop) == digests[0]
    shop.hook("look", "match: {kind: [tool]}\n")
    digests.append(gate_of(shop))
    shop.hook("look", "match: {}\nwith: {a: 1}\n")
    digests.append(gate_of(shop))
    shop.distributions["offered"].code.write_text("# other\n")
    digests.append(gate_of(shop))
    assert len(set(digests)) == 4


def test_lock_is_told_what_no_policy_guards_and_what_nobody_asks(shop):
    shop.settings(MODELS)
    shop.policy("reads", "match: {effects: [read]}\nrules: []\n")
    shop.policy("typo", "match: {abilities: [ehco]}\nrules: []\n")
    shop.policy("some", "match: {effects: [write], args: {/text: x}}\nrules: []\n")
    shop.hook("named", event="PostToolUse", named=True)
    shop.hook("never", "match: {tags: x}\n")
    shop.hook("ends", event="SessionStop")
    shop.ability("echo", "hooks: {post_call: [named]}\n")
    shop.ability("loud", "effects: write\n")
    document = shop.compile().document
    assert [(each.name, each.some, each.outcome) for each in find_unguarded(document)] == [("loud", True, None)]
    assert find_unmatched(document) == ["hook never", "policy typo"]


# --- what is constructed ----------------------------------------------------------------------------------------------


def test_every_ability_has_a_handler_of_its_own_with_its_settings(shop):
    shop.ability("one", "with: {a: 1}\n")
    shop.ability("two", "with: {a: 2}\ntimeout_ms: 1500\neffects: irreversible\nbig_integers: string\ntags: [x]\n")
    found = shop.freeze().abilities
    one, two = found["one"], found["two"]
    assert (one.handler.settings, two.handler.settings) == ({"a": 1}, {"a": 2})
    assert (one.timeout, one.durable, one.big_integers, one.effects) == (float("inf"), False, False, "read")
    assert (two.timeout, two.durable, two.big_integers, two.tags) == (1.5, True, True, {"x"})


def test_a_handler_that_changes_its_settings_changes_no_charter(shop):
    class Greedy(workshop.Echo):
        def __init__(self, settings, host):
            settings["more"] = True

    shop.offer("tool", "echo", Greedy)
    shop.ability("echo")
    charter = shop.compile()
    shop.freeze(charter)
    assert charter.document["abilities"]["echo"]["settings"] == {}


def failing(problem):
    def construct(self, settings, host):
        raise problem

    return construct


BROKEN = {
    "raises": (ValueError("no port"), "PLUGIN_BROKEN", "cannot be constructed: ValueError: no port"),
    "fails": (Failed("BINDING_INVALID", "no such port"), "BINDING_INVALID", "of offered 1.0: no such port"),
    "exits": (SystemExit(0), "PLUGIN_BROKEN", "cannot be constructed: SystemExit: 0"),
    "refuses": (
        BindingError(linker.fault("BINDING_INVALID", "two and two")), "BINDING_INVALID", "of offered 1.0: two and two",
    ),
}  # fmt: skip


@pytest.mark.parametrize("how", BROKEN)
@pytest.mark.parametrize("kind", ["tool", "hook", "policy"])
def test_a_constructor_that_fails_is_a_fault_where_it_is_named(shop, how, kind):
    problem, code, why = BROKEN[how]
    base = {"tool": workshop.Echo, "hook": workshop.Guard, "policy": workshop.Judge}[kind]
    shop.offer(kind, "bad", type("Bad", (base,), {"__init__": failing(problem)}))
    {
        "tool": lambda: shop.ability("a", handler="tool: bad"),
        "hook": lambda: shop.hook("a", plugin="bad"),
        "policy": lambda: shop.policy("a", "", kind="bad"),
    }[kind]()
    [(found, place, message)] = shop.faults(shop.freeze)
    assert (found, place.endswith("/a.yaml:1"), why in message) == (code, True, True)


def test_a_person_may_interrupt_a_constructor(shop):
    shop.offer("tool", "bad", type("Bad", (workshop.Echo,), {"__init__": failing(KeyboardInterrupt())}))
    shop.ability("a", handler="tool: bad")
    with pytest.raises(KeyboardInterrupt):
        shop.freeze()


def test_all_that_cannot_be_bound_is_said_together(shop):
    shop.offer("tool", "bad", type("Bad", (workshop.Echo,), {"__init__": failing(ValueError("x"))}))
    shop.offer("hook", "bad", type("Bad", (workshop.Guard,), {"__init__": failing(ValueError("y"))}))
    for name in ("a", "b"):
        shop.ability(name, handler="tool: bad")
    shop.hook("c", plugin="bad")
    assert [place for _, place, _ in shop.faults(shop.freeze)] == [
        ".system/hooks/c.yaml:1", f"{LOW}/a.yaml:1", f"{LOW}/b.yaml:1",
    ]  # fmt: skip


class Keyed(workshop.Echo):
    """A tool that needs a secret."""

    def __init__(self, settings, host):
        self.key = host.secret(settings["key"])


def test_a_secret_is_given_and_one_that_is_missing_or_not_declared_is_a_fault(shop):
    shop.offer("tool", "keyed", Keyed)
    shop.settings("secrets: {gh: {env: GH}, empty: {env: NONE}}\n")
    for name, key in (("good", "gh"), ("unset", "empty"), ("unknown", "hg")):
        shop.ability(name, f"with: {{key: {key}}}\n", handler="tool: keyed")
    attempt = {"gh": "s3cret", "empty": None}
    found = shop.faults(lambda: shop.freeze(secrets=attempt))
    assert [(code, place) for code, place, _ in found] == [
        ("SECRET_MISSING", f"{LOW}/unknown.yaml:1"), ("SECRET_MISSING", f"{LOW}/unset.yaml:1"),
    ]  # fmt: skip
    assert "s3cret" not in str(found)
    shop.ability("unset", "with: {key: gh}\n", handler="tool: keyed")
    shop.ability("unknown", "with: {key: gh}\n", handler="tool: keyed")
    assert shop.freeze(secrets=attempt).abilities["good"].handler.key.reveal() == "s3cret"


def test_a_plugin_that_disturbs_the_hashing_while_it_is_constructed_is_refused(shop, monkeypatch):
    def construct(self, settings, host):
        monkeypatch.setattr(canonical, "_sha256", lambda raw: sha256(raw + b"!"))

    shop.offer("tool", "evil", type("Evil", (workshop.Echo,), {"__init__": construct}))
    shop.ability("a", handler="tool: evil")
    charter = shop.compile()
    [(code, _, message)] = shop.faults(lambda: shop.freeze(charter))
    assert (code, "replaced the kernel's hash functions" in message) == ("PLUGIN_BROKEN", True)


def test_a_kept_charter_is_bound_without_its_sources(shop):
    shop.ability("echo")
    shop.hook("look", "match: {}\n")
    charter = shop.open().charter
    (shop.root / LOW / "echo.yaml").unlink()
    assert ids(shop.freeze(shop.store().load(charter.digest)).abilities["echo"].guards) == ["look"]


def test_a_plugin_that_is_gone_since_the_charter_was_compiled_is_refused(shop):
    shop.ability("echo")
    charter = shop.compile()
    shop.distributions["offered"].points = []
    assert [code for code, _, _ in shop.faults(lambda: shop.freeze(charter))] == ["PLUGIN_MISSING"]


def test_abilities_cannot_be_added(shop):
    with pytest.raises(TypeError):
        shop.freeze().abilities["new"] = None


def test_a_role_speaks_with_its_own_tier_or_the_standard_one_or_the_first(shop):
    shop.settings(MODELS + "    roles: {lead: large}\n")
    shop.write("agents/lead.md", "Lead.\n")
    found = shop.freeze()
    assert (found.tier("lead"), found.tier("worker")) == ("model/large", "model/standard")
    shop.write("deedbook.yaml", workshop.HEAD + MODELS.replace("standard:", "tiny:"))
    assert shop.freeze().tier("worker") == "model/large"


def test_a_model_is_bound_by_the_completion_contract_whatever_it_declares(shop):
    shop.offer("provider", "chat", type("P", (workshop.Chat,), {"spec": HandlerSpec(gives={})}))
    shop.settings(MODELS)
    bound = shop.freeze().abilities["model/large"]
    assert not bound.takes.valid({})
    assert not bound.gives.valid({})


# --- scopes and schemas -----------------------------------------------------------------------------------------------


def test_a_scope_names_abilities_and_models_apart(shop):
    shop.settings(MODELS)
    shop.ability("echo")
    found = shop.freeze().abilities
    tool, model = found["echo"], found["model/large"]
    assert EVERYTHING.allows(tool)
    assert EVERYTHING.allows(model)
    scope = Scope("this", frozenset({"echo", "model/large"}), frozenset())
    assert (scope.allows(tool), scope.allows(model)) == (True, False)
    assert Scope("that", frozenset(), None).allows(model)


def test_a_handler_may_use_what_it_declares_and_nothing_else(shop):
    shop.settings(MODELS)
    shop.ability("echo")
    shop.ability("other")
    shop.ability("caller", "uses: [echo, model/large]\n")
    found = shop.freeze().abilities
    assert {name for name, bound in found.items() if found["caller"].uses.allows(bound)} == {"echo", "model/large"}
    assert not any(found["echo"].uses.allows(bound) for bound in found.values())


def test_a_schema_in_yaml_narrows_and_never_widens(shop):
    shop.ability(
        "echo", "schema_in: {properties: {text: {maxLength: 2}, more: {type: string}}, required: [text, more]}\n"
    )
    takes = shop.freeze().abilities["echo"].takes
    assert takes.valid({"text": "ab", "more": ""})
    for wrong in ({"text": "abc", "more": ""}, {"text": "ab"}, {"more": ""}, {"text": 1, "more": ""}):
        assert not takes.valid(wrong)
        assert takes.violations(wrong)
    assert len(takes.violations({})) == 2  # the plugin misses one, the schema in YAML that one and another


SCHEMAS = st.fixed_dictionaries(
    {},
    optional={
        "required": st.lists(st.sampled_from("abc"), unique=True),
        "properties": st.dictionaries(
            st.sampled_from("abc"), st.sampled_from([{"type": "string"}, {"type": "integer"}, {"minimum": 3}])
        ),
        "maxProperties": st.integers(0, 3),
        "additionalProperties": st.booleans(),
    },
)
VALUES = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 5) | st.text(max_size=2), max_size=4)


@given(wide=SCHEMAS, narrow=SCHEMAS, results=SCHEMAS, values=st.lists(VALUES, max_size=6))
def test_narrowing_is_a_conjunction(tmp_path_factory, wide, narrow, results, values):
    shop = workshop.Workshop(tmp_path_factory.mktemp("narrow"))
    given_ = {"type": "object", **wide}
    shop.offer("tool", "t", workshop.tool(takes=given_, gives=given_))
    shop.ability("a", handler="tool: t")
    workspace = shop.workspace()
    ability = attrs.evolve(workspace.abilities["a"], schema_in=narrow, schema_out=results)
    narrowed = attrs.evolve(workspace, abilities={"a": ability})
    try:
        charter = workshop.compile_charter(narrowed, shop.catalogue(), kernel="1")
    except BindingError:  # it widens, which tests of its own are about
        shop.withdraw()
        reject()
    bound = shop.freeze(charter).abilities["a"]
    plain = {name: linker.foreign(schema, place="") for name, schema in (
        ("wide", given_), ("narrow", narrow), ("results", results))}  # fmt: skip
    for value in values:
        takes = plain["wide"].valid(value) and plain["narrow"].valid(value)
        gives = plain["wide"].valid(value) and plain["results"].valid(value)
        assert (bound.takes.valid(value), bound.gives.valid(value)) == (takes, gives)
        assert (not bound.takes.violations(value)) == takes
    shop.withdraw()


def test_models_are_shown_the_narrowed_schema_with_what_the_plugin_says_beside_it(shop):
    takes = {
        "type": "object", "description": "Says.", "required": ["text"], "$defs": {"a": {"type": "string"}},
        "properties": {"text": {"$ref": "#/$defs/a"}, "times": {"type": "integer"}},
    }  # fmt: skip
    shop.offer("tool", "t", workshop.tool(takes=takes))
    shop.ability("plain", handler="tool: t")
    shop.ability(
        "narrow", "schema_in: {required: [text, times], properties: {times: {maximum: 3}}}\n", handler="tool: t"
    )
    found = shop.freeze().abilities
    assert found["plain"].takes_document == takes
    assert found["narrow"].takes_document == {
        **takes, "required": ["text", "times"],
        "properties": {"text": {"$ref": "#/$defs/a"}, "times": {"maximum": 3}},
    }  # fmt: skip


# --- how calls are written --------------------------------------------------------------------------------------------

IDS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,20}", fullmatch=True)
ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(st.characters(codec="utf-8"), max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
SHAPES = {
    "tool": ("tool_name", "args", "result", ("tool.call", "tool.result", "tool.error")),
    "flow": ("flow", "args", "result", ("flow.call", "flow.result", "flow.error")),
    "model": ("ability", "request", "response", ("llm.request", "llm.response", "llm.error")),
}


@given(kind=st.sampled_from(sorted(SHAPES)), name=IDS, value=ANY)
def test_the_templates_of_a_call_are_canonical_json(kind, name, value):
    key, said, gave, types = SHAPES[kind]
    made, raw = event_names(kind, name), canonical.encode(value)
    assert (made.intent, made.result, made.error, made.name) == (*types, key)
    assert made.intent_head + raw + made.intent_tail == canonical.encode({key: name, said: value})
    assert made.result_head + raw + made.result_tail == canonical.encode({key: name, gave: value})
    assert made.late_head + raw + made.result_tail == canonical.encode({key: name, gave: value, "late": True})


# --- how much work ----------------------------------------------------------------------------------------------------


def test_two_thousand_abilities_of_one_tool_share_schemas_gates_and_class(shop, monkeypatch):
    shop.ability("echo", "schema_in: {maxProperties: 3}\n")
    shop.hook("look", "match: {args: {/text: hi}}\n")
    shop.hook("all", "match: {}\n")
    workspace = shop.workspace()
    source = workspace.abilities["echo"]
    many = {f"a{index}": attrs.evolve(source, id=f"a{index}", settings={"n": index}) for index in range(2000)}
    charter = workshop.compile_charter(attrs.evolve(workspace, abilities=many), shop.catalogue(), kernel="1")
    compiled, loaded = [], []
    real, load = judging.foreign, linker.load
    monkeypatch.setattr(judging, "foreign", lambda schema, **at: compiled.append(schema) or real(schema, **at))
    monkeypatch.setattr(linker, "load", lambda offer, place: loaded.append(offer.name) or load(offer, place))
    found = shop.freeze(charter).abilities
    assert compiled == [workshop.TEXT, {"maxProperties": 3}]
    assert sorted(loaded) == ["echo", "guard"]
    assert len({id(bound.takes) for bound in found.values()}) == len({id(bound.gives) for bound in found.values()}) == 1
    assert len({id(gate) for bound in found.values() for gate in bound.guards}) == 2
    assert found["a7"].handler.settings == {"n": 7}


def test_gates_that_are_pure_and_those_that_are_not_are_told_apart(shop):
    shop.offer("hook", "asks", type("Asks", (workshop.Guard,), {"spec": GateSpec()}))
    shop.hook("look", "match: {}\n")
    shop.hook("asks", "match: {}\n", plugin="asks")
    shop.ability("echo")
    assert {gate.id: gate.pure for gate in shop.freeze().abilities["echo"].guards} == {"look": True, "asks": False}
