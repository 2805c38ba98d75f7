"""What an adapter says of an agent's tools: the entry points of the group ``deedbook.adapters``.

The name of the entry point is that of the framework, and its target a function that takes an agent of the framework and
returns `AgentTools`. ``deedbook adopt`` calls it. It reads what the framework knows; it runs no tool and asks no model.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import attrs

from deedbook.contract import Object
from deedbook.format.errors import BindingError, describe, fault
from deedbook.plugins.commands import entry_points
from deedbook.plugins.plugins import known_owners

GROUP: Final = "deedbook.adapters"
"""The group of entry points; each is the function of one framework."""


@attrs.frozen
class ToolDescription:
    """A tool as its framework describes it to a model.

    *input_schema* is the JSON Schema of its arguments, ``None`` if there is none. *annotations* are hints in the form
    of MCP, such as ``{"readOnlyHint": True}``.
    """

    name: str
    description: str = ""
    input_schema: Object | None = None
    annotations: Mapping[str, Any] = attrs.field(factory=dict)


@attrs.frozen
class AgentTools:
    """The *tools* of an agent, and what they do not include: *unlisted* has a sentence for each, for a person."""

    tools: tuple[ToolDescription, ...]
    unlisted: tuple[str, ...] = ()


ListTools: TypeAlias = Callable[[Any], AgentTools]


def find_adapter(framework: str) -> ListTools:
    """Return the function of a framework's adapter; raises `BindingError` if there is none, or more than one."""
    found = {name: (owner, target) for owner, name, target in entry_points(GROUP)}
    owners = sorted(owner for owner, name, _ in entry_points(GROUP) if name == framework)
    if len(owners) > 1:
        why = f"adapter {framework!r} is offered by {' and '.join(owners)}; uninstall all but one"
        raise BindingError(fault("PLUGIN_BROKEN", why))
    if framework not in found:
        raise BindingError(_missing_error(framework, sorted(found)))
    return _load(framework, *found[framework])


def not_an_agent(value: Any, wanted: str) -> BindingError:
    """Return the error for a *value* that is no agent of the framework; *wanted* is the name of the agent's class."""
    kind = type(value).__name__
    todo = "name a module's variable that holds one"
    if callable(value):
        todo = f"{todo}, or a function that builds one: MODULE:FUNCTION()"
    return BindingError(fault("USAGE", f"it is {kind!r} and not a {wanted}; {todo}"))


def _load(framework: str, owner: str, target: str) -> ListTools:
    from importlib_metadata import EntryPoint  # noqa: PLC0415 - only this command needs it

    try:
        made: ListTools = EntryPoint(framework, target, GROUP).load()
    except Exception as problem:
        why = f"the adapter {framework!r} of {owner} cannot be imported: {describe(problem)}"
        raise BindingError(fault("PLUGIN_BROKEN", why)) from problem
    return made


def _missing_error(framework: str, installed: list[str]) -> Any:
    owner = known_owners("adapter").get(framework)
    todo = f"pip install '{owner}[framework]'" if owner else "correct the name, or install its adapter"
    has = ", ".join(installed) or "none"
    return fault("PLUGIN_MISSING", f"no adapter for {framework!r} is installed; installed: {has}; {todo}")
