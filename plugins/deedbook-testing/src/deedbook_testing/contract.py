"""What every plugin keeps to, whatever its kind."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from deedbook.format.errors import DeedbookError
from deedbook.format.schema import Schemas, foreign
from deedbook.plugins.plugins import Offer, discover, load

from .imports import HEAVY, foreign_imports, is_among, modules_after
from .lab import Lab
from .offered import list_installed
from .watching import Watch, vars_of

SUBJECT = "subject-of-the-contract"
"""The id under which the plugin stands in the workspaces of its tests."""
_UNKNOWN: Mapping[str, Any] = {"no_such_setting": True}


class Contract:
    """Inherit from the contract of a kind in a test class, and say what is yours.

    *name* is that of the entry point. *settings* are what YAML gives it, *bad_settings* some that it has to refuse,
    *secrets* the values of the secrets that it asks for, by name. *rooms* are modules of the kernel that a distribution
    of Deedbook's own may import beside the contract. *prepare* writes what it needs into the workspace. A fixture with
    ``autouse=True`` may set any of them on ``self``, such as the address of a server of your own.
    """

    kind: ClassVar[str] = ""
    name: str = ""
    distribution: str | None = None
    settings: Mapping[str, Any] = {}
    bad_settings: Sequence[Mapping[str, Any]] = ()
    secrets: Mapping[str, str] = {}
    heavy: Collection[str] = HEAVY
    rooms: Collection[str] = ()

    def prepare(self, lab: Lab) -> None:
        """Write into the workspace what the plugin needs there; nothing, unless you say otherwise."""

    def declare(self, lab: Lab, settings: Mapping[str, Any], **more: Any) -> None:
        """Write the YAML that puts the plugin into force."""
        raise NotImplementedError

    # --- fixtures -----------------------------------------------------------------------------------------------------

    @pytest.fixture
    def offer(self) -> Offer:
        """Return the entry point, as an installed distribution offers it; not imported."""
        try:
            return discover(list_installed()).find(self.kind, self.name)
        except DeedbookError as problem:
            pytest.fail(str(problem), pytrace=False)

    @pytest.fixture
    def workshop(
        self, tmp_path: Path, kernel_schemas: Schemas, monkeypatch: pytest.MonkeyPatch, subject: type[Any] | None
    ) -> Iterator[Callable[..., Lab]]:
        """Return what makes a workspace with the plugin in force, as often as it is asked."""
        for name, value in self.secrets.items():
            monkeypatch.setenv(_variable(name), value)
        made: list[Lab] = []

        def make(settings: Mapping[str, Any] | None = None, **more: Any) -> Lab:
            lab = Lab(tmp_path / f"workspace-{len(made)}", kernel_schemas)
            made.append(lab)
            if self.secrets:
                lab.settings(secrets={name: {"env": _variable(name)} for name in self.secrets})
            if subject is not None:
                lab.offer(self.kind, SUBJECT, subject, distribution="subject")
            self.prepare(lab)
            self.declare(lab, self.settings if settings is None else settings, **more)
            return lab

        yield make
        for lab in made:
            lab.close()

    @pytest.fixture
    def subject(self) -> type[Any] | None:
        """Return the class that the workspaces use; nothing where there is none."""
        return None

    # --- what every plugin keeps to -----------------------------------------------------------------------------------

    def test_is_offered_by_an_installed_distribution(self, offer: Offer) -> None:
        """One distribution offers it, and no other one does."""
        wanted = self.distribution or offer.distribution
        assert offer.distribution == wanted, f"{offer} is not offered by {wanted}"


class PluginContract(Contract):
    """What every plugin keeps to that is a class: all but packs."""

    @pytest.fixture
    def plugin(self, offer: Offer) -> type[Any]:
        """Return the class, loaded and checked as the kernel does it."""
        try:
            return load(offer)
        except DeedbookError as problem:
            pytest.fail(str(problem), pytrace=False)

    @pytest.fixture
    def watch(self) -> Watch:
        """Return what is seen of the plugin in this test."""
        return Watch()

    @pytest.fixture
    def subject(self, plugin: type[Any]) -> type[Any] | None:
        """Return the class that the workspaces use."""
        return plugin

    def test_fits_its_kind(self, plugin: type[Any]) -> None:
        """It is a class; its `spec`, its constructor and its methods are those of its kind, and its schemas compile."""
        for member in ("settings", "takes", "gives"):
            schema = getattr(plugin.spec, member, None)
            if schema is not None:
                foreign(schema, place=f"`spec.{member}` of {self.kind} {self.name}")

    def test_takes_its_settings_and_refuses_others(self, plugin: type[Any], workshop: Callable[..., Lab]) -> None:
        """The schema (or ``spec.check``) accepts its settings and refuses what it does not know; so does the kernel."""
        validator = foreign(plugin.spec.settings, place=f"`spec.settings` of {self.name}")
        assert validator.valid(dict(self.settings)), f"{self.name} refuses its own settings {dict(self.settings)}"
        unknown = [{**self.settings, **_UNKNOWN}] if plugin.spec.settings else []
        for bad in [*unknown, *self.bad_settings]:
            checked = bad not in unknown and getattr(plugin.spec, "check", None)
            assert checked or not validator.valid(dict(bad)), f"{self.name}: `spec.settings` accepts {dict(bad)}"
            lab = workshop(bad)
            with pytest.raises(DeedbookError):
                begin(lab)

    def test_imports_of_the_kernel_only_the_contract(self, offer: Offer) -> None:
        """Nothing but ``deedbook`` and ``deedbook.contract`` is promised."""
        found = list(foreign_imports(offer, self.rooms))
        assert not found, f"{offer}: {found}; import from `deedbook` or `deedbook.contract`"

    def test_importing_it_imports_nothing_heavy(self, offer: Offer) -> None:
        """What takes long to import is imported at the first call."""
        imported = modules_after(f"import importlib; importlib.import_module({offer.target.partition(':')[0]!r})")
        found = sorted(module for module in imported if is_among(module, self.heavy))
        assert not found, f"{offer} imports {found}; import it inside the function that uses it"

    # --- for the kinds ------------------------------------------------------------------------------------------------

    def leaks(self, lab: Lab, made: Sequence[Any], said: Sequence[Any] = ()) -> list[str]:
        """Return where a secret's value is to be read: in a file, in what was *said*, in how objects print."""
        texts = {f"what it said: {each!r:.60}": repr(each) for each in said}
        texts |= {f"how {type(each).__mro__[1].__name__} prints": f"{each!r}{vars_of(each)!r}" for each in made}
        files = {str(path.relative_to(lab.path)): path.read_bytes() for path in _files(lab.path)}
        values = self.secrets.values()
        return [name for name, text in texts.items() if any(value in text for value in values)] + [
            name for name, data in files.items() if any(value.encode() in data for value in values)
        ]


def begin(lab: Lab) -> None:
    """Bind all that the workspace names, and begin a session; raises `DeedbookError` if it is refused."""
    lab.session().end(ok=True, reason="only begun")


def tree(root: Path) -> dict[str, bytes]:
    """Return the files of a workspace without its state, by path."""
    return {str(path.relative_to(root)): path.read_bytes() for path in _files(root) if ".deedbook" not in path.parts}


def _files(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.is_file() and not path.is_symlink())


def _variable(secret: str) -> str:
    return f"CONTRACT_SECRET_{secret.upper().replace('-', '_')}"
