"""Which charter is in force: kept once, compiled only where something changed, and pinned: then changes are refused."""

import itertools
import json
import os
import shutil

import pytest
import workshop
from dying import die
from hypothesis import given
from hypothesis import strategies as st

from deedbook.format import canonical
from deedbook.format.errors import BindingError, DeedbookError
from deedbook.format.files import Folder
from deedbook.policy.charter import Charter
from deedbook.workspace.lockfile import LOCK, Lock, Pin, current_platform
from deedbook_author.locking import write_lock

ECHO = ".system/registry/low-level/echo.yaml"


@pytest.fixture
def shop(tmp_path):
    made = workshop.bench(tmp_path)
    made.ability("echo")
    yield made
    made.withdraw()


@pytest.fixture
def locked(shop):
    """Give a workspace that is locked, whose charter is in force."""
    shop.settings("lock: required\n")
    shop.lock()
    shop.open()
    return shop


def kept(shop, digest, name="charter"):
    return shop.state / "charters" / digest / f"{name}.json"


def pins(shop):
    return json.loads((shop.root / LOCK).read_text())


def repin(shop, **changes):
    """Write the lock file by hand."""
    (shop.root / LOCK).write_text(json.dumps(pins(shop) | changes))


def refusals(shop, attempt=None, **options):
    return [message for _, _, message in shop.faults(attempt or (lambda: shop.open(**options)))]


# --- the store --------------------------------------------------------------------------------------------------------


def test_a_charter_and_its_sources_are_kept_under_its_digest(shop):
    charter = shop.open().charter
    assert kept(shop, charter.digest).read_bytes() == charter.raw
    assert shop.store().load(charter.digest) == charter
    sources = shop.store().sources(charter)
    assert sources == {path: (shop.root / path).read_bytes() for path in charter.document["sources"]}


def test_what_is_kept_stays_when_the_workspace_goes_on(shop):
    first = shop.open().charter
    before = (shop.root / ECHO).read_bytes()
    shop.ability("echo", "tags: [new]\n")
    second = shop.open().charter
    assert shop.store().load(first.digest) == first
    assert shop.store().sources(first)[ECHO] == before != shop.store().sources(second)[ECHO]


def test_it_is_kept_once(shop):
    digest = shop.open().charter.digest
    before = kept(shop, digest).stat()
    with Folder.at(shop.root) as root:
        shop.store().keep(shop.compile(), root)
    assert kept(shop, digest).stat().st_mtime_ns == before.st_mtime_ns


def test_a_charter_that_is_not_there_or_was_changed_is_refused(shop):
    charter = shop.open().charter
    with pytest.raises(BindingError, match="is not kept in this state folder"):
        shop.store().load("0" * 64)
    kept(shop, charter.digest).write_bytes(charter.raw.replace(b"enforce", b"observe"))
    with pytest.raises(BindingError, match="was changed"):
        shop.store().load(charter.digest)


@pytest.mark.parametrize("poison", [b"", b"{}", b"[1]", b'{"a":', b'{".system/deedbook.yaml":5}'])
def test_sources_that_were_changed_are_refused(shop, poison):
    charter = shop.open().charter
    kept(shop, charter.digest, "sources").write_bytes(poison)
    with pytest.raises(BindingError, match="the sources kept with charter"):
        shop.store().sources(charter)
    kept(shop, charter.digest, "sources").unlink()
    with pytest.raises(BindingError, match="the sources kept with charter"):
        shop.store().sources(charter)


@pytest.mark.parametrize("name", ["charter", "sources"])
def test_what_was_changed_is_kept_anew(shop, name):
    charter = shop.open().charter
    kept(shop, charter.digest, name).write_bytes(b"{}")
    with Folder.at(shop.root) as root:
        shop.store().keep(charter, root)
    assert shop.store().load(charter.digest) == charter
    assert shop.store().sources(charter)


def dies_at(step, work):
    """Do *work* in a process of its own, which dies at the system call of that number; say whether it did."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0
    calls = itertools.count()

    def counted(real):
        return lambda *args, **more: die() if next(calls) == step else real(*args, **more)

    for name in ("mkdir", "open", "rename", "fsync", "write"):
        setattr(os, name, counted(getattr(os, name)))
    try:
        work()
    finally:
        os._exit(0)


def test_killed_while_keeping_nothing_is_half_there(shop):
    charter, store, died, kept_at = shop.compile(), shop.store(), 0, None
    with Folder.at(shop.root) as root:
        while dies_at(died, lambda: store.keep(charter, root)):
            if store.find(charter.digest):
                assert store.sources(charter)
                kept_at = kept_at or died
                shutil.rmtree(shop.state / "charters")
            died += 1
        assert store.load(charter.digest) == charter
        shutil.rmtree(shop.state / "charters")
        store.keep(charter, root)
    assert store.sources(charter)
    assert kept_at, "it never died between the last name and its sync"


def test_a_source_that_changes_while_the_charter_is_compiled_is_noticed(shop):
    charter = shop.compile()
    shop.ability("echo", "tags: [meanwhile]\n")
    with Folder.at(shop.root) as root, pytest.raises(BindingError, match=f"{ECHO}: changed while"):
        shop.store().keep(charter, root)
    (shop.root / ECHO).unlink()
    with Folder.at(shop.root) as root, pytest.raises(BindingError, match=f"{ECHO}: changed while"):
        shop.store().keep(charter, root)
    assert shop.store().find(charter.digest) is None


def test_a_skill_that_no_loader_reads_may_hold_any_bytes(shop):
    shop.offer("skill", "markdown", type("None_", (workshop.Guard,), {"__call__": lambda self: []}))
    place = shop.skill("deep/er", "")
    place.write_bytes(b"\xff\x00caf\xc3\xa9")
    charter = shop.open().charter
    assert shop.store().sources(charter)[".system/skills/deep/er/SKILL.md"] == b"\xff\x00caf\xc3\xa9"


# --- lock: auto -------------------------------------------------------------------------------------------------------


def test_the_first_start_compiles_and_says_so(shop):
    opened = shop.open()
    assert (opened.previous, opened.changes.other) == (None, ("first charter of this workspace",))
    assert shop.store().current() == opened.charter.digest == shop.compile().digest


def test_the_next_start_imports_nothing_and_says_nothing(shop):
    first = shop.open()
    shop.withdraw()
    again = shop.open()
    assert (again.charter, again.previous, bool(again.changes)) == (first.charter, first.charter.digest, False)


def test_a_change_is_compiled_and_said(shop):
    first = shop.open()
    shop.ability("echo", "effects: write\n")
    opened = shop.open()
    assert opened.previous == first.charter.digest != opened.charter.digest
    assert opened.changes.tighter == ("ability echo: effects: write, was read",)
    assert opened.changes.other == (f"source {ECHO} changed",)
    assert shop.store().current() == opened.charter.digest


def test_a_change_and_back_finds_the_first_charter_again(shop):
    first = shop.open()
    shop.ability("echo", "effects: write\n")
    shop.open()
    shop.ability("echo")
    assert shop.open().charter == first.charter


def replaced_plugin(shop):
    shop.distributions["offered"].code.write_text("# other code\n")


def newer_plugin(shop):
    shop.distributions["offered"].version_ = "2.0"


def moved_plugin(shop):
    shop.offer("tool", "echo", workshop.Echo)


def rival_plugin(shop):
    shop.offer("tool", "echo", workshop.Echo, distribution="rival")


@pytest.mark.parametrize("change", [replaced_plugin, newer_plugin, moved_plugin, rival_plugin])
def test_other_plugins_are_a_change(shop, change):
    shop.open()
    change(shop)
    shop.withdraw()
    assert refusals(shop), "the kept charter was taken for fresh: nothing was imported"


def test_another_kernel_or_profile_is_a_change(shop):
    shop.settings("profiles: {local: {}, other: {durability: os}}\n")
    first = shop.open().charter
    assert shop.open(kernel="9").charter.document["kernel"] == "9"
    shop.settings("profile: other\n")
    assert shop.open().charter.document["durability"] == "os" != first.document["durability"]


def test_editable_plugins_are_always_compiled(tmp_path):
    shop = workshop.Workshop(tmp_path)
    shop.offer("tool", "echo", workshop.Echo, editable=True)
    shop.ability("echo")
    first = shop.open()
    assert not shop.open().changes
    shop.offer("tool", "echo", workshop.tool(effects="write", gives=workshop.TEXT, takes=workshop.TEXT))
    assert shop.open().changes.tighter == ("ability echo: effects: write, was read",)
    shop.withdraw()
    assert refusals(shop)
    assert first.charter.document["plugins"]["tool/echo"]["digest"] is None


DAMAGED = {
    "empty": b"",
    "half": b'{"charter":"0',
    "a list": b"[]",
    "a number": b'{"charter":5}',
    "a path": b'{"charter":"../../../etc"}',
    "another charter": b'{"charter":"' + b"0" * 64 + b'"}',
    "no text": b"\xff\xfe",
    "too large": b" " * 5000,
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_note_of_the_charter_in_force_is_written_anew(shop, damage):
    first = shop.open()
    (shop.state / "charters" / "current.json").write_bytes(DAMAGED[damage])
    opened = shop.open()
    assert (opened.charter, bool(opened.changes)) == (first.charter, True)
    assert shop.store().current() == first.charter.digest


def test_a_poisoned_charter_is_a_change_is_healed_and_is_said(shop):
    charter = shop.open().charter
    kept(shop, charter.digest).write_bytes(charter.raw.replace(b"enforce", b"observe"))
    opened = shop.open()
    assert (opened.charter, opened.previous) == (charter, charter.digest)
    [said] = opened.changes.other
    assert "was changed" in said
    assert not shop.open().changes


def test_a_poisoned_charter_leaves_nobody_to_say_what_became_looser(shop):
    charter = shop.open().charter
    kept(shop, charter.digest).write_bytes(b"{}")
    shop.ability("echo", "effects: write\n")
    [said] = shop.open().changes.looser
    assert charter.digest in said


def test_a_charter_of_an_older_form_is_compiled_anew(shop):
    shop.open()
    old = Charter.of({"format": "0", "sources": {}})
    with Folder.at(shop.root) as root:
        shop.store().keep(old, root)
        shop.store().adopt(old)
    opened = shop.open()
    assert (opened.charter, opened.previous) == (shop.compile(), old.digest)
    assert opened.changes.looser


def test_a_change_is_recorded_before_it_is_remembered(shop):
    told = []

    def crash(opened):
        told.append(opened.charter.digest)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shop.open(record=crash)
    assert shop.store().current() is None
    opened = shop.open(record=lambda opened: told.append(opened.charter.digest))
    shop.open(record=lambda _: told.append("again"))
    assert told == [opened.charter.digest] * 2


# --- the lock file ----------------------------------------------------------------------------------------------------


def test_the_lock_file_says_what_is_pinned_a_line_each(shop):
    opened = shop.lock()
    text = (shop.root / LOCK).read_text()
    found = pins(shop)
    assert (found["schema_version"], found["kernel"], found["profile"]) == ("v1", workshop.KERNEL, "local")
    assert (found["sources"], found["charters"]) == (
        opened.charter.document["sources"],
        {current_platform(): opened.charter.digest},
    )
    digest = opened.charter.document["plugins"]["tool/echo"]["digest"]
    assert found["plugins"] == {"offered": {"version": "1.0", "digests": [digest]}}
    assert f'    "{ECHO}": "{found["sources"][ECHO]}"\n' in text
    assert text == json.dumps(found, indent=2, sort_keys=True) + "\n"


def test_locking_again_writes_the_same_bytes(shop):
    shop.lock()
    before = (shop.root / LOCK).read_bytes()
    shop.lock()
    assert (shop.root / LOCK).read_bytes() == before


def test_locking_says_what_changed_against_what_was_pinned(shop):
    first = shop.lock()
    assert first.changes.other == ("first charter of this workspace",)
    assert not shop.lock().changes
    shop.ability("echo", "effects: write\n")
    again = shop.lock()
    assert (again.previous, again.changes.tighter) == (
        first.charter.digest, ("ability echo: effects: write, was read",),
    )  # fmt: skip


def test_a_locked_charter_comes_into_force_with_the_next_start_which_records_it(shop):
    first = shop.open()
    shop.ability("echo", "effects: write\n")
    shop.lock()
    assert shop.store().current() == first.charter.digest
    assert shop.open().changes.tighter


def test_where_the_pinned_charter_is_not_kept_nobody_can_compare(shop):
    digest = shop.lock().charter.digest
    shutil.rmtree(shop.state)
    assert not shop.lock().changes.looser
    shutil.rmtree(shop.state)
    shop.ability("echo", "effects: write\n")
    [said] = shop.lock().changes.looser
    assert digest in said


OTHER = "linux-other-cp314"


def test_charters_of_other_platforms_stay_while_the_sources_do(shop):
    shop.lock()
    repin(shop, charters=pins(shop)["charters"] | {OTHER: "1" * 64})
    shop.lock()
    assert pins(shop)["charters"][OTHER] == "1" * 64
    shop.ability("echo", "tags: [new]\n")
    shop.lock()
    assert list(pins(shop)["charters"]) == [current_platform()]


def test_wheels_of_other_platforms_stay_while_the_version_does(shop):
    shop.lock()
    [digest] = pins(shop)["plugins"]["offered"]["digests"]
    repin(shop, plugins={"offered": {"version": "1.0", "digests": ["0" * 64]}})
    shop.lock()
    assert pins(shop)["plugins"]["offered"]["digests"] == sorted(["0" * 64, digest])
    newer_plugin(shop)
    shop.lock()
    assert pins(shop)["plugins"]["offered"] == {"version": "2.0", "digests": [digest]}


DIGESTS = st.text("0123456789abcdef", min_size=64, max_size=64)
TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=8)
PINS = st.builds(Pin, TEXTS, st.lists(DIGESTS, max_size=2)) | st.builds(Pin, TEXTS, editable=st.just(True))
LOCKS = st.builds(
    Lock, kernel=TEXTS, profile=TEXTS, sources=st.dictionaries(TEXTS, DIGESTS, max_size=3),
    charters=st.dictionaries(TEXTS, DIGESTS, max_size=3), plugins=st.dictionaries(TEXTS, PINS, max_size=3),
)  # fmt: skip


@given(LOCKS)
def test_a_lock_is_read_as_it_was_written(tmp_path_factory, lock):
    with Folder.at(tmp_path_factory.mktemp("lock")) as root:
        write_lock(lock, root)
        assert Lock.read(root) == lock


SOUND = {"schema_version": "v1", "kernel": "", "profile": "", "sources": {}, "charters": {}, "plugins": {}}
BROKEN = {
    "no JSON": "<<<<<<< ours\n",
    "no object": "[]",
    "a key twice": '{"schema_version":"v1","schema_version":"v1"}',
    "a key that is missing": '{"schema_version":"v1"}',
    "a key that nobody knows": json.dumps(SOUND | {"x": 1}),
    "another version": json.dumps(SOUND | {"schema_version": "v2"}),
    "no digest": json.dumps(SOUND | {"sources": {"a": "x"}}),
    "no pin": json.dumps(SOUND | {"plugins": {"a": []}}),
}


@pytest.mark.parametrize("damage", BROKEN)
def test_a_damaged_lock_is_refused_and_locking_mends_it(locked, damage):
    (locked.root / LOCK).write_text(BROKEN[damage])
    found = locked.faults(locked.open)
    assert found
    assert all((code, place) == ("CHARTER_CHANGED", LOCK) and "deedbook lock" in why for code, place, why in found)
    locked.lock()
    assert not locked.open().changes


def test_a_lock_that_is_a_link_is_neither_read_nor_written(locked, tmp_path):
    (locked.root / LOCK).rename(tmp_path / "elsewhere")
    (locked.root / LOCK).symlink_to(tmp_path / "elsewhere")
    for attempt in (locked.open, locked.lock):
        with pytest.raises(DeedbookError, match=r"deedbook\.lock: is a link"):
            attempt()
    assert (tmp_path / "elsewhere").is_file()


# --- lock: required ---------------------------------------------------------------------------------------------------


def test_without_a_lock_nothing_starts(shop):
    shop.settings("lock: required\n")
    [said] = refusals(shop)
    assert "nothing is pinned; run: deedbook lock" in said
    shop.lock()
    assert shop.open().charter == shop.compile()


def test_what_is_pinned_starts_without_importing_anything(locked):
    locked.withdraw()
    assert locked.open().charter.digest == pins(locked)["charters"][current_platform()]


def test_what_is_pinned_starts_with_an_empty_state_folder(locked):
    shutil.rmtree(locked.state)
    assert locked.open().charter.digest == pins(locked)["charters"][current_platform()]
    assert locked.store().sources(locked.open().charter)


def test_a_state_folder_that_was_elsewhere_in_between_comes_back_to_what_is_pinned(locked):
    other = Charter.of({"format": "charter-1"} | dict(locked.compile().document) | {"enforcement": "observe"})
    with Folder.at(locked.root) as root:
        locked.store().keep(other, root)
        locked.store().adopt(other)
    locked.withdraw()
    opened = locked.open()
    assert opened.charter.digest == pins(locked)["charters"][current_platform()]
    assert opened.changes.tighter == ("enforcement: enforce, was observe",)


def changed_source(shop):
    shop.ability("echo", "tags: [new]\n")
    return [f"{ECHO} changed since it was pinned"]


def new_source(shop):
    shop.ability("other")
    return [".system/registry/low-level/other.yaml is new since it was pinned"]


def lost_source(shop):
    (shop.root / ECHO).unlink()
    return [f"{ECHO} is gone since it was pinned"]


def changed_code(shop):
    replaced_plugin(shop)
    return ["offered 1.0 is not the code that is pinned as 1.0"]


def newer_code(shop):
    newer_plugin(shop)
    shop.distributions["offered"].code.write_text("# newer\n")
    return ["offered 2.0 is not the code that is pinned as 1.0"]


def code_of_somebody_else(shop):
    shop.distributions["other"] = other = shop.distributions.pop("offered")
    other.name_ = "other"
    return ["other 1.0 is not pinned"]


def code_installed_in_place(shop):
    shop.distributions["offered"].editable = True
    return ["offered is installed in place"]


def pins_without_the_code(shop):
    repin(shop, plugins={})
    shutil.rmtree(shop.state)
    return ["offered 1.0 is not pinned"]


def another_platform(shop):
    repin(shop, charters={OTHER: "1" * 64})
    return [f"no charter is pinned for {current_platform()}, only for {OTHER}"]


def another_charter(shop):
    repin(shop, charters={current_platform(): "1" * 64})
    return [f"charter {'1' * 64} is pinned, this is {shop.compile().digest}"]


def another_kernel(shop):
    repin(shop, kernel="0.0.9")
    return [f"kernel 0.0.9 is pinned, this is {workshop.KERNEL}"]


def another_profile(shop):
    repin(shop, profile="prod")
    return ["profile prod is pinned, this is local"]


def a_poisoned_charter(shop):
    kept(shop, pins(shop)["charters"][current_platform()]).write_bytes(b"{}")
    return ["was changed"]


def several(shop):
    return [*changed_source(shop), *new_source(shop), *changed_code(shop), *another_kernel(shop)]


WAYS = (
    changed_source, new_source, lost_source, changed_code, newer_code, code_of_somebody_else, code_installed_in_place,
    pins_without_the_code, another_platform, another_charter, another_kernel, another_profile, a_poisoned_charter,
    several,
)  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_every_difference_is_refused_by_name_until_it_is_locked(locked, way):
    expected = way(locked)
    found = locked.faults(locked.open)
    assert {code for code, _, _ in found} == {"CHARTER_CHANGED"}
    assert len(found) == len(expected)
    for words in expected:
        assert [why for _, _, why in found if words in why and "deedbook lock" in why]
    locked.lock(editable=way is code_installed_in_place)
    assert locked.open().charter == locked.compile()


def test_code_that_is_not_pinned_is_refused_before_it_is_imported(locked):
    imported = []
    spec = property(imported.append)
    replaced_plugin(locked)
    locked.offer("tool", "echo", type("Evil", (workshop.Echo,), {"spec": spec}))
    locked.withdraw()
    [said] = refusals(locked)
    assert "is not the code that is pinned" in said
    assert imported == []


def test_a_refused_start_keeps_and_adopts_nothing(locked):
    before = sorted(path.name for path in (locked.state / "charters").iterdir())
    current = locked.store().current()
    changed_source(locked)
    assert refusals(locked)
    assert sorted(path.name for path in (locked.state / "charters").iterdir()) == before
    assert locked.store().current() == current


def test_locking_refuses_plugins_in_place_where_a_lock_is_required_unless_it_is_told(locked):
    code_installed_in_place(locked)
    [said] = refusals(locked, locked.lock)
    assert "deedbook lock --editable" in said
    locked.lock(editable=True)
    assert pins(locked)["plugins"] == {"offered": {"version": "1.0", "editable": True}}
    assert locked.open().charter.document["plugins"]["tool/echo"]["digest"] is None


def test_a_lock_that_nobody_requires_may_name_plugins_in_place(shop):
    code_installed_in_place(shop)
    shop.lock()
    assert pins(shop)["plugins"] == {"offered": {"version": "1.0", "digests": []}}


def test_a_lock_for_the_profile_that_runs_passes(locked):
    locked.settings("profiles: {local: {}, prod: {durability: always}}\nprofile: prod\n")
    locked.lock()
    assert locked.open().charter.document["profile"] == pins(locked)["profile"] == "prod"


def test_a_state_folder_holds_only_what_was_in_force(shop):
    digest = shop.open().charter.digest
    assert sorted(path.name for path in (shop.state / "charters").iterdir()) == sorted([digest, "current.json"])
    assert canonical.parse((shop.state / "charters" / "current.json").read_bytes()).keys() == {"charter", "mac"}
