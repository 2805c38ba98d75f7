"""The MCP servers that a workspace declares, and their stored tool listings: their tools become abilities.

A listing is a source, ``.system/servers/NAME.json``: no server is started to read a workspace.
"""

import re
from collections.abc import Container, Iterator, Mapping
from typing import Any, Final

import attrs

from deedbook.contract import Object
from deedbook.contract.pointers import join_pointer
from deedbook.format import canonical
from deedbook.format.errors import DeedbookError, IntakeError
from deedbook.format.schema import suggest
from deedbook.policy.conditions import glob_test
from deedbook.workspace.declarations import AbilitySource, FeatureSection, Origin, RoutingHints, Source, Workspace
from deedbook.workspace.documents import Document
from deedbook.workspace.trees import SourceReader, SourceTree

from . import requests
from .listings import convert_tool, find_collisions, name_problem, result_schema, summary
from .requests import ELICIT, REQUESTS

FEATURE: Final = "servers"
"""The feature that reads the section, and the name of the section."""
FOLDER: Final = ".system/servers"
_LOCAL: Final = re.compile(r"http://(localhost|127\.[0-9]+\.[0-9]+\.[0-9]+)(:[0-9]+)?([/?]|$)")
MAX_LISTING: Final = 4 * 1024 * 1024
EFFECTS: Final = "write"
"""The effects of a tool unless the workspace declares others. The server's own claims loosen nothing."""
RESERVED: Final = ("model",)
HANDLER: Final = "mcp"
"""The tool plugin behind the tools of servers."""


@attrs.frozen(kw_only=True)
class ServerSource(Source):
    """An MCP server: *command* starts it, or it is at *url*; the values of *env* and *headers* may name secrets.

    *include* and *exclude* are globs over its tools, *tools* the declarations in YAML. *offers* names the tools that
    are abilities, *tool_listings* has the listing of each, *left_out* the reasons why other tools cannot be abilities,
    *notes* the parts left out of their schemas. *requests* are its other requests that are abilities. *about* is the
    server's description of itself, *listing* the digest of its stored listing, ``servers/ID.json``.
    """

    command: tuple[str, ...] = ()
    url: str = ""
    env: Mapping[str, Any] = attrs.field(factory=dict)
    headers: Mapping[str, Any] = attrs.field(factory=dict)
    cwd: str = ""
    timeout_ms: int = 60_000
    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()
    tools: Mapping[str, Mapping[str, Any]] = attrs.field(factory=dict)
    offers: tuple[str, ...] = ()
    tool_listings: Mapping[str, Object] = attrs.field(factory=dict, repr=False)
    left_out: Mapping[str, str] = attrs.field(factory=dict)
    notes: Mapping[str, tuple[str, ...]] = attrs.field(factory=dict)
    requests: tuple[str, ...] = ()
    about: Object = attrs.field(factory=dict)
    listing: str = ""

    def connection_settings(self) -> dict[str, Any]:
        """Return the settings with which its plugin connects."""
        how: dict[str, Any] = {"command": list(self.command), "cwd": self.cwd, "env": dict(self.env)}
        return {"server": self.id, **(how if self.command else {"url": self.url, "headers": dict(self.headers)})}


class DeclaredServers(FeatureSection):
    """The section ``servers:`` as it was read: the servers by name; their tools are abilities."""

    def __init__(self, servers: Mapping[str, ServerSource]) -> None:
        self.servers = servers

    def abilities(self) -> Iterator[AbilitySource]:
        """Yield the abilities of the servers' tools and other requests."""
        for server in self.servers.values():
            for name in server.offers:
                yield _build_tool_ability(server, name)
            for method in server.requests:
                yield _build_request_ability(server, method)

    def entries(self, abilities: Container[str]) -> Object:  # noqa: ARG002 - the tools are abilities with entries of their own
        """Return the charter's entry of each server."""
        return {name: _entry(server) for name, server in self.servers.items()}


def declared_servers(workspace: Workspace) -> Mapping[str, ServerSource]:
    """Return the servers that *workspace* declares, by name."""
    section = workspace.sections.get(FEATURE)
    return section.servers if isinstance(section, DeclaredServers) else {}


def listing_path(server: str) -> str:
    """Return the path of a server's listing, relative to the workspace."""
    return f"{FOLDER}/{server}.json"


def digest_of(listing: Mapping[str, Any]) -> str:
    """Return the digest of a listing, computed without its member ``digest``."""
    rest = {key: value for key, value in listing.items() if key != "digest"}
    return canonical.digest(canonical.encode(rest, nodes=_MAX_NODES))


def connection_of(server: ServerSource) -> dict[str, Any]:
    """Return how a server is reached, as its listing repeats it, without values of the environment."""
    if server.url:
        return {"url": server.url, "headers": sorted(server.headers)}
    return {"command": list(server.command), "cwd": server.cwd, "env": sorted(server.env)}


def with_tools(server: ServerSource, listing: Mapping[str, Any]) -> ServerSource:
    """Return *server* with the tools of its *listing*: those that are abilities, and why the others are not."""
    tools = {tool["name"]: tool for tool in listing["tools"]}
    chosen, spared = glob_test(server.include), glob_test(server.exclude)
    doubled = find_collisions(tool["name"] for tool in listing["tools"])
    left_out, offers, notes = dict(listing["refused"]), [], {}
    for name, tool in tools.items():
        why = doubled.get(name) or name_problem(server.id, name)
        if spared(name) or not (why or chosen(name)):  # a refused name is reported even if no glob matches it
            continue
        try:
            found = None if why else convert_tool(tool)
        except DeedbookError as problem:
            why = str(problem)
        if why or found is None:
            left_out[name] = why or ""
            continue
        offers.append(name)
        if found.notes:
            notes[name] = found.notes
    return attrs.evolve(
        server, offers=tuple(offers), left_out=left_out, notes=notes, about=listing["about"],
        listing=listing["digest"], tool_listings={name: tools[name] for name in offers},
        requests=tuple(method for method in _list_requests(listing["about"]) if not spared(method)),
    )  # fmt: skip


def _list_requests(about: Mapping[str, Any]) -> Iterator[str]:
    """Yield the requests of a listing: what the server answers, and what it may ask the client of the gateway.

    A listing that was made before requests could be abilities has none.
    """
    if "requests" in about:
        yield from (method for method in REQUESTS if method == ELICIT or method in about["requests"])


class Servers:
    """Reads the section ``servers:`` and reports faults to *reader*."""

    def __init__(self, reader: SourceReader, tree: SourceTree, settings: Document | None) -> None:
        self._reader = reader
        self._tree = tree
        self._settings = settings

    def read(self, said: Mapping[str, Any], *, listed: bool = True) -> dict[str, ServerSource]:
        """Return the servers by name; without *listed* their listings are not read."""
        made = {}
        for name, body in said.items():
            assert self._settings is not None
            origin = Origin(self._settings, join_pointer("servers", name), inline=True)
            server = _build_source(name, body, origin)
            if self._check(server):
                made[name] = self._with_listing(server) if listed else server
        if listed:
            self._check_strays(said)
        return made

    # --- one server ---------------------------------------------------------------------------------------------------

    def _check(self, server: ServerSource) -> bool:
        """Return whether a declaration is consistent; if not, report faults."""
        before = len(self._reader.faults)
        if bool(server.command) == bool(server.url):
            self._refuse(server, "", "a server has either command: or url:")
        for key, what in (("env", "command"), ("cwd", "command"), ("headers", "url")):
            if getattr(server, key) and not getattr(server, what):
                self._refuse(server, f"/{key}", f"{key}: belongs to a server with {what}:", key=True)
        hidden = [name for name, value in server.headers.items() if not isinstance(value, str)]
        if hidden and server.url.startswith("http:") and not _LOCAL.match(server.url):
            why = "a secret would be sent unencrypted; use https:"
            self._refuse(server, join_pointer("headers", hidden[0]), why, key=True)
        if server.id.casefold() in RESERVED:
            self._refuse(
                server, "", f'"{server.id}": ids that begin with {server.id}/ are reserved; choose another name'
            )
        return len(self._reader.faults) == before

    def _with_listing(self, server: ServerSource) -> ServerSource:
        """Return *server* with its tools; without a valid listing it has none, which is a fault."""
        listing = self._listing(server)
        if listing is None:
            return server
        made = with_tools(server, listing)
        for name in server.tools:
            self._check_tool(server, name, [*made.offers, *made.requests], made.left_out)
        return made

    def _check_tool(self, server: ServerSource, name: str, offers: list[str], left_out: Mapping[str, str]) -> None:
        """Refuse the declaration of a tool that is no ability."""
        if name not in offers:
            why = f"cannot be an ability: {left_out[name]}" if name in left_out else "is none of its tools in use"
            self._refuse(server, join_pointer("tools", name), f'"{name}" {why}{suggest(name, offers)}', key=True)

    def _listing(self, server: ServerSource) -> dict[str, Any] | None:
        path = listing_path(server.id)
        if not self._tree.folder.exists(path):
            why = f"the tools of this server are not listed yet; list them with: deedbook mcp refresh {server.id}"
            self._refuse(server, "", why, key=True)
            self._reader.digests[path] = canonical.digest(b"")
            return None
        raw = self._reader.read_bytes(self._tree, path, MAX_LISTING)
        if raw is None:
            return None
        again = f"list its tools again with: deedbook mcp refresh {server.id}"
        try:
            found = canonical.parse(raw)
            wrong = [str(each) for each in self._reader.validator("mcp_listing_v1").violations(found)]
        except IntakeError as problem:
            found, wrong = {}, [str(problem)]
        if not wrong and (found["server"] != server.id or found["digest"] != digest_of(found)):
            wrong = ["was changed after it was written; do not edit a listing by hand"]
        if not wrong and found["reached"] != connection_of(server):
            why = f"is reached in another way than when its tools were listed; {again}"
            self._refuse(server, "", why, key=True)
            return None
        for each in wrong:
            self._reader.refuse("SOURCE_INVALID", f"{each}; {again}", path)
        made: dict[str, Any] | None = None if wrong else found
        return made

    def _check_strays(self, said: Mapping[str, Any]) -> None:
        for path in self._reader.list_files(self._tree, FOLDER, ".json"):
            if path.rpartition("/")[2].removesuffix(".json") not in said:
                self._reader.refuse("SOURCE_INVALID", "belongs to no server in servers:; delete it", path)

    def _refuse(self, server: ServerSource, at: str, why: str, *, key: bool = False) -> None:
        self._reader.refuse("SOURCE_INVALID", why, server.origin.place(at, key=key))


_MAX_NODES: Final = 1_000_000


def _build_source(name: str, body: Mapping[str, Any], origin: Origin) -> ServerSource:
    said: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in body.items()}
    return ServerSource(id=name, place=origin.line(), origin=origin, **said)


def _build_tool_ability(server: ServerSource, name: str) -> AbilitySource:
    tool = server.tool_listings[name]
    found = convert_tool(tool)
    return _build_ability(
        server, name, summary(server.id, tool), HANDLER, {"tool": name, "pinned": tool},
        schema_in=found.takes, schema_out=result_schema(found.gives),
    )  # fmt: skip


def _build_request_ability(server: ServerSource, method: str) -> AbilitySource:
    form = REQUESTS[method]
    return _build_ability(
        server, method, form.summary, requests.HANDLER, {"request": method}, schema_in=form.takes, schema_out=form.gives
    )


def _build_ability(
    server: ServerSource, name: str, summary: str, handler: str, settings: Mapping[str, Any], *,
    schema_in: Object, schema_out: Object | None,
) -> AbilitySource:  # fmt: skip
    said = server.tools.get(name, {})
    hints = said.get("routing_hints", {})
    at = join_pointer("tools", name) if said else ""
    return AbilitySource(
        id=f"{server.id}/{name}",
        place=server.origin.line(at),
        origin=attrs.evolve(server.origin, at=server.origin.at + at),
        summary=said.get("summary") or summary,
        handler={"tool": handler},
        settings={**server.connection_settings(), **settings},
        effects=said.get("effects", EFFECTS),
        tags=frozenset(said.get("tags", ())),
        hooks={moment: tuple(names) for moment, names in said.get("hooks", {}).items()},
        policies=tuple(said.get("policies", ())),
        routing_hints=RoutingHints(intents=tuple(hints.get("intents", ())), scopes=frozenset(hints.get("scopes", ()))),
        timeout_ms=said.get("timeout_ms", server.timeout_ms),
        schema_in=schema_in,
        schema_out=schema_out,
        big_integers=said.get("big_integers", "refuse"),
        paths=tuple(said.get("paths", ())),
    )


def _entry(server: ServerSource) -> dict[str, Any]:
    """Return the entry of a server in the charter."""
    return {
        **server.connection_settings(),
        "timeout_ms": server.timeout_ms,
        "include": list(server.include),
        "exclude": list(server.exclude),
        "about": dict(server.about),
        "listing": server.listing,
        "offers": sorted(server.offers),
        "requests": sorted(server.requests),
        "left_out": dict(server.left_out),
        "place": server.place,
    }
