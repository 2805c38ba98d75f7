"""What conditions may see: misspelt fields and values that can never be are found, and nothing else is."""

from cases import for_each

from deedbook.contract.facts import FACTS
from deedbook_policy_standard.expressions import Language
from deedbook_policy_standard.vocabulary import flaws

ECHO = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "n": {"type": "integer"},
        "mode": {"type": "string", "enum": ["fast", "slow"]},
        "flag": {"type": "boolean"},
        "maybe": {"type": ["string", "null"]},
        "list": {"type": "array", "items": {"$ref": "#/$defs/item"}},
        "map": {"type": "object", "additionalProperties": {"type": "number"}},
        "any": {},
        "either": {"anyOf": [{"type": "string"}, {"type": "object", "properties": {"inner": {"type": "number"}}}]},
        "x-1": {"type": "string"},
        "env": {"type": "object", "patternProperties": {"^E_": {"type": "string"}}, "additionalProperties": False},
        "both": {"allOf": [{"$ref": "#/$defs/item"}, {"properties": {"more": {"type": "string"}}}]},
    },
    "additionalProperties": False,
    "$defs": {"item": {"type": "object", "properties": {"name": {"type": "string"}, "next": {"$ref": "#/$defs/item"}}}},
}
OTHER = {"type": "object", "properties": {"path": {"type": "string"}, "n": {"type": "string"}}}
OPEN = {"type": "object"}


def found(text, *args, reads=tuple(FACTS)):
    schemas = [[schema] for schema in args or (ECHO,)]
    return [(flaw.at, flaw.message) for flaw in flaws(Language().compile(text), schemas, reads)]


@for_each(
    "text",
    [
        "args.text == 'x' && args.n > 3 && args.mode == 'fast' && args.flag",
        "args.flag",
        "args.maybe == null || args.maybe == 'x'",
        "args.list[0].name == 'a' && args.list.exists(i, i.next.next.name == 'b')",
        "args.list.all(i, has(i.name))",
        "args.map['k'] > 1.5 && args.map.k < 2 && args.map.all(k, k != 'x')",
        "args.any.thing == 3 && args.any.more.of.it",
        "args.either == 'x' || args.either.inner > 3",
        "args['x-1'] == 'a' && args.`x-1` == 'a'",
        "args.env.E_HOME == '/'",
        "args.both.name == 'a' && args.both.more == 'b'",
        "args.mode in ['fast'] && args.mode != 'slow'",
        "dyn(args).whatever == 1 && dyn(args)['x'] == 2",
        "args.n == 1.0 && args.n != 2u && args.n in [1, 2]",
        "call.effects == 'read' || call.kind in ['tool', 'flow']",
        "principal.on_behalf_of == null && 'approver' in principal.roles && role == 'lead' && skill != 'x'",
        "facts.session.calls['echo'] > 1 && facts.session.calls.echo > 1 && facts.session.usage.cost_usd < 1.5",
        "timestamp(facts.session.started) < timestamp(call.now) && facts.context.state == 'PLANNED'",
        "size(args.text) > 3 && args.text.startsWith('a') && args.any.startsWith('b')",
        "args.exists(k, k == 'text')",
        "[1, 2].exists(args, args == 1)",
        "{'a': args.text}.a == 'x'",
        "(args.flag ? args.text : 'x') == 'y'",
    ],
)
def test_what_the_schemas_have_room_for_is_fine(text):
    assert found(text) == []


@for_each(
    ("text", "at", "said"),
    [
        ("args.txt == 'x'", 5, 'the argument txt; did you mean "text"?'),
        ("has(args.txt)", 9, "the argument txt"),
        ("args['txt'] == 'x'", 5, "the argument txt"),
        ("args .\n  txt == 'x'", 9, "the argument txt"),
        ("args.list[0].nam == 'a'", 13, 'args.list[…] has no nam; did you mean "name"?'),
        ("args.list.exists(i, i.nam == 'a')", 22, "i has no nam"),
        ("args.list.exists(i, i.next.nxt.name == 'a')", 27, 'i.next has no nxt; did you mean "next"?'),
        ("args.text.length == 3", 10, "args.text is a string, which has no length"),
        ("args.list.name == 'a'", 10, "args.list is an array, which has no name"),
        ("args.either.outer == 3", 12, "args.either has no outer"),
        ("args.env.HOME == '/'", 9, "args.env has no HOME"),
        ("args.both.nane == 'a'", 10, 'did you mean "name"?'),
        ("args.mode == 'fsat'", 13, "args.mode is never 'fsat'; did you mean \"fast\"?"),
        ("'fsat' != args.mode", 0, "args.mode is never 'fsat'"),
        ("args.mode in ['fast', 'slwo']", 22, 'did you mean "slow"?'),
        ("args.n == '3'", 7, "a number and a string are never equal"),
        ("args.flag == 'true'", 10, "a boolean and a string are never equal"),
        ("args.text > 3", 10, "a string and a number are not in any order"),
        ("args.n.startsWith('1')", 5, "args.n is a number, which has no startsWith"),
        ("call.abilty == 'x'", 5, 'call has no abilty; did you mean "ability"?'),
        ("call.kind == 'tol'", 13, 'did you mean "tool"?'),
        ("principal.name == 'x'", 10, "principal has no name; known: id, on_behalf_of, roles, via"),
        ("facts.session.cals['x'] > 1", 14, 'facts.session has no cals; did you mean "calls"?'),
        ("args.text", 0, "is a string; a condition is true or false"),
        ("role", 0, "is a null or a string; a condition is true or false"),
    ],
)
def test_what_they_have_no_room_for_is_found_where_it_stands(text, at, said):
    [(place, message)] = found(text)
    assert (place, said in message) == (at, True), message


def test_facts_have_to_be_declared():
    [(at, message)] = found("facts.session.calls['x'] > 1", reads=["session.usage"])
    assert at == 14
    assert message.endswith("known: usage; facts are declared with reads: […]")
    assert found("facts.session.calls['x'] > 1", reads=[])


def test_an_argument_that_some_ability_has_is_fine():
    assert found("args.path == 'x'", ECHO, OTHER) == []
    assert found("args.n == 'x' && args.n == 1", ECHO, OTHER) == []
    assert len(found("args.pth == 'x'", ECHO, OTHER)) == 1


def test_an_ability_that_takes_anything_has_every_argument():
    assert found("args.whatever == 'x'", ECHO, OPEN) == []
    assert list(flaws(Language().compile("args.whatever == 1"), [], [])) == []


def test_what_yaml_narrows_is_seen_together_with_what_the_plugin_says():
    narrowed = {"properties": {"n": {"$ref": "#/$defs/few"}}, "$defs": {"few": {"enum": [1, 2]}}}
    condition = Language().compile("args.text == 'x' && args.n == 3 && args.more == 1")
    said = [flaw.message for flaw in flaws(condition, [[ECHO, narrowed]], [])]
    assert len(said) == 1
    assert "the argument more" in said[0]


def test_a_schema_that_refers_to_itself_ends():
    endless = {"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}]}}}
    loop = {"type": "object", "properties": {"x": {"$ref": "#/properties/x"}}}
    assert found("args.x.y.z == 1 && args.x == 'a'", loop) == []
    assert found("args.x == 1", endless) == []
