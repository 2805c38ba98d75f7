"""The folders of a workspace, and the settings that every reader and writer of its records needs."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from deedbook.format.errors import SourceError
from deedbook.format.files import Folder
from deedbook.format.sealed import Rules, Sealer
from deedbook.plugins.host import hidden_folders

from .sources import SYSTEM, read

if TYPE_CHECKING:
    from .declarations import Workspace

SETTINGS: Final = f"{SYSTEM}/deedbook.yaml"
STATE: Final = ".deedbook"


@attrs.frozen
class Site:
    """A workspace's *root* and *state* folder (both absolute), and the settings for its records and files.

    *secrets* maps names to environment variables, *seal* lists what records hide, *file_roots* what file tools reach.
    """

    root: Path
    state: Path
    secrets: Mapping[str, str]
    seal: tuple[Any, ...]
    file_roots: tuple[str, ...]

    @classmethod
    def of(cls, workspace: "Workspace") -> "Site":
        """Return the site of a loaded workspace."""
        return cls(workspace.root, workspace.state, workspace.secrets, workspace.seal, workspace.file_roots)

    @classmethod
    def from_charter(cls, document: Mapping[str, Any], root: Path, state: Path) -> "Site":
        """Return the site of the workspace at *root*, from its charter's *document*."""
        return cls(root, state, document["secrets"], tuple(document["seal"]), tuple(document["file_roots"]))

    @property
    def identity(self) -> str:
        """The name of the workspace in its state folder: ``.`` inside it, so that both may move; otherwise its path."""
        return "." if self.state.is_relative_to(self.root) else str(self.root)

    @property
    def hidden(self) -> list[str]:
        """The folders of the workspace that plugins may not even read."""
        return hidden_folders(self.root, self.state)

    def secret_values(self) -> dict[str, str | None]:
        """Return the declared secrets from the environment; ``None`` where a variable is not set."""
        return {name: os.environ.get(variable) for name, variable in self.secrets.items()}

    def sealer(self) -> Sealer:
        """Return the sealer that every ledger of the workspace uses."""
        secrets = {name: value for name, value in self.secret_values().items() if value}
        return Sealer(Rules.parse(list(self.seal)), secrets)


def find_state(folder: Folder, root: Path) -> Path | None:
    """Return the state folder of the workspace at *root*, reading as little as possible; ``None`` if unknown."""
    try:
        raw = read(folder, SETTINGS)
        said: Any = _settings(folder) if b"state" in raw else {}
        return state_at(root, said.get("state", STATE))
    except (SourceError, AttributeError, TypeError, RuntimeError):
        return None


def state_at(root: Path, said: str) -> Path:
    """Return the state folder for the setting *said* of the workspace at *root*."""
    return Path(os.path.normpath(root / Path(said).expanduser()))


def _settings(folder: Folder) -> Any:
    """Return the settings of the workspace in *folder*; raises `SourceError`."""
    from .documents import load_yaml

    return load_yaml(folder, SETTINGS).value
