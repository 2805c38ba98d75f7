"""The schemas of pipelines are frozen: what needs another form gets a new version."""

from hashlib import sha256
from pathlib import Path

from cases import for_each

from deedbook.format.schema import data_folder

PINNED = dict(line.split()[::-1] for line in (Path(__file__).parent / "schemas.sha256").read_text().splitlines())


@for_each("name", PINNED)
def test_schema_has_not_changed(name):
    assert sha256((data_folder("schemas") / name).read_bytes()).hexdigest() == PINNED[name]


def test_every_output_of_the_commands_is_pinned():
    assert {path.name for path in data_folder("schemas").glob("output_swe_*.json")} <= PINNED.keys()
