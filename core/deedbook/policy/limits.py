"""The limits of a branch of a flow: the abilities that it may use, and the files that it may read and write.

The limits of nested branches add up: a call needs the consent of each. `ability_violation` and `path_violation` decide
at the door, from the recorded arguments alone. `FileRules` decides for the handler's host, file by file.

A file list holds globs over normal paths from the root. ``!`` before a glob excludes: a path fits the list if it fits
a glob and no excluded one. Exclusions also hold for other spellings of the same path that some file system accepts.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Protocol

import attrs

from deedbook.contract import PATHS, Limits, Object
from deedbook.contract.urls import readings
from deedbook.format.paths import fold_path

from .conditions import ABSENT, ValueTest, as_list, glob_test, lookup, normal_path, too_large

if TYPE_CHECKING:
    from deedbook.plugins.call_files import Access

_MEMBERS: Final = ("abilities", "forbidden", "reads", "writes")
_SHOWN: Final = 5
_LONGEST: Final = 100


@attrs.frozen(eq=False)
class FileList:
    """Compiled globs over paths."""

    globs: tuple[str, ...]
    _fits: ValueTest
    _excluded: ValueTest
    _folders: tuple[tuple[ValueTest | None, ...], ...]

    @classmethod
    def compile(cls, globs: Sequence[str]) -> "FileList":
        """Compile *globs*; raises `ValueError` with what is wrong with one."""
        wanted = [_check_glob(each) for each in globs if each[:1] != "!"]
        unwanted = [_check_glob(each[1:]) for each in globs if each[:1] == "!"]
        if unwanted and not wanted:
            raise ValueError(f"{_list_globs(globs)} only excludes; name what is included, such as **")
        spellings = [*unwanted, *map(fold_path, unwanted)]
        if too_large(wanted) or too_large(spellings):
            raise ValueError("the globs are too large together; write fewer or shorter ones")
        return cls(tuple(globs), glob_test(wanted), glob_test(spellings), tuple(map(_segment_tests, wanted)))

    def fits(self, path: str) -> bool:
        """Return whether the file *path* is in the list; the root is no file."""
        return path != "" and self._fits(path) and not self._excluded(path) and not self._excluded(fold_path(path))

    def reaches_below(self, folder: str) -> bool:
        """Return whether the list may have a file below *folder*."""
        parts = folder.split("/") if folder else []
        return any(_is_above(parts, tests) for tests in self._folders)

    def __str__(self) -> str:
        return _list_globs(self.globs)


class LimitedAbility(Protocol):
    """What limits ask about an ability: `bound.BoundAbility` has it."""

    @property
    def id(self) -> str:
        """Its id."""

    @property
    def kind(self) -> str:
        """Its kind."""

    @property
    def files(self) -> str | None:
        """The files that its handler declares."""

    @property
    def paths(self) -> tuple[str, ...]:
        """Pointers to the arguments that are paths."""

    @property
    def durable(self) -> bool:
        """Whether it writes."""


@attrs.frozen
class BranchLimits:
    """The compiled limits of a *branch*; *document* is their recorded form. ``None`` is no limit."""

    branch: str
    document: Mapping[str, Any]
    allows: ValueTest | None = attrs.field(eq=False, repr=False)
    forbids: ValueTest = attrs.field(eq=False, repr=False)
    reads: FileList | None = attrs.field(eq=False, repr=False)
    writes: FileList | None = attrs.field(eq=False, repr=False)

    @property
    def why(self) -> str:
        """The name of these limits in denials."""
        return f"the limits of branch {self.branch[:_LONGEST]!r}"

    @property
    def has_files(self) -> bool:
        """Whether files are limited."""
        return self.reads is not None or self.writes is not None


def limits_document(limits: Limits) -> dict[str, Any]:
    """Return the recorded form of *limits*; raises `ValueError` for values that are no lists of texts."""
    if type(limits) is not Limits:
        raise ValueError(f"limits are {type(limits).__name__}, not Limits")
    return {name: _texts(name, getattr(limits, name)) for name in _MEMBERS}


def compile_limits(branch: str, document: Mapping[str, Any]) -> BranchLimits:
    """Return the limits of *branch*, given their recorded form; raises `ValueError`."""
    lists = {name: None if document[name] is None else tuple(document[name]) for name in _MEMBERS}
    abilities, files = _compile_abilities(lists["abilities"], lists["forbidden"]), (lists["reads"], lists["writes"])
    return BranchLimits(
        branch, document, *abilities, *(None if each is None else _compile_files(each) for each in files)
    )


def ability_violation(limits: Iterable[BranchLimits], bound: LimitedAbility) -> tuple[str, str] | None:
    """Return the name of the limits that exclude *bound*, and why; models are not limited."""
    if bound.kind == "model":
        return None
    found = ((each.why, _exclusion(each, bound.id, bound.files)) for each in limits)
    return next(((limit, why) for limit, why in found if why is not None), None)


def path_violation(limits: Iterable[BranchLimits], bound: LimitedAbility, args: Object) -> tuple[str, str] | None:
    """Return the name of the limits that exclude a path in *args*, and why.

    An ability that writes needs all its paths in ``writes``; any other needs them in ``reads``, where a folder may be
    named that has such files. A handler without files is not asked unless the ability declares its path arguments.
    """
    if bound.kind == "model" or (bound.files == "none" and bound.paths == PATHS):
        return None
    access: Access = "write" if bound.durable else "list"
    paths = [path for pointer in bound.paths for path in _paths_in(lookup(pointer)(args))]
    for each in limits:
        if not each.has_files:
            continue
        rules = FileRules((each,))
        for path in paths:
            if why := _path_refusal(rules, access, path):
                return each.why, f"{str(path)[:200]!r} {why}"
    return None


def _path_refusal(rules: "FileRules", access: "Access", path: Any) -> str | None:
    """Return why *path*, in any of its readings, may not be accessed."""
    for each in readings(path) if type(path) is str else (path,):
        normal = "" if each == "" else normal_path(each)
        why = "is no plain path below the root" if normal is None else rules.refusal(access, normal)
        if why is not None:
            return why
    return None


@attrs.frozen
class FileRules:
    """The files that a call under *limits* may reach: what `plugins.call_files.FileLimits` asks.

    *programs*: the handler confines the programs that it starts.
    """

    limits: tuple[BranchLimits, ...]
    programs: bool = False

    def refusal(self, access: "Access", place: str) -> str | None:
        """Return why *place* may not be accessed; ``None`` if it may."""
        for each in self.limits:
            files = each.writes if access == "write" else each.reads
            if files is None or files.fits(place) or (access == "list" and files.reaches_below(place)):
                continue
            verb = "write" if access == "write" else "read"
            return f"is outside {each.why}, which may {verb} {files}"
        return None


def file_rules(limits: tuple[BranchLimits, ...], bound: LimitedAbility) -> FileRules | None:
    """Return the rules for the host of a call of *bound*; ``None`` if its files are not limited.

    A model's are limited if its provider declares that it opens files with its host: those of a request's images.
    """
    if (bound.kind == "model" and bound.files != "host") or not any(each.has_files for each in limits):
        return None
    return FileRules(limits, programs=bound.files == "sandbox")


def permits_ability(limits: Sequence[BranchLimits], name: str, files: str | None) -> bool:
    """Return whether a branch under *limits* may use the ability *name*, whose handler declares *files*."""
    return all(_exclusion(each, name, files) is None for each in limits)


def _exclusion(limits: BranchLimits, name: str, files: str | None) -> str | None:
    """Return why *limits* exclude the ability *name*, whose handler declares *files*; ``None`` if they do not."""
    if limits.allows is not None and not limits.allows(name):
        return f"it may use {_list_globs(limits.document['abilities'])}"
    if limits.forbids(name):
        return f"it may not use {_list_globs(limits.document['forbidden'])}"
    if limits.has_files and files is None:
        return "its files are limited, and the handler does not declare which files it reaches"
    return None


# --- compiling --------------------------------------------------------------------------------------------------------


def _texts(name: str, found: Any) -> list[str] | None:
    if found is None and name != "forbidden":
        return None
    if isinstance(found, str) or not isinstance(found, Collection) or not all(type(each) is str for each in found):
        raise ValueError(f"limits.{name} is not a list of texts")
    return sorted(set(found))


@lru_cache(maxsize=256)
def _compile_abilities(
    allowed: tuple[str, ...] | None, forbidden: tuple[str, ...]
) -> tuple[ValueTest | None, ValueTest]:
    if too_large(allowed or ()) or too_large(forbidden):
        raise ValueError("the globs over abilities are too large together; write fewer or shorter ones")
    return None if allowed is None else glob_test(allowed), glob_test(forbidden)


_compile_files: Final[Callable[[tuple[str, ...]], FileList]] = lru_cache(maxsize=256)(FileList.compile)


def _check_glob(glob: str) -> str:
    """Return *glob* with ``/`` at its end as all that is below; raises `ValueError` if it fits no path."""
    whole = f"{glob}**" if glob.endswith("/") else glob
    if normal_path(whole) != whole or not whole:
        raise ValueError(f'"{glob[:200]}" fits no path; expected a glob over relative, normal paths, such as src/**')
    return whole


def _segment_tests(glob: str) -> tuple[ValueTest | None, ...]:
    """Return a test for each segment of *glob*, up to ``**``, which stands as ``None`` for anything from there on."""
    made: list[ValueTest | None] = []
    for part in glob.split("/"):
        if "**" in part:
            return (*made, None)
        made.append(glob_test([part]))
    return tuple(made)


def _is_above(parts: Sequence[str], tests: Sequence[ValueTest | None]) -> bool:
    """Return whether a path that fits *tests* may stand below the folder of *parts*."""
    for part, test in zip(parts, tests, strict=False):
        if test is None:
            return True
        if not test(part):
            return False
    return len(tests) > len(parts)


def _paths_in(value: Any) -> Sequence[Any]:
    return () if value is ABSENT or value is None else as_list(value)


def _list_globs(globs: Sequence[str]) -> str:
    more = f" and {len(globs) - _SHOWN} more" if len(globs) > _SHOWN else ""
    first = sorted(globs, key=lambda each: each[:1] == "!")[:_SHOWN]  # what is included says more than what is not
    return f"{', '.join(each[:_LONGEST] for each in first)}{more}" if globs else "nothing"
