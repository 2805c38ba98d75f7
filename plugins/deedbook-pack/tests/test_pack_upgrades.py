"""Upgrade, downgrade and removal of a pack while sessions, runs and approval requests are open."""

import importlib
import shutil
from pathlib import Path

import importlib_metadata
import packfiles
import packing
import pytest
from commandline import Place, starter

from deedbook import Ok, open_kernel
from deedbook_pack.building import build_wheel

RULE = """\
    schema_version: v1
    id: house-quiet
    kind: rules
    match: {{kind: [tool]}}
    rules:
      - {{match: {{abilities: [echo], args: {{/text: {{like: "{like}"}}}}}}, then: {then}, reason: {reason}}}
    default: allow
"""
FIRST = {"policies/quiet.yaml": RULE.format(like="**!", then="ask", reason="loud")}
SECOND = {"policies/quiet.yaml": RULE.format(like="**", then="deny", reason="silence")}


class Site:
    """A folder of installed distributions on the path, with one version of the pack at a time."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.wheels: dict[str, Path] = {}

    def build(self, version: str, files: dict[str, str]) -> None:
        """Build a version of the pack."""
        folder = packfiles.write(self.place.parent / "sources" / version, files, version=version)
        self.wheels[version] = build_wheel(folder, self.place.parent / "dist").path

    def install(self, version: str | None) -> None:
        """Replace what is installed by a version of the pack, as pip does; by nothing for ``None``."""
        shutil.rmtree(self.place, ignore_errors=True)
        self.place.mkdir()
        if version:
            packing.unpack(self.wheels[version], self.place)
        importlib.invalidate_caches()
        importlib_metadata.MetadataPathFinder.invalidate_caches()


@pytest.fixture
def site(tmp_path, monkeypatch) -> Site:
    made = Site(tmp_path / "site")
    made.build("1.0", FIRST)
    made.build("2.0", SECOND)
    made.install("1.0")
    monkeypatch.syspath_prepend(str(made.place))
    return made


@pytest.fixture
def place(tmp_path, site, monkeypatch) -> Place:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    made = starter(tmp_path / "workspace")
    text = "schema_version: v1\npacks: [house]\nprincipals: {ada: {key: ada.pub, roles: [approver]}}\n"
    made.configure("schema_version: v1\n", text)
    made.here("keys", "new", "ada", "--out", ".system/ada.pub", status=0)
    return made


def say(session, text):
    """Call echo; return the text that comes back, or the code of the error."""
    result = session.call("echo", {"text": text}, wait=0)
    return result.value["text"] if isinstance(result, Ok) else result.error.code


@pytest.mark.parametrize("version", ["2.0", None])
def test_an_open_session_keeps_the_charter_that_it_began_with(place, site, version):
    with open_kernel(place.path) as kernel, kernel.session() as session:
        assert say(session, "hi") == "hi"
        site.install(version)  # 2.0 denies everything; None removes the pack
        assert (say(session, "hi"), say(session, "hi!")) == ("hi", "NEEDS_HUMAN")
        old = session.id
    if version is None:
        refused = place.here("call", "echo", "text=hi", status=1)
        assert "pack 'house' is not installed" in refused.err
        place.configure("packs: [house]\n", "")
        removed = place.here("call", "echo", "text=hi!", status=0)
        assert "charter looser: policy house-quiet is gone" in removed.err
    else:
        denied = place.here("call", "echo", "text=hi", status=3)
        rule = "policy house-quiet, pack house (deedbook-pack-house 2.0): policies/quiet.yaml:6"
        assert f"silence (by {rule})" in denied.err
        assert "charter looser: plugin pack/house: deedbook-pack-house 2.0, other code" in denied.err
    verified = place.here("verify", old, status=0)  # judged again under the charter of its time
    assert "sound" in verified.out


def test_a_request_binds_to_the_charter_and_a_downgrade_makes_it_valid_again(place, site):
    place.here("call", "echo", "text=hi!", status=3)
    request = place.request()
    site.install("2.0")
    refused = place.here("approvals", "approve", request, status=1)
    assert "[APPROVAL_CHARTER_CHANGED]" in refused.err
    site.install("1.0")
    place.here("approvals", "approve", request, status=0)
    site.install("2.0")
    assert "[APPROVAL_CHARTER_CHANGED]" in place.here("approvals", "run", request, status=1).err
    place.configure("packs: [house]\n", "")
    assert "[APPROVAL_CHARTER_CHANGED]" in place.here("approvals", "run", request, status=1).err
    place.configure("schema_version: v1\n", "schema_version: v1\npacks: [house]\n")
    site.install("1.0")
    assert place.here("approvals", "run", request, "--json", status=0).json


def test_a_suspended_run_needs_consent_to_go_on_under_another_version(place, site):
    place.here("run", "Say hello to Ada", status=3)
    (session,) = place.sessions()
    site.install("2.0")
    refused = place.here("resume", session, status=1)
    assert "[RESUME_CHARTER_CHANGED]" in refused.err
    assert "--accept-charter" in refused.err
    site.install("1.0")
    assert "[NEEDS_HUMAN]" in place.here("resume", session, status=3).err  # its charter is in force again, and it waits


def test_a_required_lock_refuses_another_version_until_it_is_pinned(place, site):
    place.configure("lock: auto ", "lock: required ")
    place.here("lock", "--editable", status=0)
    site.install("2.0")
    refused = place.here("call", "echo", "text=hi", status=1)
    assert "deedbook-pack-house 2.0 is not the code that is pinned" in refused.err
    locked = place.here("lock", "--editable", status=0).out
    assert "tighter policy house-quiet: rule" in locked
    place.here("call", "echo", "text=hi", status=3)
