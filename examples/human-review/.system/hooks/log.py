"""Logs what was written; it may tell the model nothing, and does not try."""

import json
import sys
from pathlib import Path

asked = json.load(sys.stdin)
Path("reports").mkdir(exist_ok=True)
with Path("reports/pages.log").open("a", encoding="utf-8") as log:
    log.write(f"{asked['call']['now']} {asked['result']['path']} {asked['result']['bytes']} bytes\n")
print(json.dumps({"decision": "allow"}))
