"""What runs of a pinned distribution is what was hashed: no bytecode, no file beside the recorded ones."""

import importlib
import importlib.util
import json
import marshal
import os
import py_compile
import shutil
import subprocess
import sys
import sysconfig
from itertools import count
from pathlib import Path

import importlib_metadata
import pytest
from commandline import Place

from deedbook.format.errors import BindingError
from deedbook.plugins import pinned_code
from deedbook.plugins.plugins import discover, load

_NUMBERS = count()
SOURCE = 'WHO = "recorded"\n'
FORGED = 'WHO = "attacker"\n'  # as long as the source
PLUGIN = """
from deedbook import HandlerSpec
try:
    from .extra import WHO as EXTRA
except ImportError:
    EXTRA = "none"
from .inner import WHO

class Plugin:
    spec = HandlerSpec(effects="none", settings={"type": "object"}, takes={"type": "object"}, gives={})
    def __init__(self, settings, host): pass
    def __call__(self, args, ctx): return {}
    who, extra = WHO, EXTRA
    def later(self):
        from . import later
        return later.WHO
"""


class Site:
    """A folder with an installed distribution *name*, a tool whose class says which code it runs."""

    def __init__(self, place: Path) -> None:
        self.place, self.name = place, f"pinned_under_test_{next(_NUMBERS)}"
        files = {"__init__.py": PLUGIN, "inner.py": SOURCE, "later.py": SOURCE}
        told = f"{self.name}-1.0.dist-info"
        record = [f"{self.name}/{each}" for each in files] + [f"{told}/{each}" for each in ("METADATA", "RECORD")]
        self.write(f"{told}/METADATA", f"Metadata-Version: 2.1\nName: {self.name}\nVersion: 1.0\n")
        self.write(f"{told}/entry_points.txt", f"[deedbook.tools]\n{self.name} = {self.name}:Plugin\n")
        self.write(f"{told}/RECORD", "".join(f"{each},,\n" for each in [*record, f"{told}/entry_points.txt"]))
        for each, text in files.items():
            self.write(f"{self.name}/{each}", text)

    def write(self, path: str, text: str) -> Path:
        file = self.place / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file

    @property
    def inner(self) -> Path:
        return self.place / self.name / "inner.py"

    def offer(self):
        return discover(importlib_metadata.distributions(path=[str(self.place)])).find("tool", self.name)


@pytest.fixture
def site(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    return Site(tmp_path)


def compile_other(site, mode):
    """Leave bytecode of another source in ``__pycache__`` that Python takes for that of the recorded source."""
    cached = importlib.util.cache_from_source(str(site.inner))
    about = site.inner.stat()
    site.inner.write_text(FORGED, encoding="utf-8")
    os.utime(site.inner, ns=(about.st_atime_ns, about.st_mtime_ns))
    py_compile.compile(str(site.inner), cached, invalidation_mode=mode)
    site.inner.write_text(SOURCE, encoding="utf-8")
    os.utime(site.inner, ns=(about.st_atime_ns, about.st_mtime_ns))


def compile_alone(site):
    source = site.write("elsewhere/extra.py", FORGED)
    py_compile.compile(str(source), str(site.place / site.name / "extra.pyc"))


def put_extension(site):
    """Put an extension module beside the source, under the name that Python prefers."""
    library = importlib.util.find_spec("orjson.orjson").origin
    shutil.copy(library, site.inner.with_name(f"inner{sysconfig.get_config_var('EXT_SUFFIX')}"))


ATTACKS = {
    "unchecked bytecode": lambda site: compile_other(site, py_compile.PycInvalidationMode.UNCHECKED_HASH),
    "bytecode with the time of the source": lambda site: compile_other(site, py_compile.PycInvalidationMode.TIMESTAMP),
    "bytecode without a source": compile_alone,
    "a package beside the module": lambda site: site.write(f"{site.name}/inner/__init__.py", FORGED),
    "an extension beside the module": put_extension,
    "a module that is not recorded": lambda site: site.write(f"{site.name}/extra.py", FORGED),
    "a folder that is not recorded": lambda site: site.write(f"{site.name}/extra/__init__.py", FORGED),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_only_recorded_sources_run(site, attack):
    ATTACKS[attack](site)
    made = load(site.offer())
    assert (made.who, made.extra) == ("recorded", "none")


def test_changed_source_is_not_run_later(site):
    made = load(site.offer())
    site.inner.with_name("later.py").write_text(FORGED, encoding="utf-8")
    with pytest.raises(pinned_code.UnpinnedCodeError, match=r"later\.py changed since .* install .* again"):
        made({}, None).later()


def test_change_after_the_comparison_with_the_charter_is_refused(site):
    offer = site.offer()
    assert offer.digest
    site.inner.write_text(FORGED, encoding="utf-8")
    with pytest.raises(BindingError, match=r"inner\.py changed since"):
        load(offer)


def test_bytecode_that_python_ran_before_is_compared(site):
    compile_other(site, py_compile.PycInvalidationMode.UNCHECKED_HASH)
    assert importlib.import_module(f"{site.name}.inner").WHO == "attacker"
    with pytest.raises(BindingError, match=r"is not the bytecode of .*inner\.py; remove it"):
        load(site.offer())


def test_modules_that_python_imported_before_are_accepted_if_they_are_the_recorded_ones(site):
    assert importlib.import_module(site.name).Plugin.who == "recorded"
    assert load(site.offer()).who == "recorded"


def test_module_of_an_earlier_version_is_not_taken_for_the_present_one(site):
    load(site.offer())
    site.inner.write_text(FORGED, encoding="utf-8")
    with pytest.raises(BindingError, match=r"inner changed since this process loaded it; start again"):
        load(site.offer())


# --- bytecode of our own ----------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Give the folder of bytecode of a user of its own."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    pinned_code._find_folder.cache_clear()
    yield tmp_path / "config" / "deedbook" / "bytecode"
    pinned_code._find_folder.cache_clear()


def run(code):
    space = {}
    exec(code, space)
    return space["WHO"]


def test_bytecode_is_kept_for_its_user_only_and_used_again(folder):
    assert run(pinned_code.compile_source(SOURCE.encode(), "/x.py")) == "recorded"
    (kept,) = folder.iterdir()
    assert (folder.stat().st_mode & 0o777, kept.stat().st_mode & 0o777) == (0o700, 0o600)
    known = pinned_code._read(str(kept))
    assert known == pinned_code.compile_source(SOURCE.encode(), "/x.py")
    assert run(pinned_code.compile_source(FORGED.encode(), "/x.py")) == "attacker"
    assert len(list(folder.iterdir())) == 2


@pytest.mark.parametrize("damage", [b"", b"x" * 40, b"\0" * 32 + marshal.dumps(compile(FORGED, "x", "exec"))])
def test_damaged_bytecode_is_compiled_again(folder, damage):
    pinned_code.compile_source(SOURCE.encode(), "/x.py")
    (kept,) = folder.iterdir()
    kept.write_bytes(damage)
    assert run(pinned_code.compile_source(SOURCE.encode(), "/x.py")) == "recorded"
    assert pinned_code._read(str(kept)) is not None


@pytest.mark.parametrize("which", ["bytecode", "its parent", "a link"])
def test_folder_that_others_may_write_is_not_used(folder, which):
    folder.mkdir(parents=True)
    if which == "a link":
        folder.rmdir()
        (folder.parent / "other").mkdir()
        folder.symlink_to(folder.parent / "other")
    else:
        (folder if which == "bytecode" else folder.parent).chmod(0o777)
    assert run(pinned_code.compile_source(SOURCE.encode(), "/x.py")) == "recorded"
    assert list(folder.iterdir()) == []


def test_locked_workspace_runs_the_recorded_code_in_a_process_of_its_own(tmp_path):
    """The whole way: the lock is fulfilled, and a forged ``.pyc`` beside the source changes nothing."""
    place = Place(tmp_path / "workspace")
    site = Site(tmp_path / "site")
    site.write(f"{site.name}/__init__.py", PLUGIN.replace("return {}", "return {'who': WHO}"))
    place.env["PYTHONPATH"] = str(site.place)
    ability = {"summary": "Say who runs.", "handler": {"tool": site.name}, "schema_out": True}
    place.system(
        "deedbook.yaml", json.dumps({"schema_version": "v1", "lock": "required", "abilities": {"who": ability}})
    )
    place.here("lock", status=0)
    assert place.here("call", "who", status=0).json == {"who": "recorded"}
    compile_other(site, py_compile.PycInvalidationMode.UNCHECKED_HASH)
    told = subprocess.run(
        [sys.executable, "-c", f"from {site.name}.inner import WHO; print(WHO)"],
        env={**os.environ, **place.env}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert told.stdout == "attacker\n"
    assert place.here("call", "who", status=0).json == {"who": "recorded"}
