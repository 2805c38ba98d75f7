"""The coding agents whose hooks Deedbook supports.

Each agent has a table (``bridges/<agent>.json``) with its events, the forms of its answers and its tools. The table is
data: no code differs between agents. It names each *form* once; an event names the form of each kind of answer that the
agent documents for it.
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
"""The meaning of an agent's event for Deedbook: a session begins (`begin`) or ends (`end`), a prompt arrives
(`prompt`), a tool is about to run (`before`), the agent asks its user (`dialogue`), a tool ran (`after`), failed
(`failed`) or was refused by the agent itself (`refused`), the agent wants to stop (`stop`) or to compact its context
(`compact`), its settings change (`settings`), another event that can be refused (`gate`), or an event that is only
recorded (`told`)."""

Kind: TypeAlias = Literal["deny", "ask", "allow", "change", "result", "context", "go_on", "notice"]
"""A kind of answer: a denial, a question to the user, permission without a question, a changed input, a changed result,
text for the model, more work for an agent that wants to stop, or a denial that the agent only shows to its user."""

GATES: Final[frozenset[Moment]] = frozenset({"before", "prompt", "dialogue", "compact", "settings", "gate"})
"""The moments before something happens: on any error the answer is a denial."""
TOOL_MOMENTS: Final[frozenset[Moment]] = frozenset({"before", "dialogue", "after", "failed", "refused"})
"""The moments that concern one use of a tool."""
_TABLES: Final = Path(__file__).with_name("bridges")
OTHER: Final = "other"
"""The ability for all tools of an agent that no table and no workspace declares."""
MCP: Final = "mcp"
"""The ability for all undeclared tools of MCP servers."""


@attrs.frozen(kw_only=True)
class Form:
    """The form of one kind of answer: the JSON to print, with placeholders, and the exit status."""

    prints: Mapping[str, Any] = attrs.field(factory=dict)
    exit: int = 0


@attrs.frozen(kw_only=True)
class Event:
    """One event of an agent.

    *answers* holds the form of each kind of answer that the agent documents for it. *records* names the members of its
    input that are recorded when no decision is made. *fields* overrides the agent's own field names. *limit* is the
    longest time in seconds that the agent gives a hook. *beside* lists members that the tool's input has here and that
    the call does not have. *merges*: the agent merges a changed input into its own. *shaped*: the agent accepts another
    result only if it has the shape of the first, except from an MCP server, and a denial stops the agent, which keeps
    the result. *text* points to the part of a result that the model sees. *excepts*: a denial has no effect where a
    member of the input has one of these values. *install* is the reason why no hook is installed for the event, if
    there is one.
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
    """A file that can hold an agent's hooks.

    *path* begins with ``~/`` if the file applies to all projects of a user. *begin* is the initial content of a new
    file.
    """

    path: str
    begin: Mapping[str, Any] = attrs.field(factory=dict)

    @property
    def is_shared(self) -> bool:
        """Whether the file applies to all projects of a user."""
        return self.path.startswith("~/")


@attrs.frozen(kw_only=True)
class HookEntry:
    """The form of a hook in an agent's file: grouped under a matcher or not, and its time limit.

    *stopping* holds the extra members of a hook that can refuse.
    """

    grouped: bool
    timeout: str
    unit: int
    stopping: Mapping[str, Any]


@attrs.frozen(kw_only=True)
class McpNames:
    """The form of an agent's names for the tools of MCP servers: *prefix*, server, *separator*, tool.

    *context* is the member of a hook's input that holds server and tool separately, if there is one.
    """

    prefix: str
    separator: str
    context: str = ""

    def matches(self, tool: str, hook_input: Mapping[str, Any]) -> bool:
        """Return whether *tool* belongs to an MCP server; *hook_input* is the hook's whole input."""
        return bool(self.context and hook_input.get(self.context)) or tool.startswith(self.prefix)

    def server_name(self, tool: str, hook_input: Mapping[str, Any]) -> str:
        """Return the name of the server that owns *tool*, as far as the input shows it."""
        apart = hook_input.get(self.context) if self.context else None
        if isinstance(apart, dict) and isinstance(apart.get("server_name"), str):
            return str(apart["server_name"])
        return tool.removeprefix(self.prefix).split(self.separator, 1)[0]


@attrs.frozen(kw_only=True)
class CodingAgent:
    """A coding agent.

    *fields* maps our field names to the agent's (empty: the agent has no such field). *personal* is the hook file of
    one user for a project, *project* the committed one, *others* lists further files that may hold hooks. *homes* names
    environment variables that move a folder, *off* the settings that disable hooks. *trust* says which hooks the agent
    runs, *needs* what else it requires. *source* is the documentation this was taken from, *tried* whether it has been
    run against the real agent.
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

    def supports(self, moment: Moment, kind: Kind) -> bool:
        """Return whether the agent documents that kind of answer for an event of that moment."""
        event = self.event(moment)
        return event is not None and kind in event.answers

    @property
    def installed_events(self) -> tuple[Event, ...]:
        """The events that get a hook on installation."""
        return tuple(each for each in self.events.values() if not each.install)


def list_agents() -> tuple[str, ...]:
    """Return the names of all supported agents, sorted."""
    return tuple(sorted(place.stem for place in _TABLES.glob("*.json")))


def find_agent(name: str) -> CodingAgent | None:
    """Return the agent *name*, or ``None`` if it is not supported."""
    if name not in list_agents():
        return None
    table: Any = orjson.loads((_TABLES / f"{name}.json").read_bytes())
    forms = {
        each: Form(prints=form.get("print", {}), exit=form.get("exit", 0)) for each, form in table["forms"].items()
    }
    files = table["files"]
    return CodingAgent(
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


def build_input_schema(tool: Mapping[str, Any]) -> Object:
    """Return the JSON Schema of a tool's input: declared members are typed, other members are allowed."""
    schema = {"type": "object", "properties": dict(tool.get("properties", {}))}
    return {**schema, "required": list(tool["required"])} if "required" in tool else schema
