"""HTML into which no external text can inject markup.

All external text passes `escape_text`: characters that HTML interprets are escaped, and invisible ones (controls,
bidirectional marks, lone surrogates) are spelled out. The page may load nothing and run nothing, which its content
security policy also tells the browser.
"""

from base64 import b64encode
from collections.abc import Iterable, Iterator
from hashlib import sha256
from html import escape

from deedbook.format.terminal import plain


def escape_text(value: object) -> str:
    """Return *value* as one line of text that is safe in HTML, also inside attribute quotes."""
    return escape(plain(str(value)))


def escape_lines(value: str) -> str:
    """Return text of several lines, each safe; tabs become spaces."""
    return "\n".join(escape_text(line.removesuffix("\r").expandtabs(8)) for line in value.split("\n"))


def render_tag(name: str, content: str = "", /, **attributes: str) -> str:
    """Return an element around *content*, which is already HTML; ``class_`` stands for ``class``."""
    rendered = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape_text(value)}"' for key, value in attributes.items() if value
    )
    return f"<{name}{rendered}>{content}</{name}>"


def render_chip(word: str, kind: str = "") -> str:
    """Return a highlighted word."""
    return render_tag("span", escape_text(word), class_=f"chip {kind}".strip())


def render_pairs(rows: Iterable[tuple[str, str]]) -> str:
    """Return a list of names, each with its value, which is already HTML; empty values are left out."""
    return render_tag("dl", "".join(f"<dt>{escape_text(name)}</dt><dd>{value}</dd>" for name, value in rows if value))


def render_table(head: Iterable[str], rows: Iterable[Iterable[str]], class_: str = "") -> Iterator[str]:
    """Yield a table; its cells are already HTML."""
    yield f'<div class="wide"><table class="{escape_text(class_)}"><thead><tr>'
    yield "".join(f'<th scope="col">{escape_text(name)}</th>' for name in head)
    yield "</tr></thead><tbody>"
    for row in rows:
        yield f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>"
    yield "</tbody></table></div>"


def render_document(title: str, style: str, body: Iterable[str]) -> Iterator[str]:
    """Yield a whole page, a line or more at a time; *style* is the only style that its policy allows."""
    allowed = b64encode(sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{allowed}'; base-uri 'none'; form-action 'none'"
    yield '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    yield f'<meta http-equiv="Content-Security-Policy" content="{escape_text(policy)}">\n'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    yield '<meta name="color-scheme" content="light dark">\n<meta name="referrer" content="no-referrer">\n'
    yield f"<title>{escape_text(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n"
    for part in body:
        yield f"{part}\n"
    yield "</body>\n</html>\n"
