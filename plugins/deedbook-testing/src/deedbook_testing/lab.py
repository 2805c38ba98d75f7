"""A workspace to try things in: real files, a real kernel, plugins offered as if pip had installed them."""

import itertools
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from deedbook.contract import Event, GateSpec, HandlerSpec
from deedbook.format.errors import DeedbookError
from deedbook.format.reader import read
from deedbook.format.schema import Schemas, data_folder
from deedbook.kernel import Kernel, open_kernel
from deedbook.plugins.groups import ENTRY_POINTS
from deedbook.plugins.plugins import Catalogue, discover
from deedbook.policy.bindings import Bindings
from deedbook.sessions.session import Session
from deedbook_audit.charters import CHARTER_MISSING
from deedbook_audit.checking import Checker
from deedbook_audit.recheck import CharterSource, recheck
from deedbook_audit.rederive import rejudge
from deedbook_audit.report import Report
from deedbook_serve.tasks.runner import Tasks

from .offered import (
    OfferedDistribution,
    as_context_flow,
    list_installed,
    make_handler_class,
    make_hook_class,
    make_policy_class,
)

_numbers: Final = itertools.count()
_FINE: Final = frozenset({"same", "undetermined"})
_ANYTHING: Final[Mapping[str, Any]] = {"type": ["object", "array", "string", "number", "boolean", "null"]}


class Lab:
    """A workspace in *path*, empty but for ``.system/deedbook.yaml``, which allows ``write`` without a policy.

    `close` verifies every ledger that was written here, with *schemas* (default: the kernel's own); a test that damages
    one on purpose sets *damaged*.
    """

    def __init__(self, path: Path, schemas: Schemas | None = None) -> None:
        self.path = path
        self.schemas = schemas or Schemas.load(data_folder("schemas"))
        self.damaged = False
        self._settings: dict[str, Any] = {"schema_version": "v1", "default": {"write": "allow"}}
        self._points: list[tuple[str, str, str, str]] = []
        self._modules: list[str] = []
        self._kernels: list[Kernel] = []
        self._sessions: list[Session] = []
        self.settings()

    # --- sources ------------------------------------------------------------------------------------------------------

    def write(self, path: str, text: str, *, system: bool = True) -> Path:
        """Write a file of the workspace, below ``.system`` unless *system* is false; return its place."""
        place = (self.path / ".system" if system else self.path) / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
        return place

    def settings(self, **sections: Any) -> None:
        """Put *sections* into ``deedbook.yaml``; objects are merged with what earlier calls have put there."""
        merged = _merge(self._settings, sections)
        self._settings = {**{name: merged[name] for name in merged if name != "default"}, "default": merged["default"]}
        self.write("deedbook.yaml", json.dumps(self._settings, indent=1))

    def allow_irreversible(self) -> None:
        """Write a policy that allows calls with irreversible effects, which would ask a person without one."""
        body = {"kind": "rules", "match": {"effects": ["irreversible"]}, "rules": [], "default": "allow"}
        self.settings(policies={"irreversible": body})

    def role(self, name: str, instructions: str = "Do it.") -> None:
        """Write the instructions of a role."""
        self.write(f"agents/{name}.md", instructions)

    def guide(self, text: str, name: str = "ROUTING.md") -> None:
        """Write a routing document, ``ROUTING.md`` or ``ABILITY.md``."""
        self.write(name, text)

    def skill(self, name: str, *, allows: str = "", triggers: str = "") -> None:
        """Write a skill that allows the abilities *allows*, separated by spaces; its trigger defaults to its name."""
        tools = json.dumps(allows.split())
        front = f"name: {name}\ndescription: Does {name}.\nallowed-tools: {tools}\ntriggers: [{triggers or name}]"
        self.write(f"skills/{name}/SKILL.md", f"---\n{front}\n---\n# {name}\n")

    # --- plugins ------------------------------------------------------------------------------------------------------

    def offer(self, kind: str, name: str, plugin: object, *, distribution: str = "offered") -> None:
        """Offer *plugin* (a class, as an entry point would name it) under *name*, as *distribution* would.

        What the distribution offered under that name before is gone then, as after an upgrade.
        """
        module = ModuleType(f"deedbook_offered_{next(_numbers)}")
        module.plugin = plugin  # type: ignore[attr-defined]
        sys.modules[module.__name__] = module
        self._modules.append(module.__name__)
        new = (distribution, ENTRY_POINTS[kind], name)
        self._points = [point for point in self._points if point[:3] != new]
        self._points.append((*new, f"{module.__name__}:plugin"))

    def tool(self, name: str, function: Callable[[Any, Any], Any], /, **more: Any) -> None:
        """Offer and declare a tool whose handler is *function*; *more* goes to `HandlerSpec` or to the YAML.

        It has no effects and takes and gives anything unless *more* says otherwise.
        """
        spec, rest = _spec(more)
        offered = _plugin_name(name)
        self.offer("tool", offered, make_handler_class(function, spec))
        self._declare("abilities", name, {"summary": f"{name}.", "handler": {"tool": offered}, **rest})

    def flow(self, name: str, function: Callable[[Any, Any], Any], /, **more: Any) -> None:
        """Offer and declare a flow, which also becomes the profile's own; see `tool`.

        If *function* leaves the context unfinished, its result completes it: a text, or ``{"reply", "state"}``. With
        ``gives``, the flow is standalone.
        """
        spec, rest = _spec({"gives": None, **more})
        offered = _plugin_name(name)
        self.offer(
            "flow", offered, make_handler_class(function if spec.gives is not None else as_context_flow(function), spec)
        )
        self._declare("abilities", name, {"summary": f"{name}.", "handler": {"flow": offered}, **rest})
        self.settings(profile="lab", profiles={"lab": {} if spec.gives is not None else {"flow": name}})

    def model(self, function: Callable[[Any, Any], Any], /, *, tier: str = "standard", **more: Any) -> None:
        """Offer a provider and let it serve *tier*; *function* may return the text alone, or whole response."""
        spec, rest = _spec({"effects": "read", **more})
        name = f"offered-{tier}"
        self.offer("provider", name, make_handler_class(lambda request, ctx: _response(function(request, ctx)), spec))
        self.settings(
            profile="lab", profiles={"lab": {"models": {tier: {"provider": name, "model": f"{tier}-1", **rest}}}}
        )

    def hook(self, name: str, event: str, function: Callable[..., Any], /, **more: Any) -> None:
        """Offer and define a hook: *function* takes the event's arguments; *more* is for `GateSpec` or the YAML.

        It matches every tool, model and flow unless *more* has a ``match``, which may be ``None``.
        """
        spec, rest = _gate(more)
        self.offer("hook", f"offered-{name}", make_hook_class(event, function, spec))
        match = rest.pop("match", {"kind": ["tool", "model", "flow"]} if event.endswith("ToolUse") else None)
        more = {**rest, "match": match} if match else rest
        self._declare("hooks", name, {"event_type": event, "handler": {"hook": f"offered-{name}"}, **more})

    def policy(self, name: str, function: Callable[[Any], Any], /, **more: Any) -> None:
        """Offer a policy kind and declare one policy of it; without a ``match`` it fits tools and flows; see `hook`."""
        spec, rest = _gate(more)
        self.offer("policy", f"offered-{name}", make_policy_class(function, spec))
        self._declare("policies", name, {"kind": f"offered-{name}", **rest})

    def catalogue(self) -> Catalogue:
        """Return what is installed, and what is offered here."""
        names = dict.fromkeys(distribution for distribution, *_ in self._points)
        offered: list[Any] = [
            OfferedDistribution(name, [tuple(point) for of, *point in self._points if of == name])  # type: ignore[misc]
            for name in names
        ]
        return discover([*offered, *list_installed()])

    def _declare(self, section: str, name: str, entry: Mapping[str, Any]) -> None:
        self.settings(**{section: {name: dict(entry)}})

    # --- running ------------------------------------------------------------------------------------------------------

    def kernel(self, **options: Any) -> Kernel:
        """Open the workspace; closed with the lab."""
        kernel = open_kernel(self.path, **{"catalogue": self.catalogue(), **options})
        self._kernels.append(kernel)
        return kernel

    def session(self, purpose: str = "open", **options: Any) -> Session:
        """Begin a session in a kernel of its own; raises `SessionRefused` if a hook refuses it.

        *options* are those of `open_kernel` and of `Kernel.session`.
        """
        opening = {name: options.pop(name) for name in ("profile", "catalogue") if name in options}
        session = self.kernel(**opening).session(purpose, **options)
        self._sessions.append(session)
        return session

    @contextmanager
    def tasks(self, session: Session) -> Iterator[Tasks]:
        """Give the tasks of the principal of *session*, which was begun here."""
        kernel = next(each for each in self._kernels if each.active_charter.charter is session.bindings.charter)
        tasks = Tasks(kernel, session)
        try:
            yield tasks
        finally:
            tasks.close()

    # --- looking at the record ----------------------------------------------------------------------------------------

    @property
    def state(self) -> Path:
        """The folder of the workspace's state."""
        return self._kernels[-1].site.state if self._kernels else self.path / ".deedbook"

    def ledger(self, session: Session | str | None = None) -> Path:
        """Return where the ledger of *session* is; without one, of the last session begun here."""
        last = self._sessions[-1].id if self._sessions else ""
        name = session.id if isinstance(session, Session) else session or last
        return self.state / "sessions" / name / ".events.jsonl"

    def events(self, session: Session | str | None = None) -> list[Event]:
        """Return the events of a session."""
        return list(read(self.ledger(session)))

    def types(self, session: Session | str | None = None) -> list[str]:
        """Return the types of a session's events, in order."""
        return [event.type for event in self.events(session)]

    def all(self, event_type: str, session: Session | str | None = None) -> list[Event]:
        """Return the events of that type, in order."""
        return [event for event in self.events(session) if event.type == event_type]

    def one(self, event_type: str, session: Session | str | None = None) -> Event:
        """Return the one event of that type; fails the test if there is none, or another."""
        found = self.all(event_type, session)
        assert len(found) == 1, f"{len(found)} events {event_type} in {self.types(session)}"
        return found[0]

    def payload(self, event_type: str, session: Session | str | None = None) -> Mapping[str, Any]:
        """Return the payload of the one event of that type."""
        return self.one(event_type, session).payload

    def verify(self, session: Session | str | None = None) -> Report:
        """Verify the ledger of a session, with the charters that the state folder keeps.

        So the events of features and flows are checked against the schemas that their charter declares.
        """
        with self._checker() as checker:
            return checker(self.ledger(session))

    # --- the end ------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End what is open, take back what was offered, and verify every ledger."""
        for session in self._sessions:
            with suppress(DeedbookError):
                session.end(ok=True, reason="the lab is closed")
        if not self.damaged:
            self._check_decisions()
        for kernel in self._kernels:
            kernel.close()
        for name in self._modules:
            sys.modules.pop(name, None)
        if not self.damaged:
            self._check_ledgers()

    def _check_decisions(self) -> None:
        """Judge every recorded call again under the charter that it was judged by: every decision is the same.

        Calls of a resumed session that were judged under another charter are left out.
        """
        for session in self._sessions:
            if self.ledger(session).exists():
                own = session.bindings.charter.digest
                judged = (each for each in rejudge(self.ledger(session), session.bindings))
                changed = [each for each in judged if each.change not in _FINE and each.call.session.charter == own]
                found = [(each.call.seq, each.call.ability, each.call.code, each.change) for each in changed]
                assert not found, f"judged again, other decisions: {found}"
                told = recheck(self.ledger(session), _only(session.bindings))
                assert not told.failures, f"made again, otherwise: {[str(each) for each in told.failures]}"

    def _check_ledgers(self) -> None:
        with self._checker() as checker:
            for place in sorted(self.state.glob("*/**/.events.jsonl")):
                report = checker(place)
                assert report.sound, "\n".join(report.lines())
                lost = [note for note in report.notes if report.state == "ended" and "without an outcome" in note]
                assert not lost, f"{place}: {lost[0]}"

    def _checker(self) -> Checker:
        return Checker((self.path, self.state), schemas=self.schemas)


def _only(bindings: Bindings) -> CharterSource:
    """Return a source of charters that has only that of *bindings*."""
    return lambda digest: bindings if digest == bindings.charter.digest else CHARTER_MISSING


def _plugin_name(name: str) -> str:
    """Return the name of the plugin behind an ability: entry points are not sorted into folders."""
    return f"offered-{name.replace('/', '-')}"


def _merge(old: Any, new: Any) -> Any:
    if isinstance(old, dict) and isinstance(new, Mapping):
        return {**old, **{key: _merge(old.get(key), value) for key, value in new.items()}}
    return new


def _split(more: Mapping[str, Any], names: frozenset[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    rest = {"with" if name == "with_" else name: value for name, value in more.items() if name not in names}
    return {name: value for name, value in more.items() if name in names}, rest


def _spec(more: Mapping[str, Any]) -> tuple[HandlerSpec, dict[str, Any]]:
    mine, rest = _split(
        more,
        frozenset(
            {"settings", "takes", "gives", "effects", "interruptible", "reconciles", "records", "files", "images"}
        ),
    )
    return HandlerSpec(**{"effects": "none", "takes": _ANYTHING, "gives": _ANYTHING, **mine}), rest


def _gate(more: Mapping[str, Any]) -> tuple[GateSpec, dict[str, Any]]:
    mine, rest = _split(more, frozenset({"settings", "reads", "pure", "rewrites"}))
    return GateSpec(**{**mine, "reads": frozenset(mine.get("reads", ()))}), rest


def _response(answer: Any) -> Any:
    """Return a whole ``completion_response_v2`` where *answer* is only its text, its tool calls, or a part of it."""
    said = (
        {"text": answer} if isinstance(answer, str) else {"tool_calls": answer} if isinstance(answer, list) else answer
    )
    if not isinstance(said, dict):
        return said
    calls = said.get("tool_calls", [])
    usage = {"input_tokens": 1, "output_tokens": 1}
    whole = {"text": "", "tool_calls": calls, "finish_reason": "tool_use" if calls else "stop", "usage": usage}
    return {**whole, "model": "offered", "schema_version": "v2", **said}
