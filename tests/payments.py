"""Runs to suspend and interrupt: a skill that pays, a tool that waits for the file ``go``, a flow that pays twice."""

SKILL = """\
    ---
    name: pay
    description: Pays.
    triggers: [pay]
    allowed-tools: [echo, slow]
    version: 1
    schema_version: v1
    metadata:
      deedbook:
        rules:
          - pattern: '^pay$'
            steps: [{ability: echo, args: {text: hi}, description: Say hi}]
            answer: paid
          - pattern: '^pay slowly$'
            steps: [{ability: slow, args: {}, description: Wait}]
            answer: paid slowly
    ---
    # Pay
    """
SLOW = """
    import time
    from pathlib import Path

    from deedbook import HandlerSpec


    class Plugin:
        spec = HandlerSpec(
            takes={"type": "object", "additionalProperties": False}, gives={"type": "object"}, effects="read"
        )

        def __init__(self, settings, host):
            pass

        def __call__(self, args, ctx):
            with open("begun", "a") as file:
                file.write("begun\\n")
            while not Path("go").exists():
                time.sleep(0.02)
            return {}
"""
BOTH = """
    from deedbook import HandlerSpec
    from deedbook.contract import Branch


    class Plugin:
        spec = HandlerSpec(takes={"type": "object"}, effects="none")

        def __init__(self, settings, host):
            pass

        def __call__(self, args, run):
            pay = lambda branch: branch.call("echo", {"text": "hi"})
            run.parallel([Branch("left", pay), Branch("right", lambda branch: branch.call("echo", {"text": "ho"}))])
            run.answer("paid both")
"""
