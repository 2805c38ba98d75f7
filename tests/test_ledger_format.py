"""docs/ledger-format.md, the schemas of payloads and the kernel's own constants say the same."""

import copy
import json
import os
import re
from hashlib import sha256
from pathlib import Path

import fastjsonschema
import jsonschema_rs
import ledgers
import logs
import pytest
from cases import for_each
from hypothesis import given
from hypothesis import strategies as st

from deedbook.format import events
from deedbook.format.families import CATALOGUE, LATER, OUTCOMES, PAYLOAD_SCHEMAS, schema_of
from deedbook.format.schema import Schemas, data_folder

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "ledger-format.md").read_text(encoding="utf-8")
SCHEMAS = Schemas.load(data_folder("schemas"))
SEALED = {"$sealed": ledgers.HASH, "size": 12}
EXACT = {
    "$schema", "$id", "$ref", "$defs", "title", "description", "type", "required", "properties", "additionalProperties",
    "items", "anyOf", "pattern", "minLength", "minimum", "maximum", "minProperties",
}  # fmt: skip
"""The keywords of the event schemas: each is one that fastjsonschema implements exactly."""
FORMS = {
    form: schema
    for kind in CATALOGUE
    for form, schema in (
        (kind, CATALOGUE[kind]),
        *((f"{kind} {version}", schema) for version, schema in LATER.get(kind, {}).items()),
    )
}
"""Every form of payload, a type or a type and its version, and the id of its schema."""


def form_of(kind, payload):
    schema = schema_of(kind, payload)
    return next((form for form, of in FORMS.items() if of == schema), kind)


def payloads():
    """Return every payload of the honest ledgers, by form."""
    found = {}
    for make in (
        ledgers.run,
        ledgers.nested,
        ledgers.call,
        ledgers.workspace,
        ledgers.approved,
        ledgers.bridged,
        ledgers.forked,
        ledgers.served,
        ledgers.queue,
        ledgers.tasked,
        ledgers.chores,
        logs.workspace,
        ledgers.corrected,
        ledgers.importing,
        ledgers.remembered,
        ledgers.memories,
    ):
        for line in make().lines:
            event = json.loads(line)
            if "$excised" not in event["payload"]:
                found.setdefault(form_of(event["event_type"], event["payload"]), []).append(event["payload"])
    return found


PAYLOADS = payloads()


def document(form):
    return SCHEMAS.document(FORMS[form])


def accepts(form, payload):
    return SCHEMAS.validator(FORMS[form]).valid(payload)


# --- the page ---------------------------------------------------------------------------------------------------------


def test_page_and_kernel_have_the_same_template():
    template = next(line for line in PAGE.splitlines() if line.startswith('{"schema_version":"1.1","session_id":S'))
    line = ledgers.call().lines[0]
    keys = re.compile(r'[{,]"([a-z_]+)":')
    header = line[: line.index(b',"payload":')].decode()
    assert keys.findall(template) == [*keys.findall(header), "payload"]
    assert list(events.HEADER.groupindex) == keys.findall(template)[1:-1]


def test_page_and_kernel_have_the_same_grammars():
    for grammar in (events.SESSION_ID, events.PRINCIPAL, events.TRACE_ID):
        assert f"`{grammar.pattern}`" in PAGE
    assert r"`[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+`, at most 64 characters" in PAGE
    assert all(f'`"{actor}"`' in PAGE for actor in events.ACTORS)
    assert f"at most {events.MAX_PAYLOAD:,} bytes" in PAGE


def test_page_and_kernel_have_the_same_first_hashes():
    assert "`deedbook-session-1.1\\n`" in PAGE
    assert "`deedbook-workspace-1.1\\n`" in PAGE
    assert events.first_hash("s") == sha256(b"deedbook-session-1.1\ns").hexdigest()
    assert events.first_workspace_hash("s") == sha256(b"deedbook-workspace-1.1\ns").hexdigest()


def test_page_and_kernel_have_the_same_outcomes_and_aliases():
    for intent, outcomes in OUTCOMES.items():
        row = next(line for line in PAGE.splitlines() if line.startswith(f"| `{intent}` | `"))
        assert set(re.findall(r"`([a-z.]+)`", row)) == {intent, *outcomes}
    for alias, name in events.ALIASES.items():
        assert f"`{alias}` is `{name}`" in PAGE


def test_the_kernel_writes_the_line_that_the_page_describes():
    book = ledgers.run()
    prefix, prev = events.line_prefix(book.session_id, book.trace_id), events.first_hash(book.session_id)
    for stored in book.lines:
        event = json.loads(stored)
        label = events.label(event["event_type"], event["actor"], event["principal"])
        raw = ledgers.canonical(event["payload"])
        entry = events.Entry(label, event["span_id"], event["parent_span_id"], raw)
        line, prev = events.seal_line(prefix, event["seq"], event["ts"], prev, entry)
        assert line == stored


def catalogue():
    """Return the page's table of payloads: type, then each member, with whether it may be absent."""
    rows = re.findall(r"^\| `([a-z_.]+)`( v[234])? \| (`.*) \|$", PAGE.partition("## Catalogue")[2], re.MULTILINE)
    flat = {f"{kind}{version}": re.sub(r"[\[{].*?[\]}]+", "", cell) for kind, version, cell in rows}
    return {kind: re.findall(r"(?:^|, )`([a-z0-9_]+)`(\??)", cell) for kind, cell in flat.items()}


def test_page_lists_every_type_with_the_members_of_its_schema():
    assert list(catalogue()) == list(FORMS)
    for kind, members in catalogue().items():
        schema = document(kind)
        assert [name for name, _ in members] == list(schema["properties"]), kind
        assert {name for name, optional in members if not optional} == set(schema["required"]), kind


def test_page_says_who_may_follow_the_end():
    assert "After it only `event.amended`, `payload.erased` and `ledger.*` may follow" in PAGE
    assert events.AFTER_END == ("event.amended", "payload.erased", "ledger.")


def test_schemas_that_were_released_have_not_changed():
    kept = (ROOT / "tests" / "data" / "released_schemas.sha256").read_text(encoding="utf-8").splitlines()
    folder = data_folder("schemas")
    for digest, name in (line.split() for line in kept):
        assert sha256((folder / name).read_bytes()).hexdigest() == digest, f"{name} is released: write a new version"


def test_payload_of_a_later_version_without_its_version_is_refused():
    for form in FORMS.keys() - CATALOGUE.keys():
        kind, _, own = form.rpartition(" ")
        for payload in PAYLOADS[form]:
            first = {name: value for name, value in payload.items() if name != "schema_version"}
            assert schema_of(kind, first) == CATALOGUE[kind]
            assert not accepts(kind, first)
            for version in {"v1", "v2", "v3", "v4", 2, None} - {own}:
                assert not SCHEMAS.validator(schema_of(kind, {**first, "schema_version": version})).valid(
                    {**first, "schema_version": version}
                )


# --- the schemas of payloads ------------------------------------------------------------------------------------------


def test_every_type_has_a_schema_and_every_event_schema_a_type():
    files = {path.stem for path in data_folder("schemas").glob("event_*.json")}
    assert files == set(FORMS.values()) == set(PAYLOAD_SCHEMAS)


@for_each("kind", FORMS)
def test_schema_is_named_described_and_strict(kind):
    schema = document(kind)
    assert (schema["$id"], schema["title"], schema["type"]) == (FORMS[kind], kind.partition(" ")[0], "object")
    assert schema["description"]
    assert schema.get("additionalProperties") is (None if kind == "worker.report" else False)


def nodes(schema):
    yield schema
    for keyword, value in schema.items():
        if keyword in ("properties", "$defs"):
            for each in value.values():
                yield from nodes(each)
        elif keyword == "items":
            yield from nodes(value)
        elif keyword == "anyOf":
            for each in value:
                yield from nodes(each)


@for_each("kind", FORMS)
def test_schema_keeps_to_the_keywords_that_are_implemented_exactly(kind):
    for node in nodes(document(kind)):
        assert set(node) <= EXACT
        assert "$ref" not in node or set(node) == {"$ref"}
        assert node.get("$ref", "#/$defs/x").startswith("#/$defs/")
        assert node.get("pattern", "^$")[0] + node.get("pattern", "^$")[-1] == "^$"


def test_every_type_has_an_honest_example():
    assert set(PAYLOADS) == set(FORMS)


@for_each("kind", FORMS)
def test_schema_accepts_honest_payloads(kind):
    for payload in PAYLOADS[kind]:
        assert SCHEMAS.validator(FORMS[kind]).violations(payload) == ()


def places(value, path=()):
    """Yield the path of every value inside *value*."""
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield (*path, key)
        yield from places(item, (*path, key))


def put(value, path, item):
    changed = copy.deepcopy(value)
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = item
    return changed


@for_each("kind", [form for form in FORMS if form.removesuffix(" v2") not in events.BARE])
def test_schema_accepts_a_sealed_value_in_place_of_any_member(kind):
    for payload in PAYLOADS[kind]:
        for path in places(payload):
            if "$sealed" not in path and "size" not in path:
                assert accepts(kind, put(payload, path, SEALED)), path


@for_each("kind", [form for form in FORMS if form.removesuffix(" v2") in events.BARE])
def test_schema_of_what_is_never_sealed_refuses_a_sealed_value_anywhere(kind):
    for payload in PAYLOADS[kind]:
        assert not any(accepts(kind, put(payload, path, SEALED)) for path in places(payload))


@for_each("kind", FORMS)
def test_schema_refuses_a_payload_with_a_member_less_or_more(kind):
    for payload in PAYLOADS[kind]:
        for name in document(kind)["required"]:
            assert not accepts(kind, {key: value for key, value in payload.items() if key != name})
        assert accepts(kind, {**payload, "more": 1}) is (kind == "worker.report")


@for_each("kind", FORMS)
def test_schema_refuses_what_only_looks_sealed_where_no_object_may_stand(kind):
    for payload in PAYLOADS[kind]:
        for path in places(payload):
            if isinstance(inner(payload, path), str | bool | int) and not free(kind, path):
                for bad in ({}, {**SEALED, "more": 1}, {"$sealed": "x", "size": 1}, {**SEALED, "size": 0}):
                    assert not accepts(kind, put(payload, path, bad)), (path, bad)


def inner(value, path):
    for key in path:
        value = value[key]
    return value


def free(kind, path):
    """Say whether a path leads into a value of which the schema only knows that it is there."""
    schema, definitions = document(kind), document(kind).get("$defs", {})
    for key in path:
        schema = schema["items"] if isinstance(key, int) else schema.get("properties", {}).get(key, {})
        schema = definitions[schema["$ref"].removeprefix("#/$defs/")] if "$ref" in schema else schema
        schema = schema["anyOf"][0] if "anyOf" in schema else schema
        if set(schema) <= {"description", "type"} or (schema.get("type") == "object" and "properties" not in schema):
            return True
    return False


@for_each("kind", FORMS)
def test_schema_refuses_another_type_in_place_of_a_member(kind):
    for payload in PAYLOADS[kind]:
        for path in places(payload):
            if not free(kind, path):
                wrong = 1 if isinstance(inner(payload, path), str | bool | None) else "x"
                if path[-1] != "rule":
                    assert not accepts(kind, put(payload, path, wrong)), path


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(max_size=4) | st.just(SEALED),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from(sorted(FORMS)), st.data())
def test_both_implementations_judge_changed_payloads_alike(kind, data):
    schema = document(kind)
    payload = data.draw(st.sampled_from(PAYLOADS[kind]))
    path = data.draw(st.sampled_from(sorted(places(payload), key=str)))
    changed = put(payload, path, data.draw(JSON))
    mine = accepts(kind, changed)
    assert mine == jsonschema_rs.Draft202012Validator(schema).is_valid(changed)


def test_schemas_compile_without_touching_what_they_validate():
    for kind, examples in PAYLOADS.items():
        check = fastjsonschema.compile(copy.deepcopy(document(kind)), use_default=False)
        for payload in examples:
            before = json.dumps(payload)
            check(payload)
            assert json.dumps(payload) == before


def test_real_lines_of_envelope_1_0_fit_the_page():
    folder = Path(os.environ.get("DEEDBOOK_VECTORS", ROOT.parent / "shared" / "vectors"))
    if not folder.is_dir():
        pytest.skip(f"no vectors at {folder}")
    described = next(line for line in PAGE.splitlines() if line.startswith('- A line is `{"event_type"'))
    keys = re.findall(r'[{,]"([a-z_]+)":', described)
    for line in (folder / "envelope_v1_0.events.jsonl").read_bytes().splitlines():
        event = json.loads(line)
        spelled = json.dumps(event, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
        payload = json.dumps(event["payload"], sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
        assert (list(event), spelled) == (keys, line)
        assert event["payload_hash"] == sha256(payload).hexdigest()
