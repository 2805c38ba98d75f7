"""Says whether there may be a task to write a page: only of the site, and with a warning where one is replaced."""

import json
import sys
from pathlib import Path

page = Path(json.load(sys.stdin)["call"]["args"]["path"])
if page.parent != Path("site") or page.suffix != ".md":
    answer = {"decision": "deny", "reason": f"{page} is no page; pages are site/*.md"}
elif page.exists():
    warning = f"{page} exists and would be replaced"
    answer = {"decision": "allow", "signals": {"ability_preflight": {"available": True, "warning": warning}}}
else:
    answer = {"decision": "allow", "signals": {"ability_preflight": {"available": True}}}
print(json.dumps(answer))
