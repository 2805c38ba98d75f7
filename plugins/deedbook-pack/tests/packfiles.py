"""Source folders of packs, written for one test."""

from pathlib import Path
from textwrap import dedent

MANIFEST = 'schema_version: v1\nname: house\nversion: "{version}"\ndescription: The house rules.\n'
QUIET = """\
    schema_version: v1
    id: house-quiet
    kind: rules
    match: {kind: [tool]}
    rules:
      - {match: {abilities: [echo], args: {/text: {like: "*!"}}}, then: deny, reason: no shouting}
    default: allow
"""
CASES = """\
    schema_version: v1
    cases:
      - {name: shouting, ability: echo, args: {text: "hi!"}, expect: deny, rule: 1}
      - {name: talking, ability: echo, args: {text: hi}, expect: allow, rule: default}
"""
SETTINGS = """\
    schema_version: v1
    abilities:
      echo: {summary: Echo a text., handler: {tool: echo}}
"""
FILES = {"policies/quiet.yaml": QUIET, "policies/quiet.test.yaml": CASES, "pack.test.yaml": SETTINGS}


def write(folder: Path, files: dict[str, str], *, version: str = "1.0") -> Path:
    """Write a pack with ``pack.yaml`` and *files*."""
    for name, text in {"pack.yaml": MANIFEST.format(version=version), **files}.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(dedent(text), encoding="utf-8")
    return folder
