"""The function ``inCidr(address, network)`` of conditions: the engine has none for addresses.

Both are read strictly: an address has no zone and no port, a network has a prefix length and no bits behind it. What is
neither is an error, so that the condition is not true. An IPv4 address written as IPv6 (``::ffff:10.0.0.1``) is in the
IPv4 networks that hold it.
"""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

_LONGEST: Final = 49  # an IPv6 address with an IPv4 address at its end, and a prefix length


def in_cidr(address: str, network: str) -> bool:
    """Return whether an IP address is in a network such as ``10.0.0.0/8``; raises `ValueError` for other text."""
    found, within = _address(address), _network(network)
    if isinstance(found, IPv6Address) and isinstance(within, IPv4Network) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    return found in within


def flaw(network: str) -> str | None:
    """Return what is wrong with the text of a network, or ``None``."""
    try:
        _network(network)
    except ValueError as problem:
        return str(problem)
    return None


def _address(text: str) -> IPv4Address | IPv6Address:
    if len(text) > _LONGEST or "%" in text:
        raise ValueError("inCidr: the address is not an IPv4 or IPv6 address")
    try:
        return ip_address(text)
    except ValueError:
        raise ValueError("inCidr: the address is not an IPv4 or IPv6 address") from None


def _network(text: str) -> IPv4Network | IPv6Network:
    address, slash, length = text[: _LONGEST + 1].partition("/")
    try:
        if slash and length.isascii() and length.isdigit() and str(int(length)) == length and "%" not in address:
            return ip_network(text)
    except ValueError:
        pass
    raise ValueError("inCidr: the network is not an address and a prefix length without host bits, like 10.0.0.0/8")
