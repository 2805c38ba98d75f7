"""The prompt of a phase, made anew from the files that its contract names; pure.

The order of the parts is fixed: the assignment, the persona, the unit with its criteria, the shown inputs in the
contract's order, the results of the commands that ran before, what else the runner adds, the skills by name of file,
then the other files of the scope in the order of ``include`` and by path. Skills and other files are optional: in this
order, each is kept if there is room for it. If the prompt is over its budget without any of them, the phase cannot
begin.

The persona is no part of the text: the kernel gives it to the model as the instructions of the role. It counts.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import attrs

from deedbook import Object
from deedbook.contract import TokenCount
from deedbook.format import canonical
from deedbook.format.errors import DeedbookError
from deedbook.policy.conditions import glob_test
from deedbook.workspace.documents import parse_front_matter, parse_yaml

from .assignment import describe_assignment
from .contract import BEFORE, Contract, Input, fill
from .definition import AgentSkill, Definition
from .globs import whole_glob
from .shown import RunnerFiles

Counter: TypeAlias = Callable[[str], TokenCount]
"""Counts the tokens of a text, by the provider or by an estimate."""
Kind: TypeAlias = Literal["assignment", "persona", "unit", "input", "added", "skill", "file"]
Reason: TypeAlias = Literal["budget", "tags", "when", "excluded"]

BYTES_PER_TOKEN: Final = 4
_FENCE: Final = re.compile(r"^`{3,}", re.MULTILINE)


def estimate_tokens(text: str) -> TokenCount:
    """Return a quarter of the bytes of *text*, marked as an estimate."""
    return TokenCount(-(-len(text.encode("utf-8", "surrogatepass")) // BYTES_PER_TOKEN), "estimate")


@attrs.frozen
class ContextFile:
    """A file that was read: its *path* from the workspace's root, and its *text*."""

    path: str
    text: str = attrs.field(repr=False)


@attrs.frozen(kw_only=True)
class Part:
    """A part of a prompt. *digest* is the SHA-256 of the whole file or text, *tokens* an estimate of what is shown."""

    kind: Kind
    path: str
    text: str = attrs.field(repr=False)
    digest: str
    tokens: int

    @property
    def required(self) -> bool:
        """Whether the phase cannot begin without it."""
        return self.kind not in ("skill", "file")


@attrs.frozen(kw_only=True)
class Omission:
    """What is no part of a prompt, and why.

    ``budget``: there is no room; ``tags``: it has no tag of the task; ``when``: the skill is for other units;
    ``excluded``: the contract excludes it, or does not name it.
    """

    path: str
    reason: Reason
    tokens: int


@attrs.frozen(kw_only=True)
class PhaseContext:
    """A prompt: its *parts* in order, what was *left_out*, and its *tokens*, as they were *counted*.

    *missing* names the inputs without a file.
    """

    parts: tuple[Part, ...]
    left_out: tuple[Omission, ...]
    tokens: int
    counted: Literal["provider", "estimate"]
    budget: int
    missing: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether the prompt is within its budget."""
        return self.tokens <= self.budget

    @property
    def text(self) -> str:
        """The text of the prompt, without the persona."""
        return _join(part for part in self.parts if part.kind != "persona")


def list_paths(contract: Contract, values: Mapping[str, str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the globs of the inputs, and those of the other files of the scope; raises `ValueError`."""
    inputs = tuple(fill(each.path, values) for each in contract.inputs)
    scope = (whole_glob(fill(each, values)) for each in contract.scope.include)
    return inputs, tuple(each for each in scope if each not in inputs)


@attrs.frozen(kw_only=True)
class PhaseWork:
    """What a prompt is made for: *values* replace placeholders, *tags* are those of the task, *unit* is its unit.

    *units*, *criteria* and *request* are those of the task, as far as they are known. *added* are files that the runner
    adds, such as the signal that the phase has to mend, or the code of a unit; they are required. *persona* is the text
    that the kernel gives to the model.
    """

    values: Mapping[str, str]
    tags: frozenset[str] = frozenset()
    unit: Object | None = None
    units: Sequence[Object] = ()
    criteria: Sequence[Object] = ()
    added: tuple[ContextFile, ...] = ()
    persona: str = ""
    request: str = ""

    def budget(self, contract: Contract) -> int:
        """Return the budget of the prompt."""
        units = self.units if self.unit is None else (self.unit,)
        return contract.budget(units, criteria=len(self.criteria), request=estimate_tokens(self.request).tokens)


def assemble(
    definition: Definition,
    contract: Contract,
    work: PhaseWork,
    files: Sequence[ContextFile],
    count: Counter = estimate_tokens,
) -> PhaseContext:
    """Return the prompt of a phase; *files* were read by `list_paths`.

    *count* counts the prompt as a whole: once, and again each time that parts were left out.
    """
    sorting, runner = _SortedInputs(contract, work), RunnerFiles(definition, work.values)
    for file in sorted(files, key=lambda each: each.path):
        sorting.take(file)
    required = (
        *_describe_task(definition, contract, work),
        *(_fence_file("input", file, runner) for file in sorting.inputs()),
        *(_fence_file("added", file, runner) for file in (*sorting.results(), *work.added)),
    )
    unit = "" if work.unit is None else _as_json(work.unit)
    subject = "\n".join([unit, *(file.text for file in sorting.inputs())])
    skills = definition.skills.get(contract.agent, ()) if contract.scope.skills else ()
    chosen = [skill for skill in skills if is_for(skill, work.unit, subject)]
    optional = [
        *(_part("skill", skill.path, f"# Skill: {skill.name}\n\n{skill.text}", skill.text) for skill in chosen),
        *(_fence_file("file", file, runner) for file in sorting.others()),
    ]
    left_out = [*sorting.left_out, *(_omit_skill(skill) for skill in skills if skill not in chosen)]
    fitted = _fit(required, optional, work.budget(contract), count)
    return attrs.evolve(fitted, left_out=(*left_out, *fitted.left_out), missing=sorting.missing())


def _describe_task(definition: Definition, contract: Contract, work: PhaseWork) -> Iterator[Part]:
    """Yield the assignment, the persona, and the unit with its criteria."""
    head = describe_assignment(definition, contract, work.values)
    yield _part("assignment", contract.phase, head, head)
    if work.persona:
        yield _part("persona", f"agents/{contract.agent}/persona.md", work.persona, work.persona)
    if work.unit is not None:
        name, named = str(work.unit.get("id", "unit")), work.unit.get("criteria", ())
        yield _part("unit", name, _fence(name, _as_json(work.unit)), _as_json(work.unit))
        own = [_as_json(each) for each in work.criteria if each.get("id") in named]
        if own:
            text = "".join(f"{each}\n" for each in own)
            yield _part("unit", f"{name}/criteria", _fence(f"criteria of {name}", text), text)


def is_for(skill: AgentSkill, unit: Object | None, text: str) -> bool:
    """Return whether a skill is for *unit*, or for work whose *text* mentions one of its words, in any case."""
    if not skill.types and not skill.mentions:
        return True
    if unit is not None and unit.get("type") in skill.types:
        return True
    lowered = text.lower()
    return any(re.search(rf"(?<!\w){re.escape(word.lower())}", lowered) for word in skill.mentions)


# --- which file is what -----------------------------------------------------------------------------------------------


class _SortedInputs:
    """Sorts the files that were read by what the contract says about their paths."""

    def __init__(self, contract: Contract, work: PhaseWork) -> None:
        self.left_out: list[Omission] = []
        self._results: list[ContextFile] = []
        self._wanted: list[tuple[Input, list[ContextFile]]] = [(each, []) for each in contract.inputs]
        self._included: list[tuple[str, list[ContextFile]]] = [(each, []) for each in contract.scope.include]
        self._values = work.values
        self._tags = work.tags
        unwanted = (*contract.scope.exclude, *contract.forbidden_reads)
        before = (rule.command for rule in contract.commands if rule.command and rule.command.runs == BEFORE)
        self._is_result = glob_test([self._glob(each.writes) for each in before])
        self._excludes = glob_test([self._glob(each) for each in unwanted])
        self._selected = glob_test([self._glob(each) for each in contract.scope.select])

    def take(self, file: ContextFile) -> None:
        """Put a file where it belongs."""
        if self._excludes(file.path):
            self._leave_out(file, "excluded")
            return
        if self._is_result(file.path):
            self._results.append(file)
            return
        for needed, found in self._wanted:
            if glob_test([self._glob(needed.path)])(file.path):
                found.append(file)
                if needed.shown:
                    return
                break
        for included, found in self._included:
            if glob_test([self._glob(included)])(file.path):
                if self._selected(file.path) and self._tags.isdisjoint(read_tags(file)):
                    self._leave_out(file, "tags")
                else:
                    found.append(file)
                return
        if not any(file in found for _, found in self._wanted):
            self._leave_out(file, "excluded")

    def inputs(self) -> Iterator[ContextFile]:
        """Yield the files of the inputs that are shown, in the contract's order."""
        for needed, found in self._wanted:
            if needed.shown:
                yield from found

    def results(self) -> Iterator[ContextFile]:
        """Yield the results of the commands that run before the agent."""
        yield from self._results

    def others(self) -> Iterator[ContextFile]:
        """Yield the other files of the scope."""
        for _, found in self._included:
            yield from found

    def missing(self) -> tuple[str, ...]:
        """Return the names of the inputs without a file."""
        return tuple(needed.name for needed, found in self._wanted if not found)

    def _glob(self, path: str) -> str:
        return whole_glob(fill(path, self._values))

    def _leave_out(self, file: ContextFile, reason: Reason) -> None:
        self.left_out.append(Omission(path=file.path, reason=reason, tokens=estimate_tokens(file.text).tokens))


def read_tags(file: ContextFile) -> frozenset[str]:
    """Return the ``tags`` of a Markdown file's front matter, or of a YAML file; none if it cannot be read."""
    raw = file.text.encode("utf-8", "surrogatepass")
    try:
        is_yaml = file.path.endswith((".yaml", ".yml", ".json"))
        said: Any = parse_yaml(raw, file.path).value if is_yaml else parse_front_matter(raw, file.path)[0].value
    except DeedbookError:
        return frozenset()
    listed = said.get("tags") if isinstance(said, dict) else None
    return frozenset(each for each in (listed if isinstance(listed, list) else ()) if isinstance(each, str))


# --- parts ------------------------------------------------------------------------------------------------------------


def _part(kind: Kind, path: str, text: str, content: str) -> Part:
    digest = canonical.digest(content.encode("utf-8", "surrogatepass"))
    return Part(kind=kind, path=path, text=text, digest=digest, tokens=estimate_tokens(text).tokens)


def _fence_file(kind: Kind, file: ContextFile, runner: RunnerFiles) -> Part:
    return _part(kind, file.path, _fence(file.path, runner.show(file.path, file.text)), file.text)


def _fence(title: str, content: str) -> str:
    """Return *content* below a title, in a fence that is longer than every fence in it."""
    fence = "`" * max((len(each) + 1 for each in _FENCE.findall(content)), default=3)
    ending = "" if content.endswith("\n") else "\n"
    return f"# {title}\n\n{fence}\n{content}{ending}{fence}"


def _as_json(value: Object) -> str:
    return canonical.encode(value).decode()


def _omit_skill(skill: AgentSkill) -> Omission:
    return Omission(path=skill.path, reason="when", tokens=estimate_tokens(skill.text).tokens)


def _join(parts: Any) -> str:
    return "\n\n".join(part.text.rstrip("\n") for part in parts) + "\n"


# --- the budget -------------------------------------------------------------------------------------------------------


def _fit(required: Sequence[Part], optional: Sequence[Part], budget: int, count: Counter) -> PhaseContext:
    """Return the prompt of all required parts, and of each optional one, from the first, for which there is room."""
    kept = list(optional)
    while True:
        parts = (*required, *kept)
        counted = count(_join(parts))
        if counted.tokens <= budget or not kept:
            break
        ratio = counted.tokens / max(1, sum(part.tokens for part in parts))
        kept = _choose(kept, sum(part.tokens for part in kept) - (counted.tokens - budget) / ratio)
    omitted = [each for each in reversed(optional) if each not in kept]
    left_out = tuple(Omission(path=each.path, reason="budget", tokens=each.tokens) for each in omitted)
    return PhaseContext(parts=parts, left_out=left_out, tokens=counted.tokens, counted=counted.by, budget=budget)


def _choose(parts: Sequence[Part], room: float) -> list[Part]:
    """Return fewer *parts*: from the first, each that is no larger than the *room* that is left."""
    chosen: list[Part] = []
    for part in parts:
        if part.tokens <= room:
            chosen.append(part)
            room -= part.tokens
    return chosen
