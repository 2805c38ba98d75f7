"""A fake chat client of Microsoft Agent Framework, for the adapters that run its agents."""

import json

from agent_framework import (
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationLayer,
    Message,
    ResponseStream,
)

USAGE = {"input_token_count": 7, "output_token_count": 3}


class FakeChatClient(FunctionInvocationLayer, ChatMiddlewareLayer, BaseChatClient):
    """A chat client that answers with the calls of each turn, then with ``done``; it calls *count* when asked."""

    def __init__(self, turns, count=lambda: None):
        super().__init__()
        self.turns = [list(turn) for turn in turns]
        self.count = count
        self.number = 0

    def _contents(self):
        self.count()
        if not self.turns:
            return [Content.from_text("done")]
        made = []
        for name, args in self.turns.pop(0):
            self.number += 1
            made.append(
                Content.from_function_call(call_id=f"call-{self.number}", name=name, arguments=json.dumps(dict(args)))
            )
        return made

    def _inner_get_response(self, *, messages, stream, options, **kwargs):
        if stream:

            async def updates():
                yield ChatResponseUpdate(role="assistant", contents=self._contents())
                yield ChatResponseUpdate(role="assistant", contents=[Content.from_usage(dict(USAGE))])

            return ResponseStream(updates(), finalizer=ChatResponse.from_updates)

        async def answer():
            return ChatResponse(messages=Message("assistant", self._contents()), usage_details=dict(USAGE))

        return answer()


def told(messages):
    """Return what tools told the model."""
    parts = [content for message in messages for content in message.contents if content.type == "function_result"]
    return "\n".join(str(part.result or part.exception) for part in parts)
