"""Whether a coding agent trusts the hooks that stand in its files, where that can be read.

Codex keeps a digest of every hook that its person has trusted, Gemini CLI a list of folders. Other agents keep that
beside logins or not at all: that is not read.
"""

import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

from deedbook.format.canonical import parse
from deedbook.format.errors import DeedbookError, IntakeError
from deedbook_serve.agents import Known

from .installations import Place, moved, text_of
from .settings import standing


class Trust(NamedTuple):
    """Whether an agent runs the hooks of a file: ``True``, ``False``, or ``None`` where it cannot be read; and why."""

    trusted: bool | None
    why: str


_Reader: TypeAlias = Callable[[Known, Place, Path, Mapping[str, str]], Trust]


def trust(known: Known, place: Place, root: Path, environment: Mapping[str, str]) -> Trust:
    """Return whether *known* runs the hooks at *place* for the workspace at *root*."""
    read = _READERS.get(known.agent)
    try:
        return read(known, place, root.resolve(), environment) if read else Trust(None, known.trust)
    except (DeedbookError, ValueError) as problem:
        return Trust(None, f"what {known.title} keeps of trust cannot be read: {problem}")


# --- Codex ------------------------------------------------------------------------------------------------------------


def _codex(known: Known, place: Place, root: Path, environment: Mapping[str, str]) -> Trust:
    config = moved(known, "~/.codex/config.toml", environment)
    said = tomllib.loads(text_of(config))
    if _at(said, "features", "hooks") is False:
        return Trust(False, f"{config} switches hooks off: features.hooks")
    if not place.file.shared and not any(
        _at(said, "projects", str(folder), "trust_level") == "trusted" for folder in (root, *root.parents)
    ):
        return Trust(False, f"{config} does not trust this project: Codex loads no hooks of its folder")
    states = _at(said, "hooks", "state")
    kept = states if isinstance(states, dict) else {}
    missing = sorted({event for event, key, digest in _handlers(place) if not _is_trusted(kept, key, digest)})
    if missing:
        todo = "open Codex here and look at them with /hooks; until then they are skipped without a message"
        return Trust(False, f"not trusted, or changed since: {', '.join(missing)}; {todo}")
    return Trust(True, f"{config} has the digest of each; one that is changed is skipped without a message")


def _is_trusted(kept: Mapping[str, Any], keys: tuple[str, ...], digest: str) -> bool:
    states = [kept[key] for key in keys if isinstance(kept.get(key), dict)]
    return any(each.get("trusted_hash") == digest and each.get("enabled") is not False for each in states)


def _handlers(place: Place) -> Iterator[tuple[str, tuple[str, ...], str]]:
    """Yield each hook of ours: its event, the keys under which Codex may have it, and its digest."""
    paths = dict.fromkeys((str(place.path), str(place.path.resolve())))
    for found in standing(text_of(place.path), place.only, place=str(place.path)):
        event = re.sub(r"(?<!^)(?=[A-Z])", "_", found.event).lower()
        keys = tuple(f"{path}:{event}:{found.group}:{found.index}" for path in paths)
        yield found.event, keys, codex_digest(event, found.matcher, found.entry)


def codex_digest(event: str, matcher: str | None, entry: Mapping[str, Any]) -> str:
    """Return the digest by which Codex knows a hook: of its canonical JSON (``codex-rs/hooks``, `version_for_toml`)."""
    hook = {"type": "command", "command": entry["command"], "timeout": entry.get("timeout", 600), "async": False}
    about: dict[str, Any] = {"event_name": event, "hooks": [hook]}
    if matcher is not None:
        about["matcher"] = matcher
    text = json.dumps(about, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return f"sha256:{sha256(text.encode()).hexdigest()}"


def _at(said: Any, *steps: str) -> Any:
    for step in steps:
        said = said.get(step) if isinstance(said, dict) else None
    return said


# --- Gemini CLI -------------------------------------------------------------------------------------------------------


def _gemini(known: Known, _place: Place, root: Path, environment: Mapping[str, str]) -> Trust:
    settings = moved(known, "~/.gemini/settings.json", environment)
    folders = moved(known, "~/.gemini/trustedFolders.json", environment)
    asks = _at(_json(settings), "security", "folderTrust", "enabled")
    if asks is False:
        return Trust(True, f"{settings} switches the question off whether a folder is trusted")
    rule = _rule(_json(folders), root)
    if rule is not None:
        word = "trusts" if rule else "does not trust"
        return Trust(rule, f"{folders} {word} this folder{'' if rule else ': no hook runs in it'}")
    if asks is True:
        return Trust(False, f"{folders} does not name this folder: Gemini CLI asks when it starts here")
    return Trust(None, f"{folders} does not name this folder, and {settings} does not say whether that is needed")


def _rule(said: Any, root: Path) -> bool | None:
    """Return what the longest path says that *root* is or lies beneath."""
    found: tuple[int, bool] | None = None
    for name, level in said.items() if isinstance(said, dict) else ():
        folder = Path(name).parent if level == "TRUST_PARENT" else Path(name)
        if level in ("TRUST_FOLDER", "TRUST_PARENT", "DO_NOT_TRUST") and root.is_relative_to(folder.resolve()):
            size = len(folder.parts)
            if found is None or size > found[0] or (size == found[0] and level == "DO_NOT_TRUST"):
                found = size, level != "DO_NOT_TRUST"
    return found[1] if found else None


def _json(path: Path) -> Any:
    text = text_of(path)
    try:
        return parse(text) if text.strip() else {}
    except IntakeError as problem:
        raise ValueError(f"{path}: {problem.error.message}") from None


_READERS: Final[Mapping[str, _Reader]] = MappingProxyType({"codex": _codex, "gemini-cli": _gemini})
