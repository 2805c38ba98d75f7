"""An object of a framework gets a governed class, and stays what it is otherwise."""

import copy

import pytest

from deedbook.format.errors import BindingError
from deedbook_guard import govern_object


class Tool:
    def __init__(self, name):
        self.name = name

    def run(self):
        return f"{self.name} ran"


def methods(base):
    return {"run": lambda self: f"governed: {base.run(self)}"}


def others(base):
    return {"run": lambda self: "other"}


def test_governed_object_keeps_its_class_its_state_and_its_bound_methods():
    tool, free = Tool("send"), Tool("free")
    govern_object(tool, methods)
    govern_object(tool, methods)
    assert tool.run() == copy.deepcopy(tool).run() == copy.copy(tool).run() == "governed: send ran"
    assert isinstance(tool, Tool)
    assert type(tool).__qualname__ == "Tool"
    assert free.run() == "free ran"


def test_object_of_two_guards_is_refused():
    tool = Tool("send")
    govern_object(tool, methods)
    with pytest.raises(BindingError, match="'send' cannot be governed: it is governed by another guard"):
        govern_object(tool, others)
    assert tool.run() == "governed: send ran"


@pytest.mark.parametrize("target", [len, 3, type("Slots", (), {"__slots__": ()})], ids=["function", "number", "class"])
def test_object_whose_class_cannot_be_changed_is_refused(target):
    with pytest.raises(BindingError, match="cannot be governed"):
        govern_object(target, lambda base: {})
