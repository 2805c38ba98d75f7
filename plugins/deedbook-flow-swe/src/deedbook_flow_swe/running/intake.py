"""The task that a run is given."""

from typing import Any, Final

from deedbook import Failed, Object, Run
from deedbook.format import canonical
from deedbook.format.errors import IntakeError
from deedbook.format.schema import Schemas, data_folder
from deedbook_flow_swe.definition import TASK_SCHEMA, Definition

from .files import digest_text

_TITLE: Final = 200

DEFAULT_PROJECT: Final = "main"
"""The project of a task that names none."""


def read_task(args: Object, run: Run, definition: Definition) -> dict[str, Any]:
    """Return the task (``swe_task_v1``) in the arguments of a run; raises `Failed` (``SCHEMA_VIOLATION``)."""
    stated, now = _parse(args), run.now()
    identity = str(stated.get("id") or name_task(now, run.new_id()))
    return build_task(stated, definition, identity=identity, now=now, who=run.principal.id)


def name_task(now: str, unique: str) -> str:
    """Return the id of a task that has none, from the time and a unique text."""
    return f"task-{now[:10]}-{unique[:8]}"


def build_task(stated: Object, definition: Definition, *, identity: str, now: str, who: str) -> dict[str, Any]:
    """Return the task that *stated* describes; what it leaves out is filled in, such as the digest of the request.

    Raises `Failed` (``SCHEMA_VIOLATION``) with the first member that is wrong.
    """
    request = stated.get("request") or stated.get("title") or ""
    task = {
        "schema_version": "v1",
        "id": identity,
        "title": str(stated.get("title") or str(request).strip().partition("\n")[0])[:_TITLE],
        "request": request,
        "project": stated.get("project", DEFAULT_PROJECT),
        "priority": stated.get("priority", "normal"),
        "tags": stated.get("tags", []),
        "pipeline": definition.id,
        "generated": stated.get("generated", False),
        "status": definition.phases[0].phase.upper().replace("-", "_"),
        "created": stated.get("created", now),
        "submitted_by": stated.get("submitted_by", who),
        "source": stated.get("source", "command"),
        "digest": digest_text(str(request)),
    }
    unknown = sorted(stated.keys() - task.keys())
    if unknown:
        raise Failed("SCHEMA_VIOLATION", f"the task has an unknown member {unknown[0]!r}; see {TASK_SCHEMA}")
    violations = Schemas.load(data_folder("schemas")).validator(TASK_SCHEMA).violations(task)
    if violations:
        raise Failed("SCHEMA_VIOLATION", f"the task: {violations[0].path}: {violations[0].message}")
    return task


def _parse(args: Object) -> dict[str, Any]:
    if "task" in args:
        return dict(args["task"])
    prompt = args["prompt"]
    if not prompt.lstrip().startswith("{"):
        return {"request": prompt}
    try:
        found = canonical.parse(prompt)
    except IntakeError as problem:
        raise Failed("SCHEMA_VIOLATION", f"the task is no JSON object: {problem}") from None
    return dict(found)
