"""The gateway in front of a server: a workspace declares it, lists its tools, and allows what the suite does.

Run ``python gateway.py PORT URL FOLDER``; `server.sh` does. The rest is `deedbook mcp serve --upstream`.
"""

import os
import subprocess
import sys
from pathlib import Path

SETTINGS = """
schema_version: v1
policies:
  suite:
    kind: rules
    rules:
      - {match: {abilities: "it/**"}, then: allow}
"""


def main() -> None:
    """Serve until a signal comes."""
    port, url, folder = sys.argv[1:]
    (Path(folder) / ".system").mkdir(parents=True)
    (Path(folder) / ".system/deedbook.yaml").write_text(SETTINGS)
    deedbook = [str(Path(sys.executable).with_name("deedbook")), "--workspace", folder, "mcp"]
    subprocess.run([*deedbook, "add", "it", "--yes", "--url", url], check=True, stdout=subprocess.DEVNULL)
    os.execv(deedbook[0], [*deedbook, "serve", "--upstream", "it", "--http", f"127.0.0.1:{port}"])  # gets the signal


if __name__ == "__main__":
    main()
