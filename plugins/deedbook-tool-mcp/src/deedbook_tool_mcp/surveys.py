"""Looking at what MCP servers offer: one is started and asked, what it lists is compared and kept for review."""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import attrs

from deedbook.contract import Failed
from deedbook.format import canonical
from deedbook.format.errors import BindingError, DeedbookError, FileRefused, IntakeError, fault
from deedbook.format.files import Folder
from deedbook.format.schema import Schemas
from deedbook.plugins.host import WorkspaceHost
from deedbook.plugins.plugins import Catalogue, load
from deedbook.programs.workers import Workers
from deedbook.workspace.servers import HANDLER, MAX_LISTING, connection_of, digest_of, listing_path
from deedbook.workspace.site import Site

if TYPE_CHECKING:
    from deedbook.workspace.declarations import ServerSource, Workspace

_READABLE: Final = 0o644


@attrs.frozen
class News:
    """One thing that a server offers otherwise than before: *way* is ``+``, ``-`` or ``~``; texts are as JSON has them.

    *part* is what changed of a *tool*, or of what the server says of itself (no *tool*).
    """

    way: str
    tool: str
    part: str = ""
    before: str = ""
    after: str = ""


def look(workspace: "Workspace", server: "ServerSource", catalogue: Catalogue, schemas: Schemas) -> dict[str, Any]:
    """Start or reach *server*, and return what it lists, to be kept; raises `DeedbookError`."""
    site = Site.of(workspace)
    secrets = site.secret_values()
    with Folder.at(site.root) as root, Workers(private=any(secrets.values())) as workers:
        host = WorkspaceHost(root, site.file_roots, site.hidden, secrets, schemas, lambda: workers, site.secrets)
        try:
            handler = load(catalogue.find("tool", HANDLER, server.place))(server.connection_settings(), host)
            return _kept(server, handler.listing(), host)
        except Failed as problem:
            raise BindingError(fault(problem.code, host.mask(str(problem)), place=server.place)) from None
        finally:
            host.close()


def last(root: Folder, server: str) -> dict[str, Any] | None:
    """Return what was kept of a server's listing, if it is sound."""
    with suppress(FileNotFoundError, FileRefused, IntakeError, TypeError, AttributeError):
        found = canonical.parse(root.read(listing_path(server), limit=MAX_LISTING))
        if found["server"] == server and found["digest"] == digest_of(found):
            return dict(found)
    return None


def is_reached_as(server: "ServerSource", listing: Mapping[str, Any] | None) -> bool:
    """Say whether *server* is started or reached as when somebody looked at it."""
    return listing is not None and listing["reached"] == connection_of(server)


def keep(root: Folder, listing: Mapping[str, Any]) -> None:
    """Write a listing where it is a source."""
    text = json.dumps(listing, ensure_ascii=False, indent=2, sort_keys=True)
    spelled = "".join(char if char.isprintable() or char == "\n" else _escaped(char) for char in text)
    root.replace(listing_path(str(listing["server"])), f"{spelled}\n".encode(), mode=_READABLE)


def compared(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> Iterator[News]:
    """Yield what is other in a listing than in the one before."""
    old = {tool["name"]: tool for tool in before["tools"]} if before else {}
    new = {tool["name"]: tool for tool in after["tools"]}
    if before:
        yield from _parts("", before["about"], after["about"])
        yield from _parts("", before["refused"], after["refused"])
    for name in sorted({*old, *new}):
        if name not in old:
            yield News("+", name, after=str(new[name].get("description") or ""))
        elif name not in new:
            yield News("-", name, before=str(old[name].get("description") or ""))
        else:
            yield from _parts(name, old[name], new[name])


def _parts(tool: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[News]:
    for part in sorted({*old, *new}):
        if old.get(part) != new.get(part):
            yield News("~", tool, part, _told(old.get(part)), _told(new.get(part)))


def _told(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)


def _kept(server: "ServerSource", found: Mapping[str, Any], host: WorkspaceHost) -> dict[str, Any]:
    """Return a listing as it is kept: what no record could hold, or no source should, is named with the reason."""
    tools, refused = [], {}
    for tool in found["tools"]:
        try:
            said = canonical.decode(canonical.admit(tool))
            if host.mask_object(said) == said:
                tools.append(said)
            else:
                refused[host.mask(tool["name"])] = "its listing holds the value of a secret"
        except DeedbookError as problem:
            refused[tool["name"]] = str(problem)
    listing = {
        "schema_version": "v1",
        "server": server.id,
        "reached": connection_of(server),
        "about": host.mask_object(found["about"]),
        "tools": tools,
        "refused": refused,
    }
    return {**listing, "digest": digest_of(listing)}


def _escaped(char: str) -> str:
    return json.dumps(char)[1:-1].replace("\x7f", "\\u007f")
