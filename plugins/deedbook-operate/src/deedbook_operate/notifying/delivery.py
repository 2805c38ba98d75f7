"""Deliver a message to a target: a webhook as Slack's, a mail server, or a command.

A failure is a `DeliveryError`, whose text has no secret: the address of a webhook is one.
"""

import asyncio
import smtplib
import ssl
from collections.abc import Callable, Mapping
from email.message import EmailMessage
from functools import partial
from typing import Final, Protocol

import attrs
import httpx

from deedbook.contract import Failed, Object
from deedbook.format import canonical
from deedbook.format.errors import BindingError, fault
from deedbook.format.schema import suggest
from deedbook.format.terminal import plain
from deedbook.programs.workers import Workers

from .messages import Message

SECONDS: Final = 20.0
"""How long one attempt may take."""
_SUCCESS: Final = range(200, 300)
_PORTS: Final = {"tls": 465, "starttls": 587, "none": 25}


class DeliveryError(Exception):
    """A message was not delivered, or it is not known whether it was; it is sent again."""


class Target(Protocol):
    """Delivers messages."""

    def deliver(self, message: Message) -> None:
        """Deliver *message*; raises `DeliveryError`."""


@attrs.frozen
class Webhook:
    """A webhook that takes ``{"text": …}``, as Slack's, Mattermost's and Rocket.Chat's do."""

    url: str = attrs.field(repr=False)

    def deliver(self, message: Message) -> None:
        """Post the text within `SECONDS`. Only the status of the answer is read; a redirect is a failure."""
        try:
            status = asyncio.run(self._post({"text": _escape(message.text)}))
        except TimeoutError:
            raise DeliveryError(f"the webhook did not answer within {SECONDS:g} s") from None
        except (httpx.HTTPError, httpx.InvalidURL) as problem:
            raise DeliveryError(f"the webhook cannot be reached: {type(problem).__name__}") from None
        if status not in _SUCCESS:
            raise DeliveryError(f"the webhook answered with the status {status}")

    async def _post(self, body: Object) -> int:
        # a proxy of the environment would learn the address, which is a secret
        async with (
            asyncio.timeout(SECONDS),
            httpx.AsyncClient(timeout=None, follow_redirects=False, trust_env=False) as client,  # noqa: S113 - see above
            client.stream("POST", self.url, json=body) as answer,
        ):
            return answer.status_code


@attrs.frozen
class Email:
    """A mail server, with the addresses of sender and receivers."""

    settings: Object
    password: str | None = attrs.field(default=None, repr=False)

    def deliver(self, message: Message) -> None:
        """Send the text as a mail."""
        said = self.settings
        tls = said.get("tls", "starttls")
        address = said["server"], said.get("port", _PORTS[tls])
        try:
            context = ssl.create_default_context()
            opened = (
                smtplib.SMTP_SSL(*address, timeout=SECONDS, context=context)
                if tls == "tls"
                else smtplib.SMTP(*address, timeout=SECONDS)
            )
            with opened as server:
                if tls == "starttls":
                    server.starttls(context=context)
                if self.password is not None:
                    server.login(said["user"], self.password)
                refused = server.send_message(_mail(said, message))
        except smtplib.SMTPResponseException as problem:
            raise DeliveryError(f"the mail server answered with the code {problem.smtp_code}") from None
        except (smtplib.SMTPException, OSError, ValueError) as problem:
            raise DeliveryError(f"the mail server cannot be used: {type(problem).__name__}") from None
        if refused:
            raise DeliveryError(f"the mail server refused {len(refused)} of the receivers")


@attrs.frozen
class Command:
    """A program that gets the message as JSON on its standard input, and only the variables of *env*."""

    run: tuple[str, ...]
    env: Mapping[str, str] = attrs.field(factory=dict, repr=False)

    def deliver(self, message: Message) -> None:
        """Run the program."""
        stdin = canonical.encode_payload({**message.data, "subject": message.subject, "text": message.text})
        try:
            with Workers(private=bool(self.env)) as workers:
                ended = workers.run(self.run, stdin=stdin, env=self.env, seconds=SECONDS)
        except Failed as problem:
            raise DeliveryError(f"the command failed: {problem.code}") from None
        if ended.status:
            raise DeliveryError(f"the command ended with the status {ended.status}")


@attrs.frozen
class Terminal:
    """The standard output of the command, where no target is declared."""

    say: Callable[[str], None]

    def deliver(self, message: Message) -> None:
        """Print the text."""
        for line in message.text.split("\n"):
            self.say(plain(line))


TERMINAL: Final = "terminal"
"""The name of that target."""


def build_targets(settings: Object, secrets: Mapping[str, str | None]) -> dict[str, Target]:
    """Return the targets by name; raises `BindingError` for a secret that is not declared, or has no value."""

    def reveal(name: str, said: Object) -> str:
        value = secrets.get(said["secret"])
        if not value:
            known = f"declare it: secrets: {{{said['secret']}: {{env: VARIABLE}}}}{suggest(said['secret'], secrets)}"
            why = "has no value: set its variable" if said["secret"] in secrets else f"is not declared; {known}"
            raise BindingError(fault("SECRET_MISSING", f"target {name}: the secret {said['secret']!r} {why}"))
        return value

    return {name: _build(said, partial(reveal, name)) for name, said in settings["targets"].items()}


def _build(said: Object, reveal: Callable[[Object], str]) -> Target:
    if "webhook" in said:
        return Webhook(reveal(said["webhook"]))
    if "email" in said:
        email = said["email"]
        return Email(email, reveal(email["password"]) if "password" in email else None)
    command = said["command"]
    env = {name: each if isinstance(each, str) else reveal(each) for name, each in command.get("env", {}).items()}
    return Command(tuple(command["run"]), env)


def _mail(said: Object, message: Message) -> EmailMessage:
    mail = EmailMessage()
    mail["Subject"], mail["From"], mail["To"] = message.subject, said["from"], ", ".join(said["to"])
    mail["Message-ID"] = f"<{message.id}@deedbook.invalid>"  # a mail that is sent twice is shown once
    mail.set_content(f"{message.text}\n")
    return mail


def _escape(text: str) -> str:
    """Escape what Slack reads as markup: a text could otherwise mention people, or show another link."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
