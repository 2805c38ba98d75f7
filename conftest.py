"""How the whole suite runs: no timed assertions, and the same cases on every machine that counts."""

import os

from hypothesis import settings

examples = int(os.environ.get("DEEDBOOK_EXAMPLES", "50"))  # a thousand is an afternoon's work, not every change's
settings.register_profile(
    "deedbook", deadline=None, derandomize=bool(os.environ.get("CI")), print_blob=True, max_examples=examples
)
settings.load_profile("deedbook")
