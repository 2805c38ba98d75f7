"""The coding agents whose hooks are known, each from a table: its events, the forms of its answers, its tools.

A table (``bridges/<agent>.json``) is data: nothing that differs between agents is written in code. *forms* are named
once; an event names the form of each kind of answer that the agent documents for it, and of no other.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import attrs
import orjson

from deedbook.contract import Object

Moment: TypeAlias = Literal[
    "begin", "prompt", "before", "dialogue", "after", "failed", "refused", "stop", "compact", "settings", "gate",
    "told", "end",
]  # fmt: skip
"""What an agent's event is to us: a session begins or ends, a prompt comes, a tool is about to be used (`before`), the
agent asks its person (`dialogue`), a tool was used, failed, or was refused by the agent itself; it wants to stop, it
wants to shorten what it knows, its settings change; something else happens that can be refused (`gate`) or that only
is recorded (`told`)."""

Kind: TypeAlias = Literal["deny", "ask", "allow", "change", "result", "context", "go_on", "notice"]
"""A kind of answer: a denial, a question to the person, permission without a question, another input, another result,
text for the model, more work for an agent that wants to stop, or a denial that an agent only shows to its person."""

GATES: Final[frozenset[Moment]] = frozenset({"before", "prompt", "dialogue", "compact", "settings", "gate"})
"""The moments at which something is about to happen: whatever goes wrong then, the answer is no."""
OF_A_TOOL: Final[frozenset[Moment]] = frozenset({"before", "dialogue", "after", "failed", "refused"})
"""The moments that are about a use of a tool."""
_TABLES: Final = Path(__file__).with_name("bridges")
OTHER: Final = "other"
"""The ability of all tools that an agent has and nobody declared."""
MCP: Final = "mcp"
"""The ability of all tools of MCP servers that nobody declared."""


@attrs.frozen(kw_only=True)
class Form:
    """How a kind of answer is written: the JSON to print, in which placeholders stand, and the exit status."""

    prints: Mapping[str, Any] = attrs.field(factory=dict)
    exit: int = 0


@attrs.frozen(kw_only=True)
class Event:
    """One event of an agent.

    *answers* holds the form of each kind of answer that the agent documents for it. *records* names the members of its
    input that are recorded where nobody decides. *fields* overrides the agent's own. *limit* is the most seconds that
    the agent gives a hook. *beside* are members that its tool's input has and that of the call has not. *merges*: a
    changed input is laid over the agent's own. *shaped*: another result counts only if it has the shape of the first,
    except from an MCP server, and a denial stops the agent, which keeps the result. *text* points to what the model
    sees of a result. *excepts*: a denial has no effect where a member of the input is one of these. *install* says why
    no hook is installed for it, if there is a reason.
    """

    name: str
    moment: Moment
    answers: Mapping[Kind, Form] = attrs.field(factory=dict)
    records: tuple[str, ...] = ()
    fields: Mapping[str, str] = attrs.field(factory=dict)
    limit: int | None = None
    beside: tuple[str, ...] = ()
    merges: bool = False
    shaped: bool = False
    text: str = ""
    excepts: Mapping[str, tuple[str, ...]] = attrs.field(factory=dict)
    install: str = ""


@attrs.frozen(kw_only=True)
class HookFile:
    """A file that can hold an agent's hooks; *path* begins with ``~/`` where it is for every project of a person.

    *begin* is what a new one begins with.
    """

    path: str
    begin: Mapping[str, Any] = attrs.field(factory=dict)

    @property
    def shared(self) -> bool:
        """Whether the file is for all projects of a person."""
        return self.path.startswith("~/")


@attrs.frozen(kw_only=True)
class HookEntry:
    """How an agent's file names a hook: in groups with a matcher or not, and its time limit.

    *stopping* is what a hook has beside where it can refuse something.
    """

    grouped: bool
    timeout: str
    unit: int
    stopping: Mapping[str, Any]


@attrs.frozen(kw_only=True)
class McpNames:
    """How an agent names the tools of MCP servers: *prefix*, server, *separator*, tool.

    *context* is the member of a hook's input that has both apart, if there is one.
    """

    prefix: str
    separator: str
    context: str = ""

    def holds(self, tool: str, said: Mapping[str, Any]) -> bool:
        """Say whether *tool* is one of an MCP server; *said* is the hook's whole input."""
        return bool(self.context and said.get(self.context)) or tool.startswith(self.prefix)

    def server(self, tool: str, said: Mapping[str, Any]) -> str:
        """Return the name of the server that has *tool*, as far as it can be told."""
        apart = said.get(self.context) if self.context else None
        if isinstance(apart, dict) and isinstance(apart.get("server_name"), str):
            return str(apart["server_name"])
        return tool.removeprefix(self.prefix).split(self.separator, 1)[0]


@attrs.frozen(kw_only=True)
class Known:
    """A coding agent.

    *fields* maps our names to its own (empty: it has none such). *personal* is the file of hooks that one person has
    for a project, *project* the one that is committed, *others* where hooks may stand, too; *homes* names environment
    variables that move a folder, *off* what in these files keeps hooks from running. *trust* says whom the agent runs
    hooks for, *needs* what it needs beside. *source* is where all this was read, *tried* whether anybody ran it.
    """

    agent: str
    title: str
    source: str
    tried: bool
    personal: HookFile
    project: HookFile
    others: tuple[HookFile, ...]
    homes: Mapping[str, str]
    entry: HookEntry
    off: Mapping[str, Any]
    trust: str
    needs: str
    fields: Mapping[str, str]
    records: tuple[str, ...]
    events: Mapping[str, Event]
    mcp: McpNames | None
    tools: Mapping[str, Mapping[str, Any]]

    def event(self, moment: Moment) -> Event | None:
        """Return the agent's first event of that moment."""
        return next((each for each in self.events.values() if each.moment == moment), None)

    def understands(self, moment: Moment, kind: Kind) -> bool:
        """Say whether the agent documents that kind of answer for an event of that moment."""
        event = self.event(moment)
        return event is not None and kind in event.answers

    @property
    def installed(self) -> tuple[Event, ...]:
        """The events that a hook is installed for."""
        return tuple(each for each in self.events.values() if not each.install)


def names() -> tuple[str, ...]:
    """Return the names of all agents that are known, sorted."""
    return tuple(sorted(place.stem for place in _TABLES.glob("*.json")))


def known(name: str) -> Known | None:
    """Return what is known of the agent *name*."""
    if name not in names():
        return None
    table: Any = orjson.loads((_TABLES / f"{name}.json").read_bytes())
    forms = {
        each: Form(prints=form.get("print", {}), exit=form.get("exit", 0)) for each, form in table["forms"].items()
    }
    files = table["files"]
    return Known(
        **{
            each: table[each]
            for each in ("agent", "title", "source", "tried", "off", "trust", "needs", "fields", "tools")
        },
        personal=HookFile(**files["personal"]),
        project=HookFile(**files["project"]),
        others=tuple(HookFile(**each) for each in files["others"]),
        homes=files["homes"],
        entry=HookEntry(**table["entry"]),
        records=tuple(table["records"]),
        events={each: _event(each, event, forms) for each, event in table["events"].items()},
        mcp=McpNames(**table["mcp"]) if "mcp" in table else None,
    )


def _event(name: str, event: Mapping[str, Any], forms: Mapping[str, Form]) -> Event:
    answers = {kind: forms[form] for kind, form in event.get("answers", {}).items()}
    more: dict[str, Any] = {each: event[each] for each in event if each != "answers"}
    more |= {each: tuple(more.get(each, ())) for each in ("records", "beside")}
    return Event(name=name, answers=answers, **more)


def takes(tool: Mapping[str, Any]) -> Object:
    """Return the JSON Schema of a tool's input: what is known of it is typed, and anything may stand beside it."""
    schema = {"type": "object", "properties": dict(tool.get("properties", {}))}
    return {**schema, "required": list(tool["required"])} if "required" in tool else schema
