"""The feature in a real workspace; `lab` comes from deedbook-testing."""


def test_timesheet_books_each_session_on_its_project(lab):
    lab.tool("echo", lambda args, ctx: args)
    lab.settings(features={"timesheet": {"project": "apollo", "round_to": 15}})
    with lab.session() as session:
        session.call("echo", {})
    assert lab.payload("x.timesheet.booked") == {"project": "apollo", "minutes": 15, "calls": 1}
    assert lab.types()[-1] == "session.end"
