"""Jinja2 templates in which text from a ledger cannot become markup.

Jinja2 escapes every expression of a template. Before that, characters that a reader cannot see (controls, bidirectional
marks, lone surrogates) are spelled out.
"""

from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from deedbook.format.terminal import plain


@cache
def load_template(name: str) -> Template:
    """Return a template of the folder ``pages``; it is compiled once per process."""
    return Environment(
        loader=PackageLoader("deedbook_inspect", "pages"),
        autoescape=True,
        finalize=_spell_out,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    ).get_template(name)


def _spell_out(value: Any) -> Any:
    """Return *value* as text on one line without invisible characters; what is HTML already stays as it is."""
    return value if isinstance(value, Markup) else plain(str(value))
