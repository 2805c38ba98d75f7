"""``inCidr`` reads addresses and networks strictly, and what is neither is an error."""

import pytest
from cases import for_each

from deedbook_policy_standard.expressions import Invalid, Language, Unclear
from deedbook_policy_standard.networks import in_cidr

READERS = {"a": lambda values: values["a"], "n": lambda values: values["n"]}


def held(text, **values):
    language = Language(READERS, ())
    return language.compile(text).holds(language.view({"a": "", "n": "", **values}))


@for_each(
    ("address", "network", "expected"),
    [
        ("10.1.2.3", "10.0.0.0/8", True),
        ("11.1.2.3", "10.0.0.0/8", False),
        ("10.1.2.3", "10.1.2.3/32", True),
        ("0.0.0.0", "0.0.0.0/0", True),
        ("2001:db8::1", "2001:db8::/32", True),
        ("2001:DB8:0:0:0:0:0:1", "2001:db8::/32", True),
        ("2001:db9::1", "2001:db8::/32", False),
        ("::ffff:10.1.2.3", "10.0.0.0/8", True),
        ("::ffff:a01:203", "10.0.0.0/8", True),
        ("::ffff:10.1.2.3", "::ffff:0:0/96", True),
        ("10.1.2.3", "::/0", False),
        ("2001:db8::1", "0.0.0.0/0", False),
    ],
)
def test_an_address_is_in_the_network_or_not(address, network, expected):
    assert in_cidr(address, network) is expected
    assert held("inCidr(a, n)", a=address, n=network) is expected


@for_each(
    "address",
    ["", "10.1.2", "010.1.2.3", "10.1.2.3 ", "10.1.2.3/32", "10.1.2.3:80", "0x0a010203", "167838211", "localhost",
     "fe80::1%eth0", "[::1]", "\u0661\u0660.1.2.3", "1" * 100_000],
)  # fmt: skip
def test_what_is_no_address_is_an_error(address):
    with pytest.raises(Unclear, match="not an IPv4 or IPv6 address"):
        held("inCidr(a, '10.0.0.0/8')", a=address)


@for_each(
    "network",
    ["", "10.0.0.0", "10.0.0.1/8", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/08", "10.0.0.0/255.0.0.0", "10.0.0.0/8/8",
     "10/8", "fe80::%eth0/64", "::/129", "10.0.0.0/\u0668", "1" * 100_000],
)  # fmt: skip
def test_what_is_no_network_is_an_error_and_a_constant_one_does_not_compile(network):
    with pytest.raises(Unclear, match="without host bits"):
        held("inCidr('10.1.2.3', n)", n=network)
    if len(network) < 1_000:
        with pytest.raises(Invalid) as caught:
            Language(READERS, ()).compile(f"inCidr(a, '{network}')")
        assert caught.value.flaws[0].at == 10


def test_other_types_are_errors():
    with pytest.raises(Unclear):
        held("inCidr(a, '10.0.0.0/8')", a=3)
    with pytest.raises(Invalid, match="no matching overload"):
        Language(READERS, ()).compile("inCidr(3, '10.0.0.0/8')")
