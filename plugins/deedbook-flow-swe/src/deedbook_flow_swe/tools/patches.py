"""Check a patch before anything applies it: which files it changes, and that it does nothing else; pure.

`unidiff` reads the hunks. It passes over lines that it does not know, and git acts on some of those (modes, renames,
links). So every line that is not part of a hunk must also have the form of one of the few headers that are accepted.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal, TypeAlias

import attrs
from unidiff.errors import UnidiffParseError
from unidiff.patch import PatchSet

from deedbook.contract import Failed
from deedbook.format.paths import fold_path, path_fault, shown_path
from deedbook.policy.limits import FileList

Kind: TypeAlias = Literal["added", "changed", "removed"]

MOST_BYTES: Final = 4 << 20
"""The longest patch."""
NOTHING: Final = "/dev/null"
_PLAIN: Final = "100644"
_EXECUTABLE: Final = "100755"
_NAME: Final = r'[^\t\n"\\]+'
_HEADER: Final = re.compile(
    rf"""(?:diff\ --git\ (?P<git>[^\t\n"\\]+)\n
         (?:(?P<mode>new|deleted)\ file\ mode\ (?P<bits>[0-9]{{1,6}})\n)?
         (?:index\ [0-9a-f]{{4,64}}\.\.[0-9a-f]{{4,64}}(?:\ (?P<kept>[0-9]{{1,6}}))?\n)?)?
        (?:---\ (?:a/(?P<old>{_NAME})|(?P<no_old>/dev/null))(?:\t[^\n]*)?\n
         \+\+\+\ (?:b/(?P<new>{_NAME})|(?P<no_new>/dev/null))(?:\t[^\n]*)?\n)?""",
    re.VERBOSE,
)
_HUNK: Final = re.compile(r"@@ -[0-9]{1,9}(?:,[0-9]{1,9})? \+[0-9]{1,9}(?:,[0-9]{1,9})? @@(?: [^\n]*)?\n")
_GIT: Final = "diff --git "
_SLOW: Final = (_GIT, "Binary file")
_NO_NEWLINE: Final = "\\ No newline at end of file\n"
_REASONS: Final = (
    (re.compile(r"GIT binary patch|Binary files? "), "a binary file cannot be changed by a patch"),
    (re.compile(r"(?:old|new) mode "), "it changes the mode of a file; only contents may change"),
    (re.compile(r"(?:similarity|dissimilarity) index|rename |copy "), "it renames or copies a file; add and remove"),
    (re.compile(r'(?:diff --git |--- |\+\+\+ )[^\n]*["\\]'), "the name has a quote or a backslash; write plain UTF-8"),
    (re.compile(r"(?:---|\+\+\+) [^ab]|(?:---|\+\+\+) .[^/]"), "expected a name that begins with a/ or b/"),
)  # fmt: skip
_FORBIDDEN: Final = frozenset({".git", ".gitmodules", ".gitattributes", ".system", ".deedbook"})
"""Names, in any case, that git, Deedbook or the checks read as instructions."""
_CHECKS: Final = ".deedbook-"
"""How the names of the files begin that the checks in the sandbox write."""


@attrs.frozen
class ChangedFile:
    """One file that a patch changes, and the lines that it adds and removes."""

    path: str
    kind: Kind
    added: int = 0
    removed: int = 0

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return attrs.asdict(self)


@attrs.frozen
class _Header:
    line: int
    path: str
    kind: Kind
    has_names: bool


class _CountingReader:
    """Gives lines one by one; *line* is the number of the last one."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines
        self.line = 0

    def __iter__(self) -> Iterator[str]:
        for text in self._lines:
            self.line += 1
            yield text


def read_patch(text: str) -> tuple[ChangedFile, ...]:
    """Return the files that a unified diff changes; raises `Failed` (``PATCH_REFUSED``) for anything but plain text.

    Names begin with ``a/`` and ``b/``, as git and most tools write them.
    """
    if len(text.encode("utf-8", "surrogatepass")) > MOST_BYTES:
        raise _refusal(f"it has more than {MOST_BYTES} bytes")
    lines = [f"{line}\n" for line in text.removesuffix("\n").split("\n")] if text else []
    _check_text(lines)
    reader = _CountingReader(lines)
    try:
        patch = PatchSet(iter(reader))
    except (UnidiffParseError, ValueError, AssertionError) as problem:
        raise _refusal(f"it is no unified diff: {str(problem).strip()[:200]}", reader.line) from None
    body = {line.diff_line_no for file in patch for hunk in file for line in hunk if line.diff_line_no}
    headers = list(_read_headers(lines, body))
    if len(headers) != len(patch):
        raise _refusal(f"it has {len(headers)} headers of files, and hunks of {len(patch)}")
    files = []
    for header, found in zip(headers, patch, strict=True):
        if bool(found) != header.has_names:
            raise _refusal("it names a file without a change, or the reverse", header.line, header.path)
        files.append(ChangedFile(header.path, header.kind, found.added, found.removed))
        _check_kind(header, files[-1])
    if not files:
        raise _refusal("it changes no file")
    _check_names(headers)
    return tuple(files)


def check_patch(text: str, allow: Sequence[str] | None, most_lines: int | None) -> tuple[ChangedFile, ...]:
    """Return what *text* changes, if each file fits *allow* and no more than *most_lines* are added and removed.

    Raises `Failed` (``PATCH_REFUSED``).
    """
    files = read_patch(text)
    try:
        allowed = None if allow is None else FileList.compile(allow)
    except ValueError as problem:
        raise Failed("BAD_PATTERN", str(problem)) from None
    for file in files:
        if allowed is not None and not allowed.fits(file.path):
            raise _refusal(f"the file is outside of what may change: {allowed}", path=file.path)
    lines = sum(file.added + file.removed for file in files)
    if most_lines is not None and lines > most_lines:
        raise _refusal(f"it adds and removes {lines} lines; at most {most_lines} are accepted")
    return files


def describe(files: Sequence[ChangedFile]) -> dict[str, Any]:
    """Return *files* and the totals of their lines as JSON."""
    return {
        "files": [file.as_json() for file in files],
        "added": sum(file.added for file in files),
        "removed": sum(file.removed for file in files),
    }


def _check_text(lines: Sequence[str]) -> None:
    """Refuse what is no text, and lines that would keep the expressions of `unidiff` busy for long."""
    for number, line in enumerate(lines, 1):
        if line.startswith(_SLOW):
            for pattern, why in _REASONS:
                if pattern.match(line):
                    raise _refusal(why, number)
            if _git_name(line[len(_GIT) : -1]) is None:
                raise _refusal("expected the same name twice, as in diff --git a/NAME b/NAME", number)
        if "\0" in line:
            raise _refusal("it has a NUL character; a binary file cannot be changed by a patch", number)
        if any("\ud800" <= letter <= "\udfff" for letter in line):
            raise _refusal("it is not Unicode text", number)


def _git_name(text: str) -> str | None:
    """Return the name of ``a/NAME b/NAME``; ``None`` if the text is something else."""
    name = text[2 : 2 + (len(text) - len("a/ b/")) // 2]
    return name if name and text == f"a/{name} b/{name}" else None


def _read_headers(lines: Sequence[str], body: set[int]) -> Iterator[_Header]:
    """Yield the header of each file; every line that is in no hunk must be part of one."""
    number, before = 1, False
    while number <= len(lines):
        line = lines[number - 1]
        if number in body:
            number, before = number + 1, True
        elif (line == _NO_NEWLINE and before) or _HUNK.fullmatch(line):
            number, before = number + 1, False
        else:
            last = _end_of_header(lines, body, number)
            yield _read_header("".join(lines[number - 1 : last]), number)
            number, before = last + 1, False


def _end_of_header(lines: Sequence[str], body: set[int], first: int) -> int:
    """Return the number of the last line of the header that begins at *first*."""
    last = first
    while last < len(lines) and last + 1 not in body:
        line = lines[last]
        is_next = line.startswith(_GIT) or (line.startswith("--- ") and lines[last - 1].startswith("+++ "))
        if is_next or line.startswith("@@"):
            break
        last += 1
    return last


def _read_header(text: str, line: int) -> _Header:
    found = _HEADER.fullmatch(text)
    if found is None:
        raise _explain(text, line)
    git = _git_name(found["git"]) if found["git"] is not None else None
    names = {name for name in (git, found["old"], found["new"]) if name is not None}
    if len(names) != 1:
        raise _refusal("it renames a file; add and remove" if names else "it names no file", line)
    path = names.pop()
    added = found["no_old"] is not None or found["mode"] == "new"
    removed = found["no_new"] is not None or found["mode"] == "deleted"
    has_names = found["old"] is not None or found["no_old"] is not None
    _check_modes(found, line, path, added=added)
    if added and removed:
        raise _refusal("it both adds and removes the file", line, path)
    if not has_names and found["mode"] is None:
        raise _refusal("it names a file and changes nothing", line, path)
    if has_names and ((found["no_old"] is not None) != added or (found["no_new"] is not None) != removed):
        raise _refusal(f"--- and +++ contradict the line before; {NOTHING} is for a file that is absent", line, path)
    return _Header(line, path, "added" if added else "removed" if removed else "changed", has_names)


def _check_modes(found: re.Match[str], line: int, path: str, *, added: bool) -> None:
    for bits in (found["bits"], found["kept"]):
        if bits not in (None, _PLAIN) and (added or bits != _EXECUTABLE):
            why = f"the file has the mode {bits}; a patch adds files with the mode {_PLAIN}, and changes plain files"
            raise _refusal(why, line, path)


def _explain(text: str, line: int) -> Failed:
    """Return why *text*, which begins at *line*, is not accepted as a header."""
    lines = text.splitlines()
    for offset, each in enumerate(lines):
        for pattern, why in _REASONS:
            if pattern.match(each):
                return _refusal(why, line + offset)
    return _refusal(f"expected the header of a file, found {lines[0][:80]!r}", line)


def _check_kind(header: _Header, file: ChangedFile) -> None:
    if (header.kind == "added" and file.removed) or (header.kind == "removed" and file.added):
        raise _refusal(f"the file is {header.kind}, and the hunks do more", header.line, header.path)


def _check_names(headers: Sequence[_Header]) -> None:
    seen: dict[str, str] = {}
    for header in headers:
        path, folded = header.path, fold_path(header.path)
        why = path_fault(path)
        if why is not None:
            raise _refusal(f"the name {why}", header.line, path)
        bad = next((part for part in folded.split("/") if part in _FORBIDDEN or part.startswith(_CHECKS)), None)
        if bad is not None:
            raise _refusal(f"no patch changes {bad}", header.line, path)
        if folded in seen:
            why = "twice" if seen[folded] == path else f"in two spellings, as {seen[folded]!r}"
            raise _refusal(f"it names the file {why}", header.line, path)
        seen[folded] = path


def _refusal(why: str, line: int | None = None, path: str | None = None) -> Failed:
    place = ":".join(["patch", *([str(line)] if line is not None else [])])
    named = f" {shown_path(path)}:" if path is not None else ""
    return Failed("PATCH_REFUSED", f"{place}:{named} {why}")
