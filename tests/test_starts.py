"""A start finds out by names and bytes whether anything changed; only then it reads, and misses nothing."""

import json
import os
import sys

import pytest
import workshop
from hypothesis import given
from hypothesis import strategies as st

from deedbook import Err, Ok, open_kernel
from deedbook.charter.store import Store
from deedbook.format.errors import DeedbookError
from deedbook.format.files import Folder
from deedbook.format.reader import read
from deedbook.workspace import documents, workspace

POLICY = "rules: [{match: {effects: [none, read, write]}, then: allow}]\nmatch: {}\n"


@pytest.fixture
def shop(tmp_path):
    made = workshop.bench(tmp_path)
    made.ability("echo")
    made.ability("other/one")
    made.policy("baseline", POLICY)
    yield made
    made.withdraw()


@pytest.fixture
def parsed(monkeypatch):
    """Give the places of all YAML that is parsed from now on."""
    found = []
    original = documents.parse_yaml

    def parse(raw, place):
        found.append(place)
        return original(raw, place)

    for module in list(sys.modules.values()):
        if getattr(module, "parse_yaml", None) is original:
            monkeypatch.setattr(module, "parse_yaml", parse)
    return found


def start(shop, **options):
    """Start once, use an ability, and return the charter's digest and what was bound before that."""
    with open_kernel(shop.root, catalogue=shop.catalogue(), **options) as opened:
        ready = sorted(opened.bindings.abilities._ready)
        with opened.session() as session:
            assert session.call("echo", {"text": "hi"}) == Ok({"text": "hi"})
        return opened.bindings.charter.digest, ready


def refusal(shop, **options):
    with pytest.raises(DeedbookError) as caught:
        open_kernel(shop.root, catalogue=shop.catalogue(), **options)
    return caught.value.error


def starts(shop):
    return shop.state / "charters" / "starts.json"


# --- nothing changed --------------------------------------------------------------------------------------------------


def test_second_start_parses_nothing_and_binds_only_what_is_used(shop, parsed):
    first, ready = start(shop)
    assert ready == ["echo", "other/one"]
    assert parsed
    parsed.clear()
    assert start(shop) == (first, [])
    assert parsed == []


def test_second_start_decides_and_records_as_the_first_one_does(shop):
    shop.policy("baseline", "rules: [{match: {abilities: [echo]}, then: deny, reason: no}]\nmatch: {}\n")

    def told():
        with open_kernel(shop.root, catalogue=shop.catalogue()) as opened, opened.session() as session:
            result = session.call("echo", {"text": "hi"})
            assert isinstance(result, Err)
        return [(event.type, event.payload) for event in read(shop.state / "sessions" / session.id)], result

    assert told() == told()


def test_state_outside_the_workspace_is_found_again(shop, tmp_path, parsed):
    shop.settings(f"state: {tmp_path / 'elsewhere'}\n")
    first, _ = start(shop)
    parsed.clear()
    assert start(shop) == (first, [])
    assert set(parsed) == {".system/deedbook.yaml"}


def test_each_profile_has_a_start_of_its_own(shop, parsed):
    shop.settings("profiles: {local: {}, other: {durability: always}}\n")
    one, other = start(shop), start(shop, profile="other")
    parsed.clear()
    assert (start(shop)[0], start(shop, profile="other")[0]) == (one[0], other[0])
    assert parsed == []
    with Folder.at(shop.state) as state:
        changes = [event for event in read(shop.state / "workspace") if event.type == "ledger.charter"]
        assert Store(state).current() == other[0]
    assert [event.payload["digest"] for event in changes] == [one[0], other[0], one[0], other[0]]


def test_profile_that_is_not_declared_is_refused_again_and_again(shop):
    start(shop)
    assert refusal(shop, profile="othr").code == refusal(shop, profile="othr").code == "USAGE"


# --- something changed ------------------------------------------------------------------------------------------------


def rewrite(place):
    """Change a byte and put size and time back."""
    before, text = place.stat(), place.read_text()
    place.write_text(text.replace("Does", "Dose"))
    os.utime(place, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert place.stat().st_size == before.st_size


CHANGES = {
    "edited, with its time put back": lambda shop, file: rewrite(file),
    "new ability": lambda shop, file: shop.ability("new"),
    "gone": lambda shop, file: file.unlink(),
    "renamed": lambda shop, file: file.rename(file.with_name("z.yaml")),
    "new policy": lambda shop, file: shop.policy("strict", "rules: []\nmatch: {}\n"),
    "new role": lambda shop, file: shop.write("agents/lead.md", "Lead.\n"),
    "settings": lambda shop, file: shop.settings("enforcement: observe\n"),
}


@pytest.mark.parametrize("how", CHANGES)
def test_change_of_the_sources_is_noticed(shop, how):
    file = shop.ability("third")
    first, _ = start(shop)
    CHANGES[how](shop, file)
    if how == "renamed":  # places stand in the charter
        assert start(shop)[0] != first
        return
    try:
        second, _ = start(shop)
    except AssertionError:  # the call is denied by then
        second = None
    assert second != first
    assert shop.compile().digest != first


REFUSED = {
    "link": lambda file: (file.unlink(), file.symlink_to(file.with_name("echo.yaml"))),
    "hard link": lambda file: os.link(file, file.parents[3] / "second"),
    "folder": lambda file: (file.unlink(), file.mkdir()),
    "broken": lambda file: file.write_text("id: [\n"),
    "stray": lambda file: file.rename(file.with_suffix(".yml")),
    "typo in a folder's name": lambda file: (file.parents[2] / "polices").mkdir(),
}


@pytest.mark.parametrize("how", REFUSED)
def test_what_a_reading_refuses_is_refused_after_a_start_too(shop, how):
    file = shop.ability("third")
    start(shop)
    REFUSED[how](file)
    assert refusal(shop).code in ("SOURCE_INVALID", "PATH_REFUSED")


def test_changed_code_of_a_plugin_is_noticed(shop, parsed):
    start(shop)
    parsed.clear()
    next(iter(shop.distributions.values())).code.write_text("# other\n")
    start(shop)
    assert parsed


def test_plugin_installed_in_place_is_read_anew_each_time(tmp_path, parsed):
    shop = workshop.bench(tmp_path)
    shop.ability("echo")
    for owner in shop.distributions.values():
        owner.editable = True
    start(shop)
    parsed.clear()
    start(shop)
    assert parsed
    shop.withdraw()


def test_file_that_came_while_sources_were_read_is_noticed_by_the_next_start(shop, monkeypatch):
    original = workspace.load_workspace

    def load(root, **options):
        loaded = original(root, **options)
        shop.policy("late", "rules: []\nmatch: {}\n")
        return loaded

    monkeypatch.setattr(workspace, "load_workspace", load)
    start(shop)
    monkeypatch.undo()
    with open_kernel(shop.root, catalogue=shop.catalogue()) as opened:
        assert "late" in opened.bindings.charter.document["policies"]


def test_secret_that_is_gone_is_a_fault_at_the_start_as_before(tmp_path, monkeypatch):
    shop = workshop.bench(tmp_path)

    class Keyed(workshop.Echo):
        def __init__(self, settings, host):
            host.secret("token")

    shop.offer("tool", "keyed", Keyed)
    shop.ability("keyed", handler="tool: keyed")
    shop.settings("secrets: {token: {env: START_TOKEN}}\n")
    monkeypatch.setenv("START_TOKEN", "one")
    open_kernel(shop.root, catalogue=shop.catalogue()).close()
    open_kernel(shop.root, catalogue=shop.catalogue()).close()
    monkeypatch.delenv("START_TOKEN")
    assert refusal(shop).code == "SECRET_MISSING"
    shop.withdraw()


# --- what cannot be trusted -------------------------------------------------------------------------------------------


def test_kept_charter_with_other_bytes_is_compiled_anew(shop):
    first, _ = start(shop)
    place = shop.state / "charters" / first / "charter.json"
    place.write_bytes(place.read_bytes().replace(b'"enforce"', b'"observe"'))
    assert start(shop) == (first, ["echo", "other/one"])
    assert b'"enforce"' in place.read_bytes()


junk = st.recursive(st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
                    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=9), inner, max_size=2),
                    max_leaves=6)  # fmt: skip
fields = st.dictionaries(st.sampled_from(["charter", "folders", "listing", "secrets"]), junk, max_size=4)


@given(noise=fields, whole=junk, replace=st.booleans())
def test_damaged_memory_of_a_start_costs_a_reading_and_nothing_else(tmp_path_factory, noise, whole, replace):
    shop = workshop.bench(tmp_path_factory.mktemp("noise"))
    shop.ability("echo")
    shop.ability("other/one")
    try:
        first, _ = start(shop)
        kept = json.loads(starts(shop).read_text())
        kept[""] = whole if replace else kept[""] | noise
        starts(shop).write_text(json.dumps(kept))
        assert start(shop)[0] == first
    finally:
        shop.withdraw()


def test_locked_workspace_starts_from_what_is_kept_only_as_long_as_it_is_pinned(shop, parsed):
    shop.settings("lock: required\n")
    shop.lock()
    first, _ = start(shop)
    start(shop)  # the lock file was new in the listing
    parsed.clear()
    assert start(shop) == (first, [])
    assert parsed == []
    pins = shop.root / ".system" / "deedbook.lock"
    pins.write_text(pins.read_text().replace(first, "0" * 64))
    assert refusal(shop).code == "CHARTER_CHANGED"
    pins.unlink()
    assert refusal(shop).code == "CHARTER_CHANGED"


# --- abilities bound late ---------------------------------------------------------------------------------------------


def test_ability_that_cannot_be_bound_any_more_is_denied_and_the_others_go_on(shop):
    class Fragile(workshop.Echo):
        broken = False

        def __init__(self, settings, host):
            if Fragile.broken:
                raise RuntimeError("gone to pieces")

    shop.offer("tool", "fragile", Fragile)
    shop.ability("fragile", handler="tool: fragile")
    start(shop)
    Fragile.broken = True
    with open_kernel(shop.root, catalogue=shop.catalogue()) as opened, opened.session() as session:
        for _ in range(2):
            result = session.call("fragile", {"text": "hi"})
            assert result.error.code == "PLUGIN_BROKEN"
            assert "gone to pieces" in result.error.message
        assert session.call("echo", {"text": "hi"}) == Ok({"text": "hi"})
    denied = [event.payload for event in read(shop.state / "sessions" / session.id) if event.type == "tool.denied"]
    assert [(each["name"], each["code"], each["kind"]) for each in denied] == [("fragile", "PLUGIN_BROKEN", "tool")] * 2


def test_unknown_ability_is_not_found_whether_abilities_are_bound_or_not(shop):
    for _ in range(2):
        with open_kernel(shop.root, catalogue=shop.catalogue()) as opened, opened.session() as session:
            assert session.call("ecko", {}).error.code == "TOOL_NOT_FOUND"
