"""How the whole suite runs: no timed assertions, and the same cases on every machine that counts."""

import os

import pytest
from hypothesis import settings

examples = int(os.environ.get("DEEDBOOK_EXAMPLES", "50"))  # a thousand is an afternoon's work, not every change's
settings.register_profile(
    "deedbook", deadline=None, derandomize=bool(os.environ.get("CI")), print_blob=True, max_examples=examples
)
settings.load_profile("deedbook")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Use one worker more than there are cores: many tests wait for processes, clocks and disks."""
    return (os.cpu_count() or 1) + 1
