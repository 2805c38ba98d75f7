"""Says whether a page may be written now: nothing unfinished, and the front page only with a person's consent."""

import json
import sys

args = json.load(sys.stdin)["call"]["args"]
if "TODO" in args["text"]:
    guard = {"risk": "high", "remedy": "finish the text and update the task"}
    answer = {
        "decision": "deny",
        "reason": "the text is not finished: it says TODO",
        "signals": {"ability_guard": guard},
    }
elif args["path"] == "site/index.md":
    guard = {"risk": "high", "remedy": "wait for a person"}
    answer = {"decision": "ask", "reason": "the front page needs a person", "signals": {"ability_guard": guard}}
else:
    answer = {"decision": "allow", "signals": {"ability_guard": {"risk": "low"}}}
print(json.dumps(answer))
