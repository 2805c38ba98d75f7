"""What needs no server: settings, names, the strict form of schemas, and how long to wait."""

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deedbook import Failed
from deedbook.format.schema import foreign
from deedbook_provider_http.names import Names
from deedbook_provider_http.schemas import strictly
from deedbook_provider_http.trouble import wait_of
from deedbook_provider_openai import OpenAI
from deedbook_provider_openai.settings import OPENAI, SETTINGS, OpenAISettings

FUNCTION = r"^[a-zA-Z0-9_-]{1,64}$"
VALID = foreign({"type": "string", "pattern": FUNCTION}, place="test")


def test_default_address_is_openai_s_whatever_the_environment_says(monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/elsewhere")
    settings = OpenAISettings.read({})
    assert (settings.base_url, settings.dialect) == (OPENAI, "openai")
    assert OpenAISettings.read({"base_url": f"{OPENAI}/"}).dialect == "openai"
    assert OpenAISettings.read({"base_url": "http://127.0.0.1:8080/v1/"}) == OpenAISettings(
        base_url="http://127.0.0.1:8080/v1", dialect="compatible"
    )


WRONG = {
    "no address": {"base_url": "api.openai.com"},
    "with a password": {"base_url": "https://me:pw@host/v1"},
    "with a query": {"base_url": "https://host/v1?key=1"},
    "misspelt": {"base-url": "https://host/v1"},
    "retries": {"retries": 2},
    "prices": {"prices": {"input_per_million": 1}},
    "made already": {"extra": {"messages": []}},
    "stream": {"extra": {"stream": True}},
    "header": {"headers": {"x y": "1"}},
    "header value": {"headers": {"x": "a\nb"}},
    "structured": {"structured": "yes"},
}


@pytest.mark.parametrize("settings", WRONG.values(), ids=WRONG)
def test_settings_that_cannot_be_are_refused(settings):
    assert not foreign(SETTINGS, place="spec").valid(settings)


@pytest.mark.parametrize("name", ["Authorization", "host", "Content-Length", "User-Agent"])
def test_headers_of_the_adapter_cannot_be_set(name):
    with pytest.raises(Failed, match=f"{name} cannot be set"):
        OpenAI({"headers": {name: "x"}}, None)


@given(st.lists(st.text(min_size=1, max_size=80), unique=True), st.lists(st.text(min_size=1, max_size=80)))
def test_names_go_there_and_back_without_collision(offered, mentioned):
    names = Names(offered, mentioned)
    everyone = {*offered, *mentioned}
    sent = {name: names.sent(name) for name in everyone}
    assert len(set(sent.values())) == len(everyone)
    assert all(VALID.valid(name) for name in sent.values())
    assert {name: names.meant(told) for name, told in sent.items()} == {name: name for name in everyone}
    assert all(sent[name] == name for name in offered if VALID.valid(name))
    assert {name: Names(offered).sent(name) for name in offered} == {name: sent[name] for name in offered}


def test_long_names_stay_apart():
    long = "a" * 70
    names = Names([long, f"{long}b", "a" * 64])
    assert [names.sent(name) for name in (long, f"{long}b", "a" * 64)] == [f"{'a' * 62}_2", f"{'a' * 62}_3", "a" * 64]


HANDED_OVER = ["lead_directive_v1", "plan_v1", "worker_report_v1", "review_result_v1", "advice_v1", "scaffold_v1"]


@pytest.mark.parametrize("name", HANDED_OVER)
def test_every_role_s_message_has_a_strict_form(schemas, name):
    document = schemas.document(name)
    narrowed = strictly(document)
    assert narrowed["required"] == list(document["properties"])
    assert narrowed["additionalProperties"] is False


VAGUE = {
    "nothing said": {},
    "any object": {"type": "object"},
    "open": {"type": "object", "properties": {"a": {}}},
    "required elsewhere": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["b"]},
    "combined": {"anyOf": [{"type": "string"}]},
    "two types": {"type": ["string", "null"]},
    "any items": {"type": "array"},
    "a boolean": {"type": "object", "properties": {"a": True}},
    "unique": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
}


@pytest.mark.parametrize("schema", VAGUE.values(), ids=VAGUE)
def test_schema_without_a_strict_form_has_none(schema):
    assert strictly(schema) is None


def test_wait_is_read_in_all_its_spellings():
    later = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    assert wait_of({"retry-after-ms": "250", "retry-after": "9"}) == 0.25
    assert wait_of({"retry-after": "2"}) == 2
    assert wait_of({"retry-after": "-2"}) == 0
    assert 3500 < wait_of({"retry-after": later}) <= 3600
    assert wait_of({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}) == 0
    assert [wait_of(told) for told in ({}, {"retry-after": "soon"}, {"retry-after": "nan"}, {"retry-after": ""})] == [
        None,
        None,
        None,
        None,
    ]


def test_sdk_is_not_imported_before_the_first_call():
    code = "import sys, deedbook_provider_openai; print({'openai', 'httpx2', 'pydantic'} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "set()\n"
