"""How the whole suite runs: no timed assertions, and the same cases on every machine that counts."""

import os

from hypothesis import settings

settings.register_profile("deedbook", deadline=None, derandomize=bool(os.environ.get("CI")), print_blob=True)
settings.load_profile("deedbook")
