"""Jinja2 templates in which text from a ledger cannot become markup.

Jinja2 escapes every expression of a template. Before that, characters that a reader cannot see (controls, bidirectional
marks, lone surrogates) are spelled out.
"""

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup, escape

from deedbook.format.terminal import plain

from .payloads import JsonLine, Mark

_KEY: Final = "\x01"
_COLON: Final = "\x02"
_MARK: Final = "\x03"
"""They stand for markup in JSON. `plain` spells out control characters, so no text from a ledger holds them."""


@cache
def load_template(name: str) -> Template:
    """Return a template of the folder ``pages``; it is compiled once per process."""
    environment = build_environment("deedbook_inspect")
    environment.filters["json_lines"] = _format_json_lines
    return environment.get_template(name)


def build_environment(package: str) -> Environment:
    """Return the environment of the templates in the folder ``pages`` of *package*."""
    return Environment(
        loader=PackageLoader(package, "pages"),
        autoescape=True,
        finalize=_spell_out,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )


def _spell_out(value: Any) -> Any:
    """Return *value* as text on one line without invisible characters; what is HTML already stays as it is."""
    return value if isinstance(value, Markup) else plain(str(value))


def _format_json_lines(lines: Iterable[JsonLine], render_mark: Callable[[Mark], Markup]) -> Markup:
    """Return *lines* of JSON as HTML, escaped at once: most of a page is such lines.

    Each begins with a line feed. *render_mark* returns the HTML of a mark.
    """
    text, marks = [], []
    for line in lines:
        text.append(f"\n{line.indent}{_KEY}{line.key}{_COLON}" if line.key else f"\n{line.indent}")
        if line.mark:
            text.append(_MARK)
            marks.append(render_mark(line.mark))
        text.append(line.text)
    escaped = str(escape("".join(text))).replace(_KEY, "<b>").replace(_COLON, "</b>: ")
    first, *rest = escaped.split(_MARK)
    html = "".join([first, *(f"{mark}{after}" for mark, after in zip(marks, rest, strict=True))])
    return Markup(html)  # noqa: S704 - text from the ledger is escaped above
