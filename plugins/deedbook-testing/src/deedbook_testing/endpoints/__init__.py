"""Servers that speak the protocols of model providers over real HTTP on this machine, for tests; `Endpoint` first."""

from .chat import OllamaChat
from .completions import ChatCompletions
from .content import GenerateContent
from .messages import Messages
from .protocol import Protocol, ReceivedRequest
from .responses import Responses
from .server import Action, Endpoint, Handler

__all__ = [
    "Action",
    "ChatCompletions",
    "Endpoint",
    "GenerateContent",
    "Handler",
    "Messages",
    "OllamaChat",
    "Protocol",
    "ReceivedRequest",
    "Responses",
]
