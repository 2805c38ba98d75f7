"""Results of the CLI's own tools: they may only be replaced by a value of the same form."""

from typing import Any


def has_form_of(value: Any, output: Any) -> bool:
    """Return whether *value* has the members and types of *output*."""
    if isinstance(output, dict) and isinstance(value, dict):
        return value.keys() == output.keys() and all(has_form_of(value[name], output[name]) for name in output)
    if isinstance(output, list) and isinstance(value, list):
        return len(value) == len(output) and all(map(has_form_of, value, output))
    return type(value) is type(output)


def blank(output: Any) -> Any:
    """Return *output* without its texts; a member ``type`` names the form, so it stays."""
    if isinstance(output, dict):
        return {name: each if name == "type" else blank(each) for name, each in output.items()}
    if isinstance(output, list):
        return [blank(each) for each in output]
    return "" if isinstance(output, str) else output
