"""The parts that a workspace's settings activate: packs, skill loaders, required skills, aliases of tools."""

from collections.abc import Mapping
from typing import Any, Final

import attrs

from deedbook.contract.pointers import join_pointer
from deedbook.format.errors import DeedbookError, SourceError
from deedbook.format.schema import suggest
from deedbook.plugins.groups import AGENT_PLUGIN, normalise_name
from deedbook.plugins.packs import PackFolder
from deedbook.plugins.plugins import Catalogue, discover

from .declarations import AliasSource, LoaderSource, Origin, PackSource
from .documents import Document
from .sections import pack_parts
from .trees import SourceReader, SourceTree

PARTS: Final = ("agents", "hooks", "policies", "registry", "skills")
"""The folders that a pack may hold."""
LEVELS: Final = ("low-level", "high-level")
"""The folders of abilities below ``registry``."""
_OWN: Final = ("deedbook.yaml", "deedbook.lock")


class Activation:
    """Resolves what the settings name and reports faults to *reader*. Without *catalogue*: installed plugins."""

    def __init__(self, reader: SourceReader, settings: Document | None, catalogue: Catalogue | None) -> None:
        self._reader = reader
        self._settings = settings
        self._catalogue = catalogue

    def packs(self, entries: Any) -> dict[str, PackSource]:
        """Return the packs listed under ``packs:``, by id."""
        made: dict[str, PackSource] = {}
        for index, entry in enumerate(entries):
            origin = self._origin(join_pointer("packs", index))
            said: Mapping[str, Any] = {"pack": entry} if isinstance(entry, str) else entry
            name = said["pack"] if "pack" in said else f"{AGENT_PLUGIN}{normalise_name(said['plugin'])}"
            if name in made:
                self._refuse(f"{name} is listed twice; remove one", origin.place())
                continue
            pack = self._reader.collect(SourceTree(_NOWHERE), self._pack, name, said.get("skills"), origin)
            if pack:
                made[name] = attrs.evolve(pack, may_loosen=tuple(said.get("may_loosen", ())))
        return made

    def loaders(self, said: Any) -> tuple[LoaderSource, ...]:
        """Return the loaders listed under ``skills: {loaders: …}``."""
        if said is None:
            return (LoaderSource(loader="markdown"),)
        made: dict[str, LoaderSource] = {}
        for index, entry in enumerate(said):
            place = self._origin(join_pointer("skills", "loaders", index)).place()
            name = entry if isinstance(entry, str) else entry["loader"]
            settings: Mapping[str, Any] = {} if isinstance(entry, str) else entry.get("with", {})
            if name in made:
                self._refuse(f"loader {name} is listed twice; remove one", place)
            if name == "markdown" and "roots" in settings:
                self._refuse("name the folders of skills in roots: {skills: […]}; leave roots out here", place)
            made[name] = LoaderSource(loader=name, settings=settings, place=place)
        return tuple(made.values())

    def required_skills(self, names: Any) -> dict[str, str]:
        """Return the place of each skill listed under ``skills: {required: …}``."""
        places = {name: self._origin(join_pointer("skills", "required", at)).place() for at, name in enumerate(names)}
        return {name: places[name] for name in names}

    def aliases(self, said: Mapping[str, Any]) -> dict[str, AliasSource]:
        """Return the aliases of ``tool_aliases:`` for names in a skill's ``allowed-tools``."""
        made = {}
        for name, means in said.items():
            place = self._origin(join_pointer("tool_aliases", name)).place()
            body: Mapping[str, Any] = means if isinstance(means, dict) else {"ability": means}
            named = body["ability"]
            abilities = (named,) if isinstance(named, str) else tuple(named)
            made[name] = AliasSource(name=name, abilities=abilities, command=body.get("command", ""), place=place)
        return made

    # --- one pack -----------------------------------------------------------------------------------------------------

    def _pack(self, name: str, chosen: list[str] | None, origin: Origin) -> PackSource:
        """Find a pack's files. Raises `DeedbookError`."""
        self._catalogue = self._catalogue or discover()
        offer = self._catalogue.find("pack", name, origin.place())
        whose = f"{offer.distribution} {offer.version}"
        plugin = name.startswith(AGENT_PLUGIN)
        label = f"agent plugin ({whose})" if plugin else f"pack {name} ({whose})"
        try:
            folder = offer.pack()
        except DeedbookError as problem:
            place = origin.place()
            raise SourceError(
                *(attrs.evolve(each, place=place, message=f"{label}: {each.message}") for each in problem.errors)
            ) from None
        notes = (f"{label}: mcp.json is not used; declare its servers with: deedbook mcp add",)
        return PackSource(
            id=name,
            place=origin.place(),
            origin=origin,
            label=label,
            folder=self._select_skills(folder, chosen, label, origin) if plugin else self._check_layout(folder, label),
            notes=notes if folder.exists("mcp.json") else (),
            chosen=tuple(chosen or ()),
        )

    def _select_skills(self, folder: PackFolder, chosen: list[str] | None, label: str, origin: Origin) -> PackFolder:
        """Return the part of an Agent Plugin that is used: its skills, or the chosen ones."""
        has = folder.names("skills") if folder.exists("skills") else []
        for index, name in enumerate(chosen or ()):
            if name not in has:
                why = f"{label} has no skill {name!r}{suggest(name, has)}; it has {', '.join(has) or 'none'}"
                self._refuse(why, origin.place(join_pointer("skills", index)))
        hidden = [f"skills/{name}" for name in has if chosen is not None and name not in chosen]
        return folder.without([*(part for part in PARTS if part != "skills"), *pack_parts(), *hidden])

    def _check_layout(self, folder: PackFolder, label: str) -> PackFolder:
        parts = (*PARTS, *pack_parts())
        for name, kind in folder.kinds():
            if name in _OWN:
                self._refuse("a pack has no settings; they are the workspace's", f"{label}: {name}")
            elif name not in parts and (kind == "/" or suggest(name, parts)):
                why = f"is not read{suggest(name, parts)}; a pack has the folders {', '.join(parts)}; remove this one"
                self._refuse(why, f"{label}: {name}")
        for name, _ in folder.kinds("registry") if folder.exists("registry") else ():
            if name not in LEVELS:
                self._refuse(f"is not read; put abilities into {' or '.join(LEVELS)}", f"{label}: registry/{name}")
        return folder

    def _origin(self, at: str) -> Origin:
        assert self._settings is not None
        return Origin(self._settings, at, inline=True)

    def _refuse(self, message: str, place: str) -> None:
        self._reader.refuse("SOURCE_INVALID", message, place)


_NOWHERE: Final = PackFolder("", {})
