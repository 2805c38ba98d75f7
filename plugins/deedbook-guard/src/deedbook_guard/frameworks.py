"""The version of an agent framework: an adapter works only with the versions that it is tested with."""

import re
from importlib.metadata import PackageNotFoundError, version

from deedbook.format.errors import BindingError, fault


def check_framework(distribution: str, least: str, below: str, *, adapter: str) -> str:
    """Return the installed version of *distribution*; raises `BindingError` unless *least* <= version < *below*."""
    todo = f"pip install '{adapter}[framework]'"
    try:
        found = version(distribution)
    except PackageNotFoundError:
        why = f"{adapter} needs {distribution}, which is not installed: {todo}"
        raise BindingError(fault("PLUGIN_MISSING", why)) from None
    if not _release(least) <= _release(found) < _release(below):
        why = f"{adapter} is tested with {distribution} >= {least}, < {below}; {found} is installed"
        raise BindingError(fault("BINDING_INVALID", f"{why}. Install a tested one: {todo}"))
    return found


def _release(text: str) -> tuple[int, ...]:
    """Return the numbers of a version's release; what follows them (rc1, .post2) does not count."""
    found = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(int(each) for each in found[0].split(".")) if found else ()
