"""The pieces of JSON Schema that the tools' arguments and results are made of; pure."""

from typing import Final

from deedbook.contract import Object
from deedbook_tool_standard.shapes import COUNT, PATH

MOST_PATHS: Final = 1_000
"""The most paths or globs in one call."""
GLOB: Object = {
    "type": "string",
    "minLength": 1,
    "maxLength": 512,
    "description": "A path, or a glob: * stays within a segment, ** crosses /, and src/ is all below it.",
}
GLOBS: Object = {"type": "array", "items": GLOB, "maxItems": MOST_PATHS}
DIGEST: Object = {"type": "string", "pattern": "^[0-9a-f]{64}$", "description": "SHA-256 in hex."}
COMMIT: Object = {"type": "string", "pattern": "^[0-9a-f]{40}$", "description": "The id of a commit, in full."}
TEXT_FILE: Object = {
    "type": "object",
    "required": ["path", "text", "digest", "bytes"],
    "properties": {"path": PATH, "text": {"type": "string"}, "digest": DIGEST, "bytes": COUNT},
    "additionalProperties": False,
}
SLICE: Object = {**TEXT_FILE, "properties": {**TEXT_FILE["properties"], "excerpt": {"const": True}}}
"""A file, or an excerpt of one; the digest is that of the whole file."""
CHANGED_FILE: Object = {
    "type": "object",
    "required": ["path", "kind", "added", "removed"],
    "properties": {"path": PATH, "kind": {"enum": ["added", "changed", "removed"]}, "added": COUNT, "removed": COUNT},
    "additionalProperties": False,
}
CHANGES: Object = {
    "type": "object",
    "required": ["files", "added", "removed"],
    "properties": {"files": {"type": "array", "items": CHANGED_FILE}, "added": COUNT, "removed": COUNT},
    "additionalProperties": False,
}
"""The files that a patch or a commit changes, and the lines that it adds and removes."""
