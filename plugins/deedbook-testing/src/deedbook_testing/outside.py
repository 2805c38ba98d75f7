"""What Python code imports and uses that acts outside of the door: programs, sockets, HTTP clients, files, other code.

The text of the code is read, and names are followed through its imports. This finds ordinary code. It is no sandbox:
code that hides what it does is not found.
"""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from .imports import is_among

OUTSIDE: Final = frozenset(
    {
        "_io", "_posixsubprocess", "_socket", "aiofiles", "aiohttp", "anyio", "asyncio.create_subprocess_exec",
        "asyncio.create_subprocess_shell", "asyncio.open_connection", "asyncio.open_unix_connection",
        "asyncio.start_server", "asyncio.start_unix_server", "asyncio.subprocess", "builtins", "cffi", "ctypes", "dbm",
        "fileinput", "ftplib", "glob", "grpc", "http.client", "http.server", "httpcore", "httplib2", "httpx",
        "imaplib", "importlib.__import__", "importlib.import_module", "importlib.machinery", "importlib.reload",
        "importlib.util", "linecache", "logging.FileHandler", "logging.handlers", "mmap", "multiprocessing", "nt",
        "paramiko", "pexpect", "poplib", "posix", "pty", "pycurl", "requests", "runpy", "select", "selectors",
        "shelve", "shutil", "smtplib", "socket", "socketserver", "sqlite3", "ssl", "subprocess", "sys.modules",
        "telnetlib", "tempfile", "trio", "urllib.request", "urllib3", "webbrowser", "websocket", "websockets",
        "xmlrpc", "zipfile", "tarfile",
    }
)  # fmt: skip
"""Modules and names with which code acts outside: a flow acts through the door."""
PURE_OS: Final = frozenset(
    {
        "PathLike", "altsep", "curdir", "environ", "extsep", "fsdecode", "fsencode", "fspath", "linesep", "name",
        "path", "pathsep", "pardir", "sep",
    }
)  # fmt: skip
"""The names of the module `os` that do not act."""

_METHODS: Final = frozenset(
    {
        "open", "popen", "system", "fork", "read_bytes", "read_text", "write_bytes", "write_text", "unlink", "rmdir",
        "mkdir", "makedirs", "touch", "symlink_to", "hardlink_to", "iterdir", "rglob", "glob", "chmod", "rename",
        "urlopen", "urlretrieve", "import_module", "create_subprocess_exec", "create_subprocess_shell",
        "subprocess_exec", "subprocess_shell", "open_connection", "create_connection", "create_unix_connection",
        "create_datagram_endpoint", "create_server",
    }
)  # fmt: skip
"""Methods that open files or connections, or start programs, by their last name."""
_BUILTINS: Final = frozenset({"open", "eval", "exec", "__import__", "__builtins__"})
_CALLED: Final = _BUILTINS | {"compile"}


def find_outside(path: Path) -> Iterator[str]:
    """Yield what the code in a Python file imports or uses that acts outside of the door, with its line."""
    tree = ast.parse(path.read_bytes(), str(path))
    finder = _Finder(_read_imports(tree), frozenset(_read_own_names(tree)))
    found = {(getattr(node, "lineno", 0), what): None for node in ast.walk(tree) for what in finder.find(node)}
    for line, what in sorted(found):
        yield f"{path.name}:{line} {what}"


class _Finder:
    """Finds names outside in code with these *imports* (full names by local ones) and names of its *own*."""

    def __init__(self, imports: Mapping[str, str], own: frozenset[str]) -> None:
        self._imports, self._own = imports, own

    def find(self, node: ast.AST) -> Iterator[str]:
        """Yield what *node* imports, uses or calls outside."""
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from (f"imports {name}" for name in _imported_names(node) if _acts(name))
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            if node.id in _BUILTINS and node.id not in self._own:
                yield f"uses {node.id}"
        elif isinstance(node, ast.Attribute):
            name = self._resolve(node)
            if name and _acts(name):
                yield f"uses {name}"
        elif isinstance(node, ast.Call):
            yield from self._find_call(node)

    def _find_call(self, node: ast.Call) -> Iterator[str]:
        called = _dotted_name(node.func)
        if called in _CALLED or ("." in called and called.rpartition(".")[2] in _METHODS):
            yield f"calls {called}"
        if called in ("getattr", "vars") and node.args:
            name = self._resolve(node.args[0])
            named = node.args[1] if len(node.args) > 1 else None
            member = str(named.value) if isinstance(named, ast.Constant) and isinstance(named.value, str) else "*"
            if name and _acts(f"{name}.{member}"):
                yield f"calls {called} of {name}"

    def _resolve(self, node: ast.expr) -> str:
        """Return the full name of what *node* names, if it begins with an import; otherwise nothing."""
        first, dot, rest = _dotted_name(node).partition(".")
        return f"{self._imports[first]}{dot}{rest}" if first in self._imports else ""


def _acts(name: str) -> bool:
    """Return whether a full name acts outside; ``*`` stands for any member."""
    module, _, member = name.partition(".")
    if module == "os":
        return bool(member) and member.partition(".")[0] not in PURE_OS
    if member == "*":
        return any(each.partition(".")[0] == module for each in OUTSIDE)
    return is_among(name, OUTSIDE)


def _imported_names(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.Import):
        return [each.name for each in node.names]
    if node.level or not node.module:
        return []  # a module of the same package is read itself
    return [f"{node.module}.{each.name}" for each in node.names]


def _read_imports(tree: ast.AST) -> dict[str, str]:
    """Return the full names of what a module imports, by the names that it has there."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for each in node.names:
                found[each.asname or each.name.partition(".")[0]] = (
                    each.name if each.asname else each.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            found |= {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}
    return found


def _read_own_names(tree: ast.AST) -> Iterator[str]:
    """Yield the names that a module defines itself."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg


def _dotted_name(node: ast.expr) -> str:
    """Return the name that a node has; what stands before a method of an expression is a dot."""
    if isinstance(node, ast.Name):
        return node.id
    return f"{_dotted_name(node.value)}.{node.attr}" if isinstance(node, ast.Attribute) else ""
