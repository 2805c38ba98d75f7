"""List the tools of MCP servers: start a server, compare its listing with the stored one, and store it for review."""

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
from deedbook.workspace.site import Site
from deedbook.workspace.trust import check_programs

from .servers import HANDLER, MAX_LISTING, connection_of, digest_of, listing_path

if TYPE_CHECKING:
    from deedbook.workspace.declarations import Workspace

    from .servers import ServerSource

_READABLE: Final = 0o644


@attrs.frozen
class ListingChange:
    """One difference between two listings: *sign* is ``+``, ``-`` or ``~``; texts are JSON.

    *part* is the member that changed, of *tool*, or of the server's description (no *tool*).
    """

    sign: str
    tool: str
    part: str = ""
    before: str = ""
    after: str = ""


def survey_server(
    workspace: "Workspace", server: "ServerSource", catalogue: Catalogue, schemas: Schemas
) -> dict[str, Any]:
    """Start or reach *server*, and return its listing to store; raises `DeedbookError`."""
    site = Site.of(workspace)
    check_programs(server.connection_settings(), site.root)
    secrets = site.secret_values()
    with Folder.at(site.root) as root, Workers(private=any(secrets.values())) as workers:
        host = WorkspaceHost(root, site.file_roots, site.hidden, secrets, schemas, lambda: workers, site.secrets)
        try:
            handler = load(catalogue.find("tool", HANDLER, server.place))(server.connection_settings(), host)
            return _build_listing(server, handler.listing(), host)
        except Failed as problem:
            raise BindingError(fault(problem.code, host.mask(str(problem)), place=server.place)) from None
        finally:
            host.close()


def read_listing(root: Folder, server: str) -> dict[str, Any] | None:
    """Return the stored listing of a server, if it is valid."""
    with suppress(FileNotFoundError, FileRefused, IntakeError, TypeError, AttributeError):
        found = canonical.parse(root.read(listing_path(server), limit=MAX_LISTING))
        if found["server"] == server and found["digest"] == digest_of(found):
            return dict(found)
    return None


def is_reached_as(server: "ServerSource", listing: Mapping[str, Any] | None) -> bool:
    """Return whether *server* has the same connection settings as when *listing* was made."""
    return listing is not None and listing["reached"] == connection_of(server)


def write_listing(root: Folder, listing: Mapping[str, Any]) -> None:
    """Write a listing to its source file."""
    text = json.dumps(listing, ensure_ascii=False, indent=2, sort_keys=True)
    spelled = "".join(char if char.isprintable() or char == "\n" else _escape(char) for char in text)
    root.replace(listing_path(str(listing["server"])), f"{spelled}\n".encode(), mode=_READABLE)


def compare_listings(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> Iterator[ListingChange]:
    """Yield the differences between two listings."""
    old = {tool["name"]: tool for tool in before["tools"]} if before else {}
    new = {tool["name"]: tool for tool in after["tools"]}
    if before:
        yield from _compare_parts("", before["about"], after["about"])
        yield from _compare_parts("", before["refused"], after["refused"])
    for name in sorted({*old, *new}):
        if name not in old:
            yield ListingChange("+", name, after=str(new[name].get("description") or ""))
        elif name not in new:
            yield ListingChange("-", name, before=str(old[name].get("description") or ""))
        else:
            yield from _compare_parts(name, old[name], new[name])


def _compare_parts(tool: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[ListingChange]:
    for part in sorted({*old, *new}):
        if old.get(part) != new.get(part):
            yield ListingChange("~", tool, part, _format_value(old.get(part)), _format_value(new.get(part)))


def _format_value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)


def _build_listing(server: "ServerSource", found: Mapping[str, Any], host: WorkspaceHost) -> dict[str, Any]:
    """Return a listing to store; tools that cannot be recorded, or hold a secret, are refused with the reason."""
    tools, refused = [], {}
    for tool in found["tools"]:
        try:
            decoded = canonical.decode(canonical.admit(tool))
            if host.mask_object(decoded) == decoded:
                tools.append(decoded)
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


def _escape(char: str) -> str:
    return json.dumps(char)[1:-1].replace("\x7f", "\\u007f")
