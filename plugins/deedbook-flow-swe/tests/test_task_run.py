"""A task goes through the phases of a pipeline: gates, rollbacks, people, and everything that is refused."""

import pytest
from shop import FIRST, SECOND, Shop, git

from deedbook import Ok


@pytest.fixture
def shop(lab):
    return Shop(lab)


def test_task_goes_through_its_phases(shop):
    shop.good()
    found = shop.run()
    assert isinstance(found, Ok), found
    assert found.value.state == "COMPLETED", found.value.text
