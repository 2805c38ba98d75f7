"""Builds the site's list of pages and tests that each has a title; runs when a session ends."""

import json
import sys
from pathlib import Path

asked = json.load(sys.stdin)
pages = sorted(Path("site").glob("*.md"))
titles = {page.name: page.read_text(encoding="utf-8").partition("\n")[0] for page in pages}
faults = [f"{name} has no title" for name, title in titles.items() if not title.startswith("# ")]
said = f"{len(pages)} page{'' if len(pages) == 1 else 's'}; {'; '.join(faults) or 'every page has a title'}"
Path("reports").mkdir(exist_ok=True)
Path("reports/build.txt").write_text(f"{said}\n", encoding="utf-8")
print(json.dumps({"decision": "allow", "reason": said}))
