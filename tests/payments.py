"""A skill that pays at once or slowly, and the tool that waits for the file ``go``: runs to suspend and interrupt."""

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
