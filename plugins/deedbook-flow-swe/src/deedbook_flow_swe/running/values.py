"""The values of files: what rules see of an input or an output; pure."""

from typing import Any, Final

from deedbook import Json
from deedbook.format import canonical
from deedbook.format.errors import DeedbookError
from deedbook.workspace.documents import parse_front_matter, parse_yaml

DIFF: Final = ".diff"


class MalformedFile(ValueError):  # noqa: N818 - it names what was found
    """A file whose text has no value: it is no JSON, no YAML, or its front matter cannot be read."""


def read_value(path: str, text: str) -> Json:
    """Return the value of the file *path* with *text*: front matter of Markdown, the whole of JSON and YAML.

    The value of any other file is its text. Raises `MalformedFile` with the place.
    """
    try:
        return _read(path, text)
    except DeedbookError as problem:
        raise MalformedFile(str(problem)) from None
    except ValueError as problem:
        raise MalformedFile(f"{path}: {problem}") from None


def read_object(text: str) -> dict[str, Any]:
    """Return the JSON object that *text* is; an empty one if it is none."""
    try:
        found = canonical.parse(text)
    except DeedbookError:
        return {}
    return found if isinstance(found, dict) else {}


def _read(path: str, text: str) -> Json:
    raw = text.encode("utf-8", "surrogatepass")
    ending = path.rpartition(".")[2]
    if ending == "md":
        return parse_front_matter(raw, path)[0].value
    if ending == "json":
        found: Any = canonical.parse(text)
        return found  # type: ignore[no-any-return]
    if ending in ("yaml", "yml"):
        return parse_yaml(raw, path).value
    return text
