"""Hosts that may be reached, and their addresses: a name is resolved once, and connections go to checked addresses."""

import asyncio
import re
import socket
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from threading import Thread

from deedbook.contract import Failed

PORTS = (("https", 443), ("http", 80))
_NAME = re.compile(r"(?=.{1,253}$)[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)*\.?")
_AUTHORITY = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^:\[\]]+)(?::([0-9]{1,5}))?")
Address = IPv4Address | IPv6Address


@dataclass(frozen=True)
class Site:
    """A host and a port: *name* is lower case, an address without brackets."""

    name: str
    port: int

    @property
    def address(self) -> Address | None:
        """Return the address, if it is one and no name."""
        try:
            return ip_address(self.name)
        except ValueError:
            return None

    @property
    def url_host(self) -> str:
        """Return the host as it stands in a URL."""
        return f"[{self.name}]" if ":" in self.name else self.name

    def authority(self, scheme: str) -> str:
        """Return host and port as they stand in a URL, without the port that *scheme* implies."""
        return self.url_host if (scheme, self.port) in PORTS else f"{self.url_host}:{self.port}"


def parse_site(text: str, scheme: str) -> Site:
    """Return the site of ``host`` or ``host:port``; raises `ValueError` with a message for the author of the YAML."""
    found = _AUTHORITY.fullmatch(text)
    name = found[1].strip("[]").lower() if found else ""
    port = int(found[2]) if found and found[2] else dict(PORTS)[scheme]
    made = Site(name, port)
    numeric = re.fullmatch(r"[0-9.]+|0x[0-9a-f.x]*", name)
    if not found or not 0 < port < 65536 or not (made.address or (_NAME.fullmatch(name) and not numeric)):
        raise ValueError(f"{text[:80]!r} is no host; write a name such as api.example.com, in ASCII, or name:port")
    return made


def non_public_kind(address: Address) -> str | None:
    """Return why an address is not public, such as ``a loopback address``; ``None`` if it is public."""
    for inner in _expand_address(address):
        if inner.is_loopback:
            return "a loopback address"
        if inner.is_link_local:
            return "a link-local address"
        if inner.is_unspecified or inner.is_multicast or inner.is_reserved or not inner.is_global:
            return "a private or reserved address"
    return None


def _expand_address(address: Address) -> Iterator[Address]:
    """Yield an address, and the one inside it that a gateway would send it to."""
    if isinstance(address, IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if inner is None and address.packed[:12] == bytes.fromhex("0064ff9b") + bytes(8):
            inner = IPv4Address(address.packed[12:])
        if inner is not None:
            yield inner
            if address.ipv4_mapped:
                return
    yield address


async def resolve(place: Site, *, private: bool, loopback: bool) -> Sequence[str]:
    """Return the addresses of *place*, each checked; raises `Failed`.

    *private* also allows addresses that are not public; *loopback* allows only those of this machine.
    """
    found = [place.address] if place.address else await _resolve_name(place)
    for address in found:
        what = non_public_kind(address)
        if loopback and what != "a loopback address":
            raise Failed("HTTP_REFUSED", f"{place.url_host} is not this machine; insecure: is for nothing else")
        if what and not private:
            why = f"{place.url_host} is {what}; list it under private: if that is meant"
            raise Failed("HTTP_REFUSED", why)
    return [str(address) for address in found]


async def _resolve_name(place: Site) -> list[Address]:
    """Ask the system's name service once, on a thread that is abandoned when time is up."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[list[Address]] = loop.create_future()

    def answer(found: list[Address]) -> None:
        if not future.done():
            future.set_result(found)

    def look() -> None:
        found: list[Address] = []
        with suppress(OSError, UnicodeError):
            known = socket.getaddrinfo(place.name, place.port, type=socket.SOCK_STREAM)
            found = [ip_address(str(entry[4][0]).partition("%")[0]) for entry in known]
        with suppress(RuntimeError):  # the loop has ended: nothing waits any more
            loop.call_soon_threadsafe(answer, found)

    Thread(target=look, name="deedbook-http-lookup", daemon=True).start()
    found = list(dict.fromkeys(await future))
    if not found:
        raise Failed("HTTP_FAILED", f"{place.url_host} is not known to the system's name service", retryable=True)
    return found
