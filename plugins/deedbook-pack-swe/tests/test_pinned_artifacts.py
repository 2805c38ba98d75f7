"""The schemas of artifacts are frozen: what needs another form gets a new version."""

from hashlib import sha256
from pathlib import Path

from cases import for_each

import deedbook_pack_swe

FOLDER = Path(deedbook_pack_swe.__file__).parent / "data/swe/schemas"
PINNED = dict(line.split()[::-1] for line in (Path(__file__).parent / "schemas.sha256").read_text().splitlines())


@for_each("name", PINNED)
def test_schema_has_not_changed(name):
    assert sha256((FOLDER / name).read_bytes()).hexdigest() == PINNED[name]


def test_every_schema_is_pinned():
    assert {path.name for path in FOLDER.glob("*.json")} == PINNED.keys()
