"""Whoever can write the state folder alone cannot change what is in force: it follows from the sources."""

import json
import os
import shutil
from pathlib import Path

import pytest
import workshop

from deedbook import Err, Ok, open_kernel
from deedbook.charter.cachekeys import NAME, CacheKey
from deedbook.format import canonical
from deedbook.format.paths import user_folder
from deedbook.format.reader import read
from deedbook.policy.charter import Charter

DENIED = "rules: [{match: {abilities: [other]}, then: allow}]\nmatch: {}\ndefault: deny\n"


@pytest.fixture
def shop(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    made = workshop.bench(tmp_path / "made")
    made.ability("echo", "effects: write\n")
    made.policy("baseline", DENIED)
    yield made
    made.withdraw()


def call(shop, **options):
    """Start once and call the ability that the policy denies; return the result and the charter's digest."""
    with open_kernel(shop.root, catalogue=shop.catalogue(), **options) as opened, opened.session() as session:
        return session.call("echo", {"text": "hi"}), opened.active_charter.charter.digest


def named(shop):
    return [event.payload["digest"] for event in read(shop.state / "workspace") if event.type == "ledger.charter"]


def forge(shop, change, *, points=("current.json", "starts.json")):
    """Store an edited charter under its new digest, and let the records of the last start name it."""
    charters = shop.state / "charters"
    digest = json.loads((charters / "current.json").read_bytes())["charter"]
    document = json.loads((charters / digest / "charter.json").read_bytes())
    change(document)
    forged = Charter.of(document)
    shutil.copytree(charters / digest, charters / forged.digest)
    (charters / forged.digest / "charter.json").write_bytes(forged.raw)
    for name in points:
        text = (charters / name).read_text()
        assert digest in text
        (charters / name).write_text(text.replace(digest, forged.digest))
    return forged.digest


def allow(document):
    document["policies"]["baseline"]["settings"]["default"] = "allow"


def without_lock(document):
    allow(document)
    document["lock"] = "auto"


def test_forged_charter_does_not_come_into_force(shop):
    first, honest = call(shop)
    assert isinstance(first, Err)
    forged = forge(shop, allow)
    result, digest = call(shop)
    assert (result.error.code, digest) == ("GATE_DENIED", honest)
    assert named(shop) == [honest, honest]
    [recorded] = [event.payload for event in read(shop.state / "workspace") if event.type == "ledger.charter"][1:]
    assert recorded["previous"] == forged
    assert any("default" in each for each in recorded["tighter"])


@pytest.mark.parametrize("points", [("current.json",), ("starts.json",)])
def test_either_record_alone_brings_no_forged_charter_into_force(shop, points):
    _, honest = call(shop)
    forge(shop, allow, points=points)
    assert call(shop)[1] == honest


def test_forged_charter_counts_no_more_when_the_sources_are_read(shop):
    _, honest = call(shop)
    forge(shop, allow)
    (shop.state / "charters" / "starts.json").unlink()
    assert call(shop)[1] == honest


def test_forged_charter_that_unlocks_itself_does_not_come_into_force(shop):
    shop.settings("lock: required\n")
    shop.lock(kernel=workshop.KERNEL)
    _, honest = call(shop)
    assert call(shop)[1] == honest
    forge(shop, without_lock)
    assert call(shop)[1] == honest


def test_forged_listing_hides_no_new_policy(shop):
    shop.policy("baseline", "rules: [{match: {abilities: [echo]}, then: allow}]\nmatch: {}\n")
    assert call(shop)[0] == Ok({"text": "hi"})
    starts = shop.state / "charters" / "starts.json"
    record = json.loads(starts.read_bytes())
    shop.policy("strict", "rules: []\nmatch: {}\ndefault: deny\n")
    from deedbook.format.files import Folder
    from deedbook.workspace import inventory

    with Folder.at(shop.root) as root:
        record[""]["listing"] = inventory.digest_names(root, record[""]["folders"])
    starts.write_bytes(canonical.encode(record))
    assert isinstance(call(shop)[0], Err)


def test_start_of_one_profile_does_not_count_for_another(shop):
    shop.settings("profiles: {local: {}, other: {durability: os}}\n")
    _, honest = call(shop)
    _, other = call(shop, profile="other")
    assert honest != other
    call(shop)
    starts = shop.state / "charters" / "starts.json"
    record = json.loads(starts.read_bytes())
    starts.write_bytes(canonical.encode({**record, "": record["other"]}))
    assert call(shop)[1] == honest


def test_code_of_another_users_key_counts_for_nothing(shop, tmp_path, monkeypatch):
    _, honest = call(shop)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "mallory"))
    forged = forge(shop, allow)
    charters = shop.state / "charters"
    mallory = CacheKey.read(user_folder(os.environ), shop.root, create=True)
    record = json.loads((charters / "starts.json").read_bytes())
    plain = {name: value for name, value in record[""].items() if name != "mac"}
    record[""]["mac"] = mallory.code("charters/starts.json", ["", plain])
    (charters / "starts.json").write_bytes(canonical.encode(record))
    mac = mallory.code("charters/current.json", forged)
    (charters / "current.json").write_bytes(canonical.encode({"charter": forged, "mac": mac}))
    assert call(shop)[0] == Ok({"text": "hi"}), "the forgery works for its own author"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    assert call(shop)[1] == honest


# --- a start without a key --------------------------------------------------------------------------------------------


def loose(key):
    key.chmod(0o644)


def garbled(key):
    key.write_text("key\n")


def linked(key):
    key.rename(key.with_name("other"))
    key.symlink_to("other")


def folder(key):
    key.unlink()
    key.mkdir()


def open_to_all(key):
    key.parent.chmod(0o777)


@pytest.mark.parametrize("damage", [loose, garbled, linked, folder, open_to_all])
def test_without_a_good_key_every_start_compiles_and_none_is_refused(shop, tmp_path, damage):
    _, honest = call(shop)
    damage(tmp_path / "config" / "deedbook" / NAME)
    assert CacheKey.read(tmp_path / "config" / "deedbook", shop.root).why
    assert call(shop)[1] == honest
    assert call(shop)[1] == honest
    assert named(shop) == [honest]
    forge(shop, allow)
    assert call(shop)[1] == honest


def test_key_inside_the_workspace_is_not_used(shop, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(shop.root / "home"))
    _, honest = call(shop)
    assert not (shop.root / "home").exists()
    assert call(shop)[1] == honest


def test_key_inside_the_state_folder_is_not_used(shop, tmp_path, monkeypatch):
    shop.settings(f"state: {tmp_path / 'state'}\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "state" / "config"))
    call(shop)
    assert not (tmp_path / "state" / "config").exists()


def test_key_is_made_once_and_only_its_owner_can_read_it(shop, tmp_path):
    call(shop)
    key = tmp_path / "config" / "deedbook" / NAME
    made = key.read_bytes()
    assert (key.stat().st_mode & 0o777, len(made)) == (0o600, 65)
    call(shop)
    assert key.read_bytes() == made


def test_two_starts_that_make_the_key_at_once_agree(tmp_path):
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(8) as pool:
        keys = list(pool.map(lambda _: CacheKey.read(tmp_path / "deedbook", Path("/w"), create=True), range(32)))
    assert len({key.secret for key in keys}) == 1
    assert keys[0].secret
