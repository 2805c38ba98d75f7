"""Installed plugins, as real distributions in folders: found without importing, loaded one by one, refused in words."""

import gc
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import tomllib
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import importlib_metadata
import orjson
import pytest

from deedbook.contract import ALLOW, Call, Decision, GateSpec, Host, Object, hookimpl
from deedbook.contract.lifecycle import EVENTS
from deedbook.format import canonical
from deedbook.format.errors import BindingError
from deedbook.plugins.groups import GROUPS
from deedbook.plugins.plugins import Catalogue, Installation, Offer, discover, find_implementation, load

ROOT = Path(__file__).parents[1]
TOOL = """
from deedbook import HandlerSpec

class Plugin:
    spec = HandlerSpec(gives={"type": "object"}, effects="read")
    def __init__(self, settings, host): ...
    def __call__(self, args, ctx): return {}
"""


def site(
    place: Path,
    name: str,
    points: Mapping[tuple[str, str], str],
    modules: Mapping[str, str],
    version: str = "1.0",
    **metadata: str,
) -> Path:
    """Put a distribution into *place*, as an installer would leave it: modules, metadata and a record of its files."""
    told = f"{name.replace('-', '_')}-{version}.dist-info"
    entry_points = "".join(f"[{GROUPS[kind]}]\n{point} = {target}\n" for (kind, point), target in points.items())
    files = {
        **modules,
        f"{told}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{told}/entry_points.txt": entry_points,
        f"{told}/licenses/LICENSE": "do what you like",
        **{f"{told}/{key.replace('__', '.')}": text for key, text in metadata.items()},
    }
    record = "".join(f"{path},,\n" for path in [*files, f"{told}/RECORD", "__pycache__/x.cpython-311.pyc", "../bin/x"])
    for path, text in {**files, f"{told}/RECORD": record}.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_text(text, encoding="utf-8")
    return place


def found(*places: Path) -> Catalogue:
    return discover(importlib_metadata.distributions(path=[str(place) for place in places]))


@pytest.fixture(name="module")
def make_module(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Return a name for a module, and forget the module afterwards."""
    name = f"plugin_under_test_{os.urandom(4).hex()}"
    yield name
    sys.modules.pop(name, None)


@pytest.fixture(name="loading")
def make_loading(tmp_path: Path, module: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., type[Any]]:
    """Return a function that installs a module with some source and loads its ``Plugin``."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def loading(source: str, kind: str = "tool", attribute: str = "Plugin") -> type[Any]:
        site(tmp_path, "acme", {(kind, "thing"): f"{module}:{attribute}"}, {f"{module}.py": source})
        return load(found(tmp_path).find(kind, "thing"), "ability.yaml:4:1")

    return loading


def refused(match: str = "", code: str = "PLUGIN_BROKEN") -> Any:
    return pytest.raises(BindingError, match=match or None, check=lambda problem: problem.error.code == code)


# --- finding ----------------------------------------------------------------------------------------------------------


def test_discovery_imports_nothing_even_where_an_import_would_end_the_process(tmp_path: Path, module: str) -> None:
    source = f"open({str(tmp_path / 'imported')!r}, 'w'); raise SystemExit(0)"
    points = {(kind, "thing"): f"{module}:Plugin" for kind in GROUPS}
    site(tmp_path, "acme", points, {f"{module}.py": source})
    catalogue = found(tmp_path)
    offers = [catalogue.find(kind, "thing") for kind in GROUPS]
    assert [offer.digest for offer in offers] == [offers[0].digest] * len(GROUPS)
    assert [str(offer) for offer in offers[:1]] == ["tool plugin 'thing' of acme 1.0"]
    assert module not in sys.modules
    assert not (tmp_path / "imported").exists()


def test_discovery_finds_what_is_installed_here() -> None:
    offer = discover().find("policy", "rules")
    assert (offer.distribution, offer.target) == ("deedbook-policy-standard", "deedbook_policy_standard.rules:Rules")
    assert load(offer).__name__ == "Rules"


def test_catalogue_lists_names_of_a_kind_in_order_and_other_groups_not_at_all(tmp_path: Path) -> None:
    site(tmp_path, "acme", {("tool", "b"): "m:B", ("tool", "a"): "m:A", ("hook", "c"): "m:C"}, {})
    told = next(tmp_path.glob("acme*.dist-info"))
    with (told / "entry_points.txt").open("a") as file:
        file.write("[console_scripts]\nacme = m:main\n")
    catalogue = found(tmp_path)
    assert (catalogue.names("tool"), catalogue.names("hook"), catalogue.names("flow")) == (("a", "b"), ("c",), ())


def test_catalogue_names_the_nearest_where_a_plugin_is_missing(tmp_path: Path) -> None:
    site(tmp_path, "acme", {("hook", "redact-pii"): "m:A", ("hook", "deny-tools"): "m:B"}, {})
    with refused(code="PLUGIN_MISSING") as missing:
        found(tmp_path).find("hook", "redact-pi", ".system/hooks/redact.yaml:4")
    assert str(missing.value) == (
        ".system/hooks/redact.yaml:4: hook 'redact-pi' is not installed; did you mean \"redact-pii\"?; "
        "installed: deny-tools, redact-pii. Correct the name, or pip install its plugin."
    )


def test_catalogue_refuses_a_name_that_two_distributions_offer_and_names_both(tmp_path: Path) -> None:
    for name, version in (("acme", "1.0"), ("other", "2.5")):
        site(tmp_path, name, {("tool", "echo"): "m:A", ("tool", name): "m:A"}, {}, version)
    catalogue = found(tmp_path)
    with refused("tool 'echo' is offered by (acme 1.0 and other 2.5|other 2.5 and acme 1.0); uninstall all but one"):
        catalogue.find("tool", "echo")
    assert catalogue.names("tool") == ("acme", "other")


def test_discovery_takes_the_first_of_distributions_with_one_name_as_an_import_does(tmp_path: Path) -> None:
    first = site(tmp_path / "first", "Acme.Tools", {("tool", "new"): "m:A"}, {}, "2.0")
    second = site(tmp_path / "second", "acme-tools", {("tool", "new"): "m:A", ("tool", "old"): "m:A"}, {}, "1.0")
    catalogue = found(first, second)
    assert (catalogue.find("tool", "new").version, catalogue.names("tool")) == ("2.0", ("new",))


def test_discovery_lets_a_distribution_without_plugins_hide_a_later_one_of_its_name(tmp_path: Path) -> None:
    first = site(tmp_path / "first", "acme", {}, {}, "2.0")
    second = site(tmp_path / "second", "acme", {("tool", "old"): "m:A"}, {}, "1.0")
    assert found(first, second).names("tool") == ()


@pytest.mark.parametrize("damage", ["no metadata", "no version", "no text"])
def test_discovery_goes_on_beside_a_distribution_that_cannot_be_read_and_says_so(tmp_path: Path, damage: str) -> None:
    site(tmp_path, "acme", {("tool", "echo"): "m:A"}, {})
    site(tmp_path, "broken", {("tool", "gone"): "m:A"}, {})
    told = tmp_path / "broken-1.0.dist-info"
    if damage == "no metadata":
        (told / "METADATA").unlink()
    elif damage == "no version":
        (told / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\n")
    else:
        (told / "entry_points.txt").write_bytes(b"[deedbook.tools]\n\xff\xfe = m:A\n")
    catalogue = found(tmp_path)
    assert catalogue.names("tool") == ("echo",)
    with refused(r"the metadata of .*broken-1\.0\.dist-info: .* cannot be read", "PLUGIN_MISSING"):
        catalogue.find("tool", "gone")


# --- digests ----------------------------------------------------------------------------------------------------------


def offered(place: Path) -> Offer:
    return found(place).find("tool", "echo")


def acme(place: Path, source: str = TOOL, target: str = "acme:Plugin", **more: Any) -> Offer:
    modules = {"acme/__init__.py": source, "acme/data.json": "{}"}
    return offered(site(place, "acme", {("tool", "echo"): target}, modules, **more))


def test_digest_is_that_of_the_wheel_wherever_and_however_it_was_installed(tmp_path: Path) -> None:
    for place in ("one", "other"):  # a script is written for the interpreter that it lies beside
        (tmp_path / place / "bin").mkdir(parents=True)
        (tmp_path / place / "bin/x").write_text(f"#!{tmp_path / place}/bin/python")
    one = acme(tmp_path / "one/lib", INSTALLER="pip", REQUESTED="")
    archive = '{"url": "file:///x/acme.whl", "archive_info": {}}'
    other = acme(tmp_path / "other/lib", INSTALLER="uv", direct_url__json=archive)
    (tmp_path / "other/lib/__pycache__").mkdir()
    (tmp_path / "other/lib/__pycache__/x.cpython-311.pyc").write_bytes(b"compiled here")
    assert one.digest == other.digest
    assert len(one.digest or "") == 64


def test_digest_changes_with_a_byte_of_a_module_a_data_file_or_an_entry_point(tmp_path: Path) -> None:
    digests = {
        acme(tmp_path / "a").digest,
        acme(tmp_path / "b", TOOL + " ").digest,
        acme(tmp_path / "c", target="acme:P").digest,
    }
    data = acme(tmp_path / "d")
    (tmp_path / "d/acme/data.json").write_text("{ }")
    digests.add(data.digest)
    absent = acme(tmp_path / "e")
    (tmp_path / "e/acme/data.json").unlink()
    digests.add(absent.digest)
    assert len(digests) == 5


def test_digest_tells_apart_files_that_changed_their_names(tmp_path: Path) -> None:
    names = [("x.py", "y.py"), ("y.py", "x.py"), ("a/x.py", "y.py"), ("b/x.py", "y.py")]
    digests = set()
    for index, (first, second) in enumerate(names):
        modules = {first: "1", second: "2"}
        digests.add(offered(site(tmp_path / str(index), "acme", {("tool", "echo"): "x:P"}, modules)).digest)
    assert len(digests) == len(names)


@pytest.mark.parametrize(
    ("direct_url", "editable"),
    [
        ('{"url": "file:///x", "dir_info": {"editable": true}}', True), ('{"url": "file:///x", "dir_info": {}}', False),
        ('{"url": "file:///x", "archive_info": {}}', False), ("not json", True), ("[]", True),
        ('{"dir_info": 1}', True),
    ],
)  # fmt: skip
def test_digest_of_an_editable_distribution_is_none(tmp_path: Path, direct_url: str, editable: bool) -> None:
    offer = acme(tmp_path, direct_url__json=direct_url)
    assert (offer.editable, offer.digest is None) == (editable, editable)


def test_digest_of_a_distribution_without_a_record_is_none(tmp_path: Path) -> None:
    acme(tmp_path)
    next(tmp_path.glob("*.dist-info/RECORD")).unlink()
    assert offered(tmp_path).digest is None


def test_digest_of_a_wheel_that_pip_installed_in_two_places_is_one(tmp_path: Path) -> None:
    pytest.importorskip("pip")
    tree = site(tmp_path / "tree", "acme", {("tool", "echo"): "acme:Plugin"}, {"acme/__init__.py": TOOL})
    (tree / "acme-1.0.dist-info/WHEEL").write_text("Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    told = "".join(f"{path.relative_to(tree)},,\n" for path in tree.rglob("*") if path.is_file())
    (tree / "acme-1.0.dist-info/RECORD").write_text(told)
    wheel = tmp_path / "acme-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path in sorted(each for each in tree.rglob("*") if each.is_file()):
            archive.write(path, path.relative_to(tree))
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--disable-pip-version-check"]
    for place in ("one", "other"):
        subprocess.run([*pip, "--target", tmp_path / place, wheel], check=True, capture_output=True)
    one, other = offered(tmp_path / "one"), offered(tmp_path / "other")
    assert one.digest == other.digest is not None
    (tmp_path / "one/acme/__init__.py").write_text(TOOL + "\n")
    assert offered(tmp_path / "one").digest != other.digest


# --- loading ----------------------------------------------------------------------------------------------------------


def test_loading_returns_the_class_that_the_entry_point_names(loading: Any) -> None:
    assert loading(TOOL).__name__ == "Plugin"


def test_loading_follows_a_dotted_attribute(loading: Any) -> None:
    inner = TOOL.replace("\n", "\n    ").replace("from deedbook import HandlerSpec", "")
    assert (
        loading(f"from deedbook import HandlerSpec\nclass Outer:\n{inner}", attribute="Outer.Plugin").__name__
        == "Plugin"
    )


LINE = r" \(plugin_under_test_\w+\.py:1\)"


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("raise ValueError('no key')", f"ValueError: no key{LINE}"),
        ("import sys; sys.exit(0)", f"SystemExit: 0{LINE}"),
        ("def", r"SyntaxError: invalid syntax \(plugin_under_test_\w+\.py, line 1\)"),
        ("import nothing_of_that_name", f"ModuleNotFoundError: No module named 'nothing_of_that_name'{LINE}"),
        ("x = 1", "AttributeError: .* has no attribute 'Plugin'"), ("raise GeneratorExit", f"GeneratorExit{LINE}"),
        ("import asyncio; raise asyncio.CancelledError", f"CancelledError{LINE}"),
        ("class E(Exception):\n  def __str__(self): raise OSError\nraise E", r"E \(plugin_under_test_\w+\.py:3\)"),
        ("raise BaseException('\\ud800')", rf"BaseException: \\ud800{LINE}"),
    ],
)  # fmt: skip
def test_loading_refuses_a_module_that_does_not_import_whatever_it_raises(loading: Any, source: str, says: str) -> None:
    with refused(rf"^ability\.yaml:4:1: tool plugin 'thing' of acme 1\.0: does not load from \w+:Plugin: {says}$"):
        loading(source)


@pytest.mark.parametrize(
    "target", ["", "not a target", "no_such_module_anywhere:X", ":X", "os.path", "json:dumps", "os:"]
)
def test_loading_refuses_an_entry_point_that_names_no_class(tmp_path: Path, target: str) -> None:
    metadata = next(iter(importlib_metadata.distributions(path=[str(site(tmp_path, "acme", {}, {}))])))
    with refused("^tool plugin 'thing' of acme 1.0: "):
        load(Offer("tool", "thing", target, "acme", "1.0", Installation(metadata)))


def test_loading_never_imports_a_pack(loading: Any, tmp_path: Path) -> None:
    with refused("a pack is data, and is never imported"):
        loading(f"open({str(tmp_path / 'imported')!r}, 'w')", kind="pack")
    assert not (tmp_path / "imported").exists()


def test_loading_lets_the_interrupt_of_a_person_through(loading: Any) -> None:
    with pytest.raises(KeyboardInterrupt):
        loading("raise KeyboardInterrupt")


@pytest.mark.parametrize("name", ["json.dumps", "json.loads", "hashlib.sha256", "orjson.dumps", "orjson.loads"])
def test_loading_refuses_a_plugin_that_replaces_what_others_hash_with_and_puts_it_back(loading: Any, name: str) -> None:
    libraries = {"json": json, "hashlib": hashlib, "orjson": orjson}
    library, function = name.split(".")
    before = getattr(libraries[library], function)
    with refused(f"replaced {name} while it was loaded"):
        loading(f"import {library}\n{library}.{function} = lambda *_, **__: b'{{}}'\n{TOOL}")
    assert getattr(libraries[library], function) is before


def test_loading_puts_back_also_what_a_plugin_replaced_before_it_failed(loading: Any) -> None:
    before = json.dumps
    with refused("SystemExit"):
        loading("import json, sys\njson.dumps = str\nsys.exit()")
    assert json.dumps is before


@pytest.mark.parametrize("patch", ["_sha256 = lambda raw: hashlib.md5(raw)", "_dumps = lambda value, option=0: b'{}'"])
def test_loading_refuses_a_plugin_that_changes_how_the_kernel_hashes(
    loading: Any, monkeypatch: pytest.MonkeyPatch, patch: str
) -> None:
    for name in ("_sha256", "_dumps"):
        monkeypatch.setattr(canonical, name, getattr(canonical, name))
    with refused(r"replaced deedbook\.format\.canonical\.\w+ while it was loaded"):
        loading(f"import hashlib\nfrom deedbook.format import canonical\ncanonical.{patch}\n{TOOL}")


@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="handlers are the main thread's")
def test_loading_undoes_what_an_import_did_to_signals_recursion_limit_and_warnings(loading: Any) -> None:
    def state() -> Any:
        return (
            [signal.getsignal(number) for number in signal.valid_signals()],
            sys.getrecursionlimit(),
            warnings.filters[:],
        )

    before = state()
    loading(
        "import signal, sys, warnings\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "signal.signal(signal.SIGINT, lambda *_: 0)\nsys.setrecursionlimit(50_000)\n"
        f"warnings.simplefilter('ignore')\n{TOOL}"
    )
    assert state() == before


def test_loading_works_in_another_thread_too(loading: Any) -> None:
    made: list[Any] = []
    thread = threading.Thread(target=lambda: made.append(loading(TOOL)))
    thread.start()
    thread.join()
    assert [plugin.__name__ for plugin in made] == ["Plugin"]


# --- hooks, bound -----------------------------------------------------------------------------------------------------


class Both:
    """A hook that answers two events."""

    spec = GateSpec()

    def __init__(self, settings: Object, host: Host) -> None:
        self.settings = settings

    @hookimpl
    def pre_tool_use(self, call: Call) -> Decision:
        return ALLOW

    @hookimpl(specname="stop")
    def halt(self, session: str, ok: bool, now: str, facts: Object) -> Decision:
        return ALLOW


@pytest.fixture(name="offer")
def make_offer(tmp_path: Path) -> Offer:
    return found(site(tmp_path, "acme", {("hook", "both"): "m:Both"}, {})).find("hook", "both")


def test_implementation_is_the_objects_own_method(offer: Offer) -> None:
    made = Both({}, None)  # type: ignore[arg-type]
    assert find_implementation(offer, made, "PreToolUse") == made.pre_tool_use
    assert find_implementation(offer, made, "Stop") == made.halt


def test_implementation_that_is_missing_is_refused_with_the_events_that_there_are(offer: Offer) -> None:
    with refused(
        r"^hook\.yaml:1: hook plugin 'both' of acme 1\.0: has 0 answers to SessionStart; it answers PreToolUse, Stop$"
    ):
        find_implementation(offer, Both({}, None), "SessionStart", "hook.yaml:1")  # type: ignore[arg-type]


def test_implementation_of_a_hook_that_forgot_the_mark_is_refused(offer: Offer) -> None:
    class Forgetful:
        def pre_tool_use(self, call: Call) -> Decision:
            return ALLOW

    with refused(r"it answers nothing \(is @hookimpl missing\?\)"):
        find_implementation(offer, Forgetful(), "PreToolUse")


@pytest.mark.parametrize("problem", [RuntimeError("no"), SystemExit(0)], ids=repr)
def test_implementation_of_a_hook_that_raises_when_looked_at_is_refused(offer: Offer, problem: BaseException) -> None:
    class Touchy(Both):
        def __dir__(self) -> Any:
            raise problem

    with refused(f"{type(problem).__name__}: {problem}"):
        find_implementation(offer, Touchy({}, None), "PreToolUse")  # type: ignore[arg-type]


def test_implementation_of_an_event_that_has_two_is_refused(offer: Offer) -> None:
    class Twice(Both):
        @hookimpl(specname="pre_tool_use")
        def again(self, call: Call) -> Decision:
            return ALLOW

    with refused("has 2 answers to PreToolUse"):
        find_implementation(offer, Twice({}, None), "PreToolUse")  # type: ignore[arg-type]


def test_implementation_that_pluggy_does_not_know_is_refused(offer: Offer) -> None:
    class Extra(Both):
        @hookimpl
        def pre_tool_used(self, call: Call) -> Decision:
            return ALLOW

    with refused("pre_tool_used"):
        find_implementation(offer, Extra({}, None), "PreToolUse")  # type: ignore[arg-type]


def test_every_event_has_a_specification_that_pluggy_takes(offer: Offer) -> None:
    for event in EVENTS:
        with refused(f"has 0 answers to {event}"):
            find_implementation(offer, object(), event)
    gc.collect()


def test_first_party_plugin_that_is_missing_is_named_with_its_distribution():
    with pytest.raises(BindingError, match="It is in deedbook-tool-standard: pip install deedbook-tool-standard"):
        discover([]).find("tool", "echo")


def test_every_first_party_plugin_is_known_with_its_distribution():
    groups = {**GROUPS, "command": "deedbook.commands", "feature": "deedbook.features"}
    groups["adapter"] = "deedbook.adapters"  # of deedbook-guard: `deedbook adopt`
    offered = {}
    for path in sorted([*ROOT.glob("plugins/*/pyproject.toml"), *ROOT.glob("adapters/*/pyproject.toml")]):
        project = tomllib.loads(path.read_text())["project"]
        for group, points in project.get("entry-points", {}).items():
            kinds = [kind for kind, its in groups.items() if its == group]
            offered |= {f"{kind}/{name}": project["name"] for kind in kinds for name in points}
    known = json.loads((ROOT / "known/plugins.json").read_text())
    checking = {name: known.pop(name) for name in list(known) if name.startswith("doctor/")}
    assert known == offered
    assert {name.replace("doctor/", "feature/"): owner for name, owner in checking.items()}.items() <= offered.items()
