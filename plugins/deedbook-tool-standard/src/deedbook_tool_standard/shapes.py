"""The pieces of JSON Schema that the tools' arguments and results are made of."""

from deedbook.contract import Object

PATH: Object = {"type": "string", "minLength": 1, "maxLength": 4096, "description": "Relative to the root, with /."}
"""A file; the host has the last word on what it may name."""
FOLDER: Object = {"type": "string", "maxLength": 4096, "default": "", "description": "A folder; empty is the root."}
PATTERN: Object = {
    "type": "string",
    "minLength": 1,
    "maxLength": 512,
    "description": "A glob such as docs/**/*.md: * and ? stay within a name, ** is any number of folders.",
}
PATHS: Object = {"type": "array", "items": PATH, "maxItems": 10_000}
HASH: Object = {"type": "string", "pattern": "^([0-9a-f]{64})?$", "description": "SHA-256 in hex; empty for no file."}
COUNT: Object = {"type": "integer", "minimum": 0}
TRUNCATED: Object = {"type": "boolean", "description": "Whether there is more than the result may hold."}

ANYTHING: Object = {"type": ["object", "array", "string", "number", "boolean", "null"]}
"""Any result; what it really is stands in the ability's ``schema_out``."""
SECRET: Object = {
    "type": "object",
    "required": ["secret"],
    "properties": {"secret": {"type": "string", "minLength": 1}},
    "additionalProperties": False,
    "description": "The name of a secret, in the place of its value.",
}


def strict(properties: Object, *, optional: frozenset[str] = frozenset()) -> Object:
    """Return the schema of an object with exactly these properties, all required but the *optional* ones."""
    return {
        "type": "object",
        "required": [name for name in properties if name not in optional],
        "properties": properties,
        "additionalProperties": False,
    }


def array_of(item: Object) -> Object:
    """Return the schema of an array of *item*."""
    return {"type": "array", "items": item}
