"""Tasks: made if hooks let them, bound to a charter, run through the door, recorded, run once."""

import pytest

from deedbook import Ok
from deedbook.tasks.runner import Tasks


@pytest.fixture
def shop(lab):
    """Return a workspace with a tool that counts what it did."""
    done = []

    def write(args, ctx):
        done.append(dict(args))
        return {"written": len(done)}

    lab.tool("write", write, effects="write")
    lab.done = done
    return lab


@pytest.fixture
def working(shop):
    """Yield a function that opens a session, and the tasks of its principal."""

    def begin(**options):
        kernel = shop.kernel()
        session = kernel.session(**options).value
        shop._sessions.append(session)
        opened.append(Tasks(kernel, session))
        return opened[-1]

    opened = []
    yield begin
    for tasks in opened:
        tasks.close()


def made(tasks, args=None, **more):
    created = tasks.create("write", args or {"n": 1}, **more)
    assert isinstance(created, Ok), created
    return created.value.task.id


def test_task_is_made_then_run_once_and_its_result_returned_again(shop, working):
    tasks = working()
    task = made(tasks)
    assert shop.done == []
    ran = tasks.run(task)
    assert ran.value.result == {"written": 1}
    again = tasks.run(task)
    assert (again.value.result, again.value.recorded) == ({"written": 1}, True)
    assert shop.done == [{"n": 1}]
    assert tasks.get(task).value.state == "succeeded"
