"""The flow ``workflow-artifact``: writes the file of an artifact through an ability, in the scope of the caller."""

from typing import Any, Final

from deedbook import Failed, HandlerSpec, Host, Object, Run
from deedbook.format.canonical import digest
from deedbook_flow_workflow.artifacts import build_name, check_file, render_file
from deedbook_flow_workflow.definition import WRITE, Artifact

_TEXT: Final = {"type": "string"}
_TAKES: Final = {
    "type": "object",
    "required": ["artifact", "schema", "value", "fields", "why", "written"],
    "properties": {
        "artifact": {"description": "The compiled artifact", "type": "object"},
        "schema": {"description": "The JSON Schema of its values", "type": "object"},
        "value": {"description": "What the file is to hold", "type": "object"},
        "fields": {"description": "The values of the fields of the pattern", "type": "object"},
        "why": {"description": "What the file is for", **_TEXT},
        "written": {
            "description": "The hashes of files that this cycle has written, by path: only these may be replaced",
            "type": "object",
            "additionalProperties": _TEXT,
        },
    },
    "additionalProperties": False,
}
_GIVES: Final = {
    "type": "object",
    "required": ["path", "hash"],
    "properties": {"path": _TEXT, "hash": _TEXT},
    "additionalProperties": False,
}
_SETTINGS: Final = {
    "type": "object",
    "properties": {
        "write": {
            "type": "string",
            "minLength": 1,
            "description": "The ability that writes a file.",
            "default": WRITE,
        }
    },
    "additionalProperties": False,
}


class WriteArtifact:
    """The flow: checks a file against name, schema and folder, then writes it with the ability in ``write``."""

    spec = HandlerSpec(settings=_SETTINGS, takes=_TAKES, gives=_GIVES, effects="none", files="none")

    def __init__(self, settings: Object, host: Host) -> None:  # noqa: ARG002 - the contract gives every plugin a host
        self._write = settings.get("write", WRITE)

    def __call__(self, args: Object, run: Run) -> dict[str, Any]:
        """Return the path and the hash of the written file."""
        artifact = Artifact(**args["artifact"])
        try:
            name = build_name(artifact.pattern, args["fields"])
        except ValueError as problem:
            raise Failed("SCHEMA_VIOLATION", f"{artifact.place}: {problem}") from None
        path = f"{artifact.folder}/{name}"
        raw = _render(artifact, args["value"])
        for error in check_file(artifact, args["schema"], path, raw):
            raise Failed(error.code, str(error))
        who = run.skill.name if run.skill else "workflow"
        claim = {"who": who, "why": args["why"], "expected_hash": args["written"].get(path, "")}
        run.call(self._write, {"path": path, "text": raw.decode(), **claim})
        return {"path": path, "hash": digest(raw)}


def _render(artifact: Artifact, value: Object) -> bytes:
    try:
        return render_file(artifact, value)
    except Exception as problem:  # noqa: BLE001 - the template engine may raise anything for a value
        raise Failed("SCHEMA_VIOLATION", f"{artifact.place}: the template cannot hold the value: {problem}") from None
