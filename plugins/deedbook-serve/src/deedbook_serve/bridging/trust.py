"""Whether a coding agent trusts the hooks in its files, if that can be read.

Codex keeps a digest of every hook that its user has trusted, Gemini CLI a list of folders. Other agents keep no such
record, or keep it beside logins, which Deedbook does not read.
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
from deedbook_serve.agents import CodingAgent

from .installations import HookLocation, expand_home, read_text
from .settings import find_hooks


class Trust(NamedTuple):
    """Whether an agent runs the hooks of a file (``None``: it cannot be read), and the reason."""

    trusted: bool | None
    why: str


_Reader: TypeAlias = Callable[[CodingAgent, HookLocation, Path, Mapping[str, str]], Trust]


def check_trust(agent: CodingAgent, location: HookLocation, root: Path, environment: Mapping[str, str]) -> Trust:
    """Return whether *agent* runs the hooks at *location* for the workspace at *root*."""
    read = _READERS.get(agent.agent)
    try:
        return read(agent, location, root.resolve(), environment) if read else Trust(None, agent.trust)
    except (DeedbookError, ValueError) as problem:
        return Trust(None, f"what {agent.title} keeps of trust cannot be read: {problem}")


# --- Codex ----------------------------------------------------------------------------------------------------------


def _check_codex(agent: CodingAgent, location: HookLocation, root: Path, environment: Mapping[str, str]) -> Trust:
    config = expand_home(agent, "~/.codex/config.toml", environment)
    config_data = tomllib.loads(read_text(config))
    if _get_member(config_data, "features", "hooks") is False:
        return Trust(False, f"{config} switches hooks off: features.hooks")
    if not location.file.is_shared and not any(
        _get_member(config_data, "projects", str(folder), "trust_level") == "trusted"
        for folder in (root, *root.parents)
    ):
        return Trust(False, f"{config} does not trust this project: Codex loads no hooks of its folder")
    states = _get_member(config_data, "hooks", "state")
    trusted = states if isinstance(states, dict) else {}
    missing = sorted({event for event, key, digest in _list_hooks(location) if not _is_trusted(trusted, key, digest)})
    if missing:
        todo = "open Codex here and look at them with /hooks; until then they are skipped without a message"
        return Trust(False, f"not trusted, or changed since: {', '.join(missing)}; {todo}")
    return Trust(True, f"{config} has the digest of each; one that is changed is skipped without a message")


def _is_trusted(trusted: Mapping[str, Any], keys: tuple[str, ...], digest: str) -> bool:
    states = [trusted[key] for key in keys if isinstance(trusted.get(key), dict)]
    return any(each.get("trusted_hash") == digest and each.get("enabled") is not False for each in states)


def _list_hooks(location: HookLocation) -> Iterator[tuple[str, tuple[str, ...], str]]:
    """Yield each of our hooks: its event, the keys under which Codex may record it, and its digest."""
    paths = dict.fromkeys((str(location.path), str(location.path.resolve())))
    for found in find_hooks(read_text(location.path), location.workspace, place=str(location.path)):
        event = re.sub(r"(?<!^)(?=[A-Z])", "_", found.event).lower()
        keys = tuple(f"{path}:{event}:{found.group}:{found.index}" for path in paths)
        yield found.event, keys, codex_digest(event, found.matcher, found.entry)


def codex_digest(event: str, matcher: str | None, entry: Mapping[str, Any]) -> str:
    """Return Codex's digest of a hook, over its canonical JSON (``codex-rs/hooks``, `version_for_toml`)."""
    hook = {"type": "command", "command": entry["command"], "timeout": entry.get("timeout", 600), "async": False}
    about: dict[str, Any] = {"event_name": event, "hooks": [hook]}
    if matcher is not None:
        about["matcher"] = matcher
    text = json.dumps(about, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return f"sha256:{sha256(text.encode()).hexdigest()}"


def _get_member(document: Any, *steps: str) -> Any:
    for step in steps:
        document = document.get(step) if isinstance(document, dict) else None
    return document


# --- Gemini CLI -----------------------------------------------------------------------------------------------------


def _check_gemini(agent: CodingAgent, _location: HookLocation, root: Path, environment: Mapping[str, str]) -> Trust:
    settings = expand_home(agent, "~/.gemini/settings.json", environment)
    folders = expand_home(agent, "~/.gemini/trustedFolders.json", environment)
    asks = _get_member(_read_json(settings), "security", "folderTrust", "enabled")
    if asks is False:
        return Trust(True, f"{settings} switches the question off whether a folder is trusted")
    rule = _find_rule(_read_json(folders), root)
    if rule is not None:
        word = "trusts" if rule else "does not trust"
        return Trust(rule, f"{folders} {word} this folder{'' if rule else ': no hook runs in it'}")
    if asks is True:
        return Trust(False, f"{folders} does not name this folder: Gemini CLI asks when it starts here")
    return Trust(None, f"{folders} does not name this folder, and {settings} does not say whether that is needed")


def _find_rule(folders: Any, root: Path) -> bool | None:
    """Return the trust level of the longest path that is *root* or contains it."""
    found: tuple[int, bool] | None = None
    for name, level in folders.items() if isinstance(folders, dict) else ():
        folder = Path(name).parent if level == "TRUST_PARENT" else Path(name)
        if level in ("TRUST_FOLDER", "TRUST_PARENT", "DO_NOT_TRUST") and root.is_relative_to(folder.resolve()):
            size = len(folder.parts)
            if found is None or size > found[0] or (size == found[0] and level == "DO_NOT_TRUST"):
                found = size, level != "DO_NOT_TRUST"
    return found[1] if found else None


def _read_json(path: Path) -> Any:
    text = read_text(path)
    try:
        return parse(text) if text.strip() else {}
    except IntakeError as problem:
        raise ValueError(f"{path}: {problem.error.message}") from None


_READERS: Final[Mapping[str, _Reader]] = MappingProxyType({"codex": _check_codex, "gemini-cli": _check_gemini})
