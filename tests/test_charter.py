"""The charter: what it says of everything in force, every fault at once and in its place, and its digest."""

import itertools
import random

import attrs
import pytest
import workshop
from hypothesis import given
from hypothesis import strategies as st

from deedbook.charter import linker
from deedbook.charter.compiler import compile_charter
from deedbook.charter.shape import wrong_shape
from deedbook.charter.store import parse_charter
from deedbook.contract import AbilityDeclaration, Failed, GateSpec, HandlerSpec, Skill
from deedbook.format import canonical
from deedbook.format.errors import BindingError, DeedbookError, IntakeError, SourceError
from deedbook.policy.charter import Charter
from deedbook.workspace.workspace import load_workspace

CONFIG = ".system/deedbook.yaml"
LOW = ".system/registry/low-level"
PROFILE = "profiles:\n  local:\n    models: {standard: {provider: chat, model: m-1}}\n"


@pytest.fixture
def shop(tmp_path):
    made = workshop.bench(tmp_path)
    yield made
    made.withdraw()


def skills(*found):
    """Return a skill loader that finds what it is given, whatever stands on the disk."""

    class Loader:
        spec = GateSpec()

        def __init__(self, settings, host):
            self.settings = settings

        def __call__(self):
            for each in found:
                if isinstance(each, BaseException) and not isinstance(each, Failed):
                    raise each
                yield each

    return Loader


def greet(**more):
    given = {"name": "greet", "description": "Greets.", "body": "Do.", "allowed": frozenset({"echo"})}
    return Skill(**(given | {"source": ".system/skills/greet/SKILL.md"} | more))


# --- what it says -----------------------------------------------------------------------------------------------------


def test_an_ability_has_what_yaml_says_and_what_its_plugin_declares(shop):
    shop.hook("look")
    shop.policy("base", "rules: []\n")
    more = (
        "effects: write\ntags: [b, a]\ntimeout_ms: 9\nhooks: {pre_call: [look]}\npolicies: [base]\npaths: [/to]\n"
        "routing_hints: {intents: [hello], scopes: [text]}\nbig_integers: string\nwith: {loud: 1}\n"
    )
    shop.ability("echo", more)
    document = shop.compile().document
    entry = document["abilities"]["echo"]
    assert (entry["kind"], entry["plugin"], entry["effects"], entry["interruptible"]) == (
        "tool", ["tool", "echo"], "write", False,
    )  # fmt: skip
    assert (entry["tags"], entry["timeout_ms"], entry["hooks"]) == (["a", "b"], 9, {"pre_call": ["look"]})
    assert (entry["policies"], entry["paths"], entry["big_integers"]) == (["base"], ["/to"], True)
    assert (entry["intents"], entry["scopes"], entry["settings"]) == (["hello"], ["text"], {"loud": 1})
    assert (entry["schema_in"], entry["place"]) == (None, f"{LOW}/echo.yaml:1")
    assert document["schemas"][entry["takes"]] == document["schemas"][entry["gives"]] == workshop.TEXT


def test_an_ability_that_says_little_has_its_plugins_effects_and_the_usual_paths(shop):
    shop.ability("echo")
    entry = shop.compile().document["abilities"]["echo"]
    assert (entry["effects"], entry["paths"], entry["timeout_ms"]) == ("read", ["/path", "/file_path", "/paths"], None)


def test_each_tier_of_the_profile_is_a_model_ability(shop):
    shop.settings(PROFILE.replace("m-1}", "m-1, with: {heat: 0}, timeout_ms: 5}"))
    document = shop.compile().document
    entry = document["abilities"]["model/standard"]
    assert (entry["kind"], entry["settings"], entry["timeout_ms"]) == ("model", {"heat": 0}, 5)
    assert (entry["summary"], document["models"]) == ("m-1 by chat", {"standard": "m-1"})


def test_only_the_profile_in_force_is_compiled(shop):
    shop.settings("profiles: {local: {}, other: {flow: nowhere, models: {big: {provider: absent}}}}\n")
    assert shop.compile().document["abilities"] == {}


def test_hooks_and_policies_say_when_they_are_asked_and_how_they_judge(shop):
    shop.offer("hook", "guard", workshop.hook(reads=frozenset({"session.calls"}), pure=True, rewrites=True))
    shop.hook("look", "match: {kind: [tool]}\npriority: 7\nwith: {a: 1}\n")
    shop.policy("base", "rules:\n  - {match: {}, then: ask}\n  - {match: {tags: x}, then: deny}\n")
    shop.settings("policies: {own: {kind: rules, rules: []}}\n")
    document = shop.compile().document
    look = document["hooks"]["look"]
    assert (look["event"], look["priority"], look["timeout_ms"], look["match"]) == (
        "PreToolUse", 7, 1000, {"kind": ["tool"]},
    )  # fmt: skip
    assert (look["reads"], look["pure"], look["rewrites"], look["settings"]) == (
        ["session.calls"],
        True,
        True,
        {"a": 1},
    )
    base, own = document["policies"]["base"], document["policies"]["own"]
    assert base["rules"] == [".system/policies/base.yaml:5", ".system/policies/base.yaml:6"]
    assert (base["inline"], own["inline"], base["pure"]) == (False, True, True)


KEY = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"


def test_settings_roles_principals_and_plugins_are_in_it(shop):
    shop.write("agents/lead.md", "Lead.\n")
    shop.write("ada.pub", f"{KEY}\n")
    shop.settings(
        "enforcement: observe\nlock: required\nprincipals: {ada: {roles: [b, a], key: ada.pub}}\n"
        "secrets: {gh: {env: TOKEN}}\nseal: [user.message/text]\nfiles: {roots: [src]}\n"
    )
    shop.ability("echo")
    document = shop.compile().document
    assert (document["enforcement"], document["lock"], document["kernel"]) == ("observe", "required", workshop.KERNEL)
    assert document["principals"]["ada"] == {"roles": ["a", "b"], "via": None, "key": KEY, "on_behalf_of": None}
    assert (document["secrets"], document["seal"], document["file_roots"]) == (
        {"gh": "TOKEN"}, ["user.message/text"], ["src"],
    )  # fmt: skip
    assert document["instructions"] == {"lead": "Lead.\n"}
    plugin = document["plugins"]["tool/echo"]
    assert (plugin["distribution"], plugin["version"], len(plugin["digest"])) == ("offered", "1.0", 64)
    assert set(document["sources"]) == {CONFIG, f"{LOW}/echo.yaml", ".system/agents/lead.md", ".system/ada.pub"}


def test_a_plugin_that_nothing_names_is_not_imported(shop):
    shop.ability("echo")
    shop.offer("tool", "broken", 5)
    assert "tool/broken" not in shop.compile().document["plugins"]


def test_uses_are_the_abilities_that_its_globs_fit_and_models_only_by_their_own_name(shop):
    shop.settings(PROFILE)
    for name in ("files/read", "files/old/read", "echo"):
        shop.ability(name)
    shop.ability("gpt", handler="provider: chat")
    shop.ability("caller", "uses: ['files/*', '**/read', model/standard]\n")
    shop.ability("wide", "uses: ['**']\n")
    shop.ability("talker", "uses: ['model/*', gpt]\n")
    abilities = shop.compile().document["abilities"]
    assert abilities["caller"]["uses"] == ["files/old/read", "files/read", "model/standard"]
    assert abilities["wide"]["uses"] == ["caller", "echo", "files/old/read", "files/read", "talker", "wide"]
    assert abilities["talker"]["uses"] == ["gpt", "model/standard"]


# --- what is refused --------------------------------------------------------------------------------------------------


def an_ability(more, **about):
    return lambda shop: shop.ability("a", more, **about)


def a_hook(more, **about):
    return lambda shop: shop.hook("h", more, **about)


def a_tool(**spec):
    def build(shop):
        shop.offer("tool", "t", workshop.tool(**spec))
        shop.ability("a", handler="tool: t")

    return build


def a_policy(more):
    return lambda shop: shop.policy("p", more)


def a_profile(text):
    def build(shop):
        shop.ability("loop", handler="flow: loop")
        shop.ability("echo")
        shop.write("agents/lead.md", "Lead.\n")
        shop.settings(f"profiles:\n  local: {text}\n")

    return build


STRICT = {"type": "object", "properties": {"times": {"type": "integer"}}, "additionalProperties": False}
A, H, P = f"{LOW}/a.yaml", ".system/hooks/h.yaml", ".system/policies/p.yaml"
REFUSED = {
    "a tool that is not installed": (
        an_ability("", handler="tool: ehco"), "PLUGIN_MISSING", f"{A}:1", 'did you mean "echo"?',
    ),
    "a hook that is not installed": (a_hook("", plugin="gaurd"), "PLUGIN_MISSING", f"{H}:1", 'did you mean "guard"?'),
    "a policy kind that is not installed": (
        lambda shop: shop.policy("p", "", kind="rulez"), "PLUGIN_MISSING", f"{P}:1", 'did you mean "rules"?',
    ),
    "a provider that is not installed": (
        a_profile("{models: {m: {provider: caht}}}"),
        "PLUGIN_MISSING", f"{CONFIG}: profiles.local.models.m", 'did you mean "chat"?',
    ),
    "effects that are lowered": (an_ability("effects: none\n"), "BINDING_INVALID", f"{A}:5:1", "never lowered"),
    "settings that the plugin refuses": (
        lambda shop: (shop.offer("tool", "t", workshop.tool(settings=STRICT)),
                      shop.ability("a", "with:\n  times: many\n", handler="tool: t")),
        "BINDING_INVALID", f"{A}:6:3", "$.times: expected integer, found string",
    ),
    "a setting that the plugin does not know": (
        lambda shop: (shop.offer("tool", "t", workshop.tool(settings=STRICT)),
                      shop.ability("a", "with:\n  tmies: 1\n", handler="tool: t")),
        "BINDING_INVALID", f"{A}:6:3", 'unknown key; did you mean "times"?',
    ),
    "a model's settings that the provider refuses": (
        lambda shop: (shop.offer("provider", "p", type("P", (workshop.Chat,), {"spec": HandlerSpec(settings=STRICT)})),
                      shop.settings("profiles: {local: {models: {m: {provider: p, with: {times: x}}}}}\n")),
        "BINDING_INVALID", f"{CONFIG}: profiles.local.models.m.with/times", "expected integer",
    ),
    "memory": (an_ability("kind: memory\n"), "BINDING_INVALID", f"{A}:5:1", "needs one of its own handlers"),
    "hooks.pre_create": (
        lambda shop: (shop.hook("h"), shop.ability("a", "hooks: {pre_create: [h]}\n")),
        "BINDING_INVALID", f"{A}:5:22", "asked at PreToolUse; hooks.pre_create needs one for PreAbilityCreate",
    ),
    **{
        f"the event {event}": (a_hook("", event=event), "PLUGIN_BROKEN", f"{H}:3:1", f"has 0 answers to {event}")
        for event in ("PreAbilityCreate", "PreCompact", "WorkflowStart", "PhaseAdvance", "WorkflowComplete")
    },
    "when": (
        a_policy("rules:\n  - match: {}\n    then: allow\n  - match: {}\n    when: call.x\n    then: deny\n"),
        "BINDING_INVALID", f"{P}:8:16", "call has no x",
    ),
    "a hook for an event that its plugin does not answer": (
        a_hook("", event="Stop"), "PLUGIN_BROKEN", f"{H}:3:1", "it answers PreToolUse, PostToolUse, SessionStop",
    ),
    "a hook bound to a moment that is not its own": (
        lambda shop: (shop.hook("h", event="PostToolUse"), shop.ability("a", "hooks:\n  pre_call:\n    - h\n")),
        "BINDING_INVALID", f"{A}:7:7", "asked at PostToolUse; hooks.pre_call needs one for PreToolUse",
    ),
    "a hook that is not declared": (
        lambda shop: (shop.hook("h"), shop.ability("a", "hooks: {post_call: [hh]}\n")),
        "BINDING_INVALID", f"{A}:5:21", "hook 'hh' is not declared",
    ),
    "a policy that is not declared": (
        lambda shop: (shop.policy("base", "rules: []\n"), shop.ability("a", "policies: [bsae]\n")),
        "BINDING_INVALID", f"{A}:5:12", 'policy \'bsae\' is not declared; did you mean "base"?; declared: base',
    ),
    "an ability to use that is not declared": (
        an_ability("uses: [b]\n"), "BINDING_INVALID", f"{A}:5:1", "ability 'b' is not declared",
    ),
    "a glob that fits nothing": (an_ability("uses: ['b/**']\n"), "BINDING_INVALID", f"{A}:5:1", "'b/**'"),
    "a glob that is too large": (
        an_ability(f"uses: ['{'**a*' * 9000}']\n"), "BINDING_INVALID", f"{A}:5:1", "the glob is too large",
    ),
    "a fact that does not exist": (
        lambda shop: (shop.offer("hook", "f", workshop.hook(reads=frozenset({"session.cals"}))),
                      shop.hook("h", plugin="f")),
        "BINDING_INVALID", f"{H}:1", 'which is no fact; did you mean "session.calls"?',
    ),
    "facts at an event that has none": (
        lambda shop: (shop.offer("hook", "f", workshop.hook(reads=frozenset({"session.calls"}))),
                      shop.hook("h", event="PostToolUse", plugin="f")),
        "BINDING_INVALID", f"{H}:3:1", "hook 'f' reads session.calls; no facts are given at PostToolUse",
    ),
    "a match on an event without a call": (
        a_hook("match: {kind: [tool]}\n", event="SessionStop"), "BINDING_INVALID", f"{H}:5:1", "no call to match",
    ),
    "a match that nothing can meet": (
        a_hook("match: {paths: [/etc/*]}\n"), "BINDING_INVALID", f"{H}:1", "$.match.paths",
    ),
    "a policy's match that nothing can meet": (
        a_policy("rules: []\nmatch: {paths: [/etc/*]}\n"), "BINDING_INVALID", f"{P}:1", "$.match.paths",
    ),
    "a rule that nothing can meet": (
        a_policy("rules:\n  - {match: {}, then: ask}\n  - {match: {paths: [/etc/*]}, then: deny}\n"),
        "BINDING_INVALID", f"{P}:6:6", "$.rules[1].match.paths",
    ),
    "a policy's settings that its kind refuses": (
        lambda shop: (shop.offer("policy", "quota", workshop.judge(settings={"required": ["limit"]})),
                      shop.policy("p", "", kind="quota")),
        "BINDING_INVALID", f"{P}:1:1", '"limit" is missing',
    ),
    "a schema_in that the lint refuses": (
        an_ability("schema_in:\n  type: object\n  propertys: {}\n"),
        "SCHEMA_REFUSED", f"{A}:7:3", 'did you mean "properties"?',
    ),
    "a schema_out that the lint refuses": (
        an_ability("schema_out: {type: text}\n"), "SCHEMA_REFUSED", f"{A}:5:14", "$.type",
    ),
    "a plugin's schema that the lint refuses": (
        a_tool(takes={"type": "object", "minLenght": 1}),
        "SCHEMA_REFUSED", f"{A}:1: tool plugin 't' of offered 1.0: takes/minLenght", 'did you mean "minLength"?',
    ),
    "a plugin's schema that is no JSON": (
        a_tool(gives={"enum": (1, 2)}), "SCHEMA_REFUSED", f"{A}:1: tool plugin 't' of offered 1.0: gives", "tuple",
    ),
    "no output schema": (a_tool(gives={}), "BINDING_INVALID", f"{A}:1", "with schema_out, or write schema_out: true"),
    "an output schema that says nothing": (
        a_tool(gives={"title": "Anything", "$defs": {}}), "BINDING_INVALID", f"{A}:1", "says nothing about its results",
    ),
    "a flow that is not declared": (
        a_profile("{flow: lop, models: {m: {provider: chat}}}"),
        "BINDING_INVALID", f"{CONFIG}: profiles.local.flow", 'did you mean "loop"?; declared: loop',
    ),
    "a tool as the flow": (
        a_profile("{flow: echo, models: {m: {provider: chat}}}"),
        "BINDING_INVALID", f"{CONFIG}: profiles.local.flow", "'echo' is no flow",
    ),
    "a profile without models for its roles": (
        a_profile("{flow: loop}"), "BINDING_INVALID", f"{CONFIG}: profiles.local", "no models for the roles lead",
    ),
    "a tier for a role that has no instructions": (
        a_profile("{models: {m: {provider: chat}}, roles: {laed: m}}"),
        "BINDING_INVALID", f"{CONFIG}: profiles.local.roles.laed", 'did you mean "lead"?',
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_does_not_fit_is_refused_with_its_place_and_the_remedy(shop, what):
    build, code, place, why = REFUSED[what]
    build(shop)
    [(found_code, found_place, message)] = shop.faults()
    assert (found_code, found_place) == (code, place)
    assert why in message


def test_all_faults_of_all_files_are_reported_together(shop):
    shop.ability("a", "effects: none\nkind: memory\nuses: [zzz]\npolicies: [zzz]\nhooks: {pre_create: [x]}\n")
    shop.ability("b", handler="tool: zzz")
    shop.hook("c", "isolation: worker\nmatch: {paths: [/x]}\n", event="PreCompact")
    shop.policy("d", "rules: []\n", kind="zzz")
    places = [place.split(":")[0] for _, place, _ in shop.faults()]
    assert places.count(f"{LOW}/a.yaml") == 5
    assert places.count(".system/hooks/c.yaml") == 3
    assert {f"{LOW}/b.yaml", ".system/policies/d.yaml"} <= set(places)
    assert len(places) == 10


def test_a_missing_plugin_is_reported_wherever_it_is_named_and_a_broken_one_once(shop):
    shop.offer("tool", "broken", workshop.tool())
    shop.withdraw()
    for name in ("a", "b"):
        shop.ability(name, handler="tool: absent")
        shop.ability(f"{name}2", handler="tool: broken")
    codes = sorted((code, place) for code, place, _ in shop.faults())
    assert codes == [
        ("PLUGIN_BROKEN", f"{LOW}/a2.yaml:1"), ("PLUGIN_MISSING", f"{LOW}/a.yaml:1"),
        ("PLUGIN_MISSING", f"{LOW}/b.yaml:1"),
    ]  # fmt: skip


def test_a_refused_schema_that_many_abilities_share_is_reported_once(shop):
    shop.offer("tool", "t", workshop.tool(takes={"tpye": "object"}))
    for name in ("a", "b", "c"):
        shop.ability(name, handler="tool: t")
    assert [code for code, _, _ in shop.faults()] == ["SCHEMA_REFUSED"]


def test_a_plugin_that_nobody_admits_is_refused_before_it_is_imported(shop):
    shop.ability("echo")
    shop.withdraw()
    refused = linker.fault("CHARTER_CHANGED", "not today")
    [found] = shop.faults(lambda: shop.compile(admit=lambda *_: refused))
    assert found == ("CHARTER_CHANGED", f"{LOW}/echo.yaml:1", "not today")


@pytest.mark.parametrize(
    ("gives", "more"),
    [
        ({"type": "object"}, ""),
        ({}, "schema_out: {type: object}\n"),
        ({"description": "x"}, "schema_out: {required: [a]}\n"),
        ({}, "schema_out: true\n"),
        ({"type": "object"}, "schema_out: true\n"),
    ],
)
def test_an_ability_whose_results_are_described_by_plugin_or_yaml_is_fine(shop, gives, more):
    shop.offer("tool", "t", workshop.tool(gives=gives))
    shop.ability("a", more, handler="tool: t")
    assert shop.faults() == []


def test_schema_out_true_accepts_anything_where_the_plugin_says_nothing(shop):
    shop.offer("tool", "t", workshop.tool(gives={}))
    shop.ability("a", "schema_out: true\n", handler="tool: t")
    bound = shop.freeze().abilities["a"]
    assert all(bound.gives.valid(each) for each in (None, 7, "x", [], {}))


@pytest.mark.parametrize("said", ["false", "7", "text", "[]", "null"])
def test_schema_out_is_a_schema_or_true(shop, said):
    shop.ability("a", f"schema_out: {said}\n")
    with pytest.raises(SourceError, match="schema_out"):
        shop.workspace()


def test_a_provider_needs_no_output_schema_since_the_completion_contract_has_one(shop):
    shop.offer("provider", "p", type("P", (workshop.Chat,), {"spec": HandlerSpec(gives={})}))
    shop.settings("profiles: {local: {models: {m: {provider: p}}}}\n")
    assert shop.faults() == []


def test_a_flow_without_roles_needs_no_models(shop):
    shop.ability("loop", handler="flow: loop")
    shop.settings("profiles: {local: {flow: loop}}\n")
    assert shop.compile().document["flow"] == "loop"


def test_a_standalone_flow_is_no_flow_of_a_profile(shop):
    shop.offer("flow", "plain", type("F", (workshop.Flow,), {"spec": HandlerSpec(gives={}, effects="none")}))
    shop.ability("plain", "schema_out: true\n", handler="flow: plain")
    shop.settings("profiles: {local: {flow: plain}}\n")
    [(code, _, message)] = shop.faults()
    assert code == "BINDING_INVALID"
    assert message.startswith("'plain' is standalone")


def test_rounds_are_in_the_charter_only_if_the_profile_sets_them(shop):
    assert "max_rounds" not in shop.compile().document
    shop.settings("profiles: {local: {max_rounds: 0}}\n")
    document = dict(shop.compile().document)
    assert document["max_rounds"] == 0
    assert wrong_shape(document) == ""


@pytest.mark.parametrize("rounds", [-1, 21, 1.5, True, None, "3", [3]])
def test_rounds_of_another_shape_are_refused(shop, rounds):
    document = {**shop.compile().document, "max_rounds": rounds}
    assert wrong_shape(document) == "$.max_rounds: expected a whole number from 0 to 20"


# --- skills -----------------------------------------------------------------------------------------------------------


def with_skills(shop, *found):
    shop.offer("skill", "markdown", skills(*found))
    shop.skill("greet", "---\n")
    shop.ability("echo")


def test_a_skill_is_in_it_whole(shop):
    with_skills(shop, greet(triggers=("hi",), metadata={"a": [1]}))
    assert shop.compile().document["skills"]["greet"] == {
        "description": "Greets.", "body": "Do.", "allowed": ["echo"], "triggers": ["hi"], "metadata": {"a": [1]},
        "source": ".system/skills/greet/SKILL.md",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("found", "code", "why"),
    [
        (greet(allowed=frozenset({7})), "PLUGIN_BROKEN", "names of tools are texts"),
        (greet(source=".system/skills/other/SKILL.md"), "BINDING_INVALID", "not among the sources"),
        (greet(metadata={"a": {1, 2}}), "INTAKE_REFUSED", "set"),
        (Failed("SOURCE_INVALID", "SKILL.md:2: no name"), "SOURCE_INVALID", "SKILL.md:2: no name"),
        (Failed("SOURCE_INVALID", "x.txt: no name", source="x.txt"), "SOURCE_INVALID", "x.txt: no name"),
        (RuntimeError("boom"), "PLUGIN_BROKEN", "skill plugin 'markdown' of offered 1.0: RuntimeError: boom"),
        (SystemExit(3), "PLUGIN_BROKEN", "SystemExit"),
        ({"name": "greet"}, "PLUGIN_BROKEN", "no Skill"),
    ],
)
def test_a_skill_that_does_not_fit_is_refused(shop, found, code, why):
    with_skills(shop, found)
    [(found_code, _, message)] = shop.faults()
    assert (found_code, why in message) == (code, True)


def test_a_skill_that_is_there_twice_is_refused(shop):
    with_skills(shop, greet(), greet())
    assert [code for code, _, _ in shop.faults()] == ["SOURCE_INVALID"]


def test_without_folders_of_skills_no_loader_is_needed(shop):
    assert shop.compile().document["skills"] == {}


def test_a_folder_of_skills_without_a_loader_is_refused(shop):
    shop.skill("greet", "---\n")
    assert [(code, place) for code, place, _ in shop.faults()] == [("PLUGIN_MISSING", ".system/skills")]


def test_cards_of_the_real_loader_are_sources_and_count(shop):
    markdown = pytest.importorskip("deedbook_skill_markdown")
    shop.offer("skill", "markdown", markdown.Markdown)
    shop.ability("echo")
    card = "name: greet\ndescription: Greets.\nallowed-tools: [echo]\n"
    shop.write("skills/greet/.agent", card)
    before = shop.compile()
    assert ".system/skills/greet/.agent" in before.document["sources"]
    shop.write("skills/greet/.agent", card.replace("Greets", "Says hello"))
    after = shop.compile()
    assert after.document["skills"]["greet"]["description"] == "Says hello."
    assert after.digest != before.digest


# --- the digest -------------------------------------------------------------------------------------------------------


def furnish(shop, order=None):
    """Write a small workspace, its files in the given order."""
    files = [
        lambda: shop.ability("echo", "with: {b: 1, a: 2}\npolicies: [base]\n"),
        lambda: shop.ability("loop", handler="flow: loop"),
        lambda: shop.hook("look", "match: {kind: [tool]}\n"),
        lambda: shop.policy("base", "rules:\n  - {match: {effects: [read]}, then: allow}\ndefault: deny\n"),
        lambda: shop.write("agents/lead.md", "You lead; grüße.\n"),
    ]
    for write in files if order is None else [files[index] for index in order]:
        write()
    shop.settings(PROFILE + "    flow: loop\n")
    return shop


def test_the_order_in_which_files_were_written_and_where_changes_nothing(tmp_path):
    orders = [(0, 1, 2, 3, 4), (4, 3, 2, 1, 0), (2, 0, 4, 1, 3)]
    shops = [furnish(workshop.bench(tmp_path / str(index)), order) for index, order in enumerate(orders)]
    digests = set()
    for shop in shops:
        shop.distributions["offered"].points = points = shops[0].distributions["offered"].points
        points.reverse()
        digests.add(shop.compile().digest)
        shop.withdraw() if shop is not shops[0] else None
    shops[0].withdraw()
    assert len(digests) == 1


def shuffled(mapping, seed):
    items = list(mapping.items())
    random.Random(seed).shuffle(items)
    return dict(items)


def test_the_order_of_what_was_read_changes_nothing(shop):
    furnish(shop)
    workspace, catalogue = shop.workspace(), shop.catalogue()
    sections = ("abilities", "hooks", "policies", "roles", "profiles", "digests")
    made = [
        attrs.evolve(workspace, **{name: shuffled(getattr(workspace, name), seed) for name in sections})
        for seed in range(6)
    ]
    mixed = attrs.evolve(catalogue, offers=shuffled(catalogue.offers, 1))
    assert {compile_charter(each, mixed, kernel="1").digest for each in made} == {
        compile_charter(workspace, catalogue, kernel="1").digest
    }


@pytest.fixture(scope="module")
def furnished(tmp_path_factory):
    shop = furnish(workshop.bench(tmp_path_factory.mktemp("furnished")))
    yield shop, shop.compile()
    shop.withdraw()


@given(data=st.data())
def test_any_byte_of_any_source_changes_the_digest_or_is_refused(furnished, data):
    shop, before = furnished
    path = shop.root / data.draw(st.sampled_from(sorted(before.document["sources"])))
    whole = path.read_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    other = data.draw(st.integers(0, 255).filter(lambda byte: byte != whole[at]))
    path.write_bytes(whole[:at] + bytes([other]) + whole[at + 1 :])
    try:
        assert shop.compile().digest != before.digest
    except DeedbookError:
        pass
    finally:
        path.write_bytes(whole)


def test_a_comment_a_plugins_code_its_version_and_the_kernel_count(shop):
    shop.ability("echo")
    digests = [shop.compile().digest]
    shop.ability("echo", "# a comment\n")
    digests.append(shop.compile().digest)
    shop.distributions["offered"].code.write_text("# other code\n")
    digests.append(shop.compile().digest)
    shop.distributions["offered"].version_ = "1.1"
    digests.append(shop.compile().digest)
    digests.append(compile_charter(shop.workspace(), shop.catalogue(), kernel="9").digest)
    assert len(set(digests)) == 5


def test_an_editable_plugin_has_no_digest(tmp_path):
    shop = workshop.Workshop(tmp_path)
    shop.offer("tool", "echo", workshop.Echo, editable=True)
    shop.ability("echo")
    assert shop.compile().document["plugins"]["tool/echo"]["digest"] is None
    shop.withdraw()


NAMES = st.text(st.characters(codec="utf-8"), max_size=4)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-1e6, 1e6) | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(NAMES, JSON, max_size=5))
def test_its_bytes_are_the_canonical_ones(document):
    charter = Charter.of(document)
    assert charter.raw == canonical.encode(document)
    assert (dict(charter.document), charter.digest) == (
        canonical.decode(charter.raw), canonical.digest(charter.raw),
    )  # fmt: skip


def test_it_may_have_more_nodes_than_one_record():
    document = {"abilities": {f"a{index}": {"tags": ["x"] * 100} for index in range(1200)}}
    with pytest.raises(IntakeError):
        canonical.encode(document)
    assert Charter.of(document).document == document


def test_bytes_that_are_not_those_of_the_digest_are_refused():
    charter = Charter.of({"a": {}})
    with pytest.raises(BindingError, match="was changed"):
        parse_charter(charter.raw + b" ", charter.digest)


def test_it_cannot_be_changed(shop):
    charter = shop.compile()
    with pytest.raises(TypeError):
        charter.document["enforcement"] = "observe"


def test_sources_that_change_after_compiling_do_not_reach_it(shop):
    shop.ability("echo", "with: {a: [1]}\n")
    workspace = shop.workspace()
    charter = compile_charter(workspace, shop.catalogue(), kernel="1")
    workspace.abilities["echo"].settings["a"].append(2)
    assert charter.document["abilities"]["echo"]["settings"] == {"a": [1]}


# --- how much work ----------------------------------------------------------------------------------------------------


def test_schemas_of_a_plugin_are_compiled_and_kept_once_for_all_its_abilities(shop, monkeypatch):
    shop.ability("echo")
    source = shop.workspace().abilities["echo"]
    many = {f"a{index}": attrs.evolve(source, id=f"a{index}") for index in range(2000)}
    compiled = []
    monkeypatch.setattr(linker, "foreign", lambda schema, **at: compiled.append(schema))
    monkeypatch.setattr(linker.Linker, "check", lambda *_, **__: None)
    charter = compile_charter(attrs.evolve(shop.workspace(), abilities=many), shop.catalogue(), kernel="1")
    assert compiled == [workshop.TEXT]
    assert list(charter.document["schemas"].values()) == [workshop.TEXT]


def test_two_workspaces_know_nothing_of_each_other(tmp_path):
    shops = [workshop.bench(tmp_path / name) for name in ("one", "two")]
    for shop, effects in zip(shops, ("read", "write"), strict=True):
        shop.offer("tool", "echo", workshop.tool(effects=effects))
        shop.ability("echo")
    found = [shop.compile().document["abilities"]["echo"]["effects"] for shop in itertools.chain(shops, shops)]
    assert found == ["read", "write", "read", "write"]
    assert load_workspace(shops[0].root).digests == load_workspace(shops[1].root).digests
    for shop in shops:
        shop.withdraw()


# --- what plugins check themselves, and what YAML may not widen -------------------------------------------------------


def checking(check, **spec):
    return workshop.tool(**{"takes": workshop.TEXT, "gives": workshop.TEXT, "effects": "read", "check": check, **spec})


def test_plugin_says_what_is_wrong_with_an_ability_and_where(shop):
    shop.offer("tool", "picky", checking(lambda said: [("/with/size", f"{said.id} is too large"), ("", "and so on")]))
    shop.ability("a", "with: {size: 9}\n", handler="tool: picky")
    assert shop.faults() == [
        ("BINDING_INVALID", f"{A}:5:8", "tool 'picky': a is too large"),
        ("BINDING_INVALID", f"{A}:1:1", "tool 'picky': and so on"),
    ]


def test_plugin_is_shown_what_yaml_declares_and_nothing_else(shop):
    seen = []
    shop.offer("tool", "picky", checking(lambda said: seen.append(said) or ()))
    shop.ability("other", "effects: irreversible\n")
    text = "uses: [oth*]\nwith: {size: 9}\nschema_in: {maxProperties: 1}\ntags: [paid]\n"
    shop.ability("a", text, handler="tool: picky")
    shop.compile()
    (said,) = seen
    assert said == AbilityDeclaration(
        id="a", settings={"size": 9}, effects=None, schema_in={"maxProperties": 1}, schema_out=None,
        uses={"other": "irreversible"}, tags=frozenset({"paid"}),
    )  # fmt: skip


def test_plugin_whose_check_raises_is_broken_and_the_kernel_lives(shop):
    def check(said):
        raise SystemExit(3)

    shop.offer("tool", "picky", checking(check))
    shop.ability("a", handler="tool: picky")
    ((code, place, message),) = shop.faults()
    assert (code, place) == ("PLUGIN_BROKEN", f"{A}:1")
    assert "fails while it checks an ability: SystemExit: 3" in message


def test_plugin_is_not_asked_about_settings_that_do_not_fit(shop):
    def check(said):
        raise AssertionError(said)

    shop.offer("tool", "picky", checking(check, settings={"required": ["size"]}))
    shop.ability("a", handler="tool: picky")
    assert [code for code, *_ in shop.faults()] == ["BINDING_INVALID"]


def test_check_that_is_no_function_is_refused(shop):
    shop.offer("tool", "picky", checking("yes"))
    shop.ability("a", handler="tool: picky")
    ((code, _, message),) = shop.faults()
    assert code == "PLUGIN_BROKEN"
    assert "`spec.check` is str" in message


@pytest.mark.parametrize("side", ["schema_in", "schema_out"])
def test_schema_in_yaml_that_widens_the_plugins_is_refused_with_its_place(shop, side):
    shop.ability("a", f"{side}:\n  properties:\n    text: {{type: [string, integer]}}\n")
    ((code, place, message),) = shop.faults()
    assert (code, place) == ("BINDING_INVALID", f"{A}:7:12")
    assert message.startswith(f"{side}/properties/text/type allows more than tool plugin 'echo' of offered 1.0 does: ")
    assert "the plugin allows string; 0 would fit here" in message
