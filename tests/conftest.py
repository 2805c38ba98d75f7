"""Makes what several tests share importable by its name: `ledgers`, the oracle of the format."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
