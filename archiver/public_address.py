"""Which network addresses are public: everything else is this machine, its network, or reserved."""

from __future__ import annotations

import socket
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

Address = IPv4Address | IPv6Address

_NAT64 = ip_network("64:ff9b::/96")
_IPV4_COMPATIBLE = ip_network("::/96")


def is_public(address: Address) -> bool:
    """Also for an IPv4 address inside an IPv6 one: a gateway would lead there."""
    if isinstance(address, IPv6Address):
        inside = _inside(address)
        if inside is not None:
            return is_public(inside)
    return address.is_global and not address.is_multicast and not address.is_reserved


def _inside(address: IPv6Address) -> IPv4Address | None:
    if address.ipv4_mapped or address.sixtofour:
        return address.ipv4_mapped or address.sixtofour
    if address.teredo:
        return address.teredo[1]
    if address in _NAT64 or address in _IPV4_COMPATIBLE:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return None


def resolve(host: str) -> list[Address]:
    """All addresses of a name, in the order in which the system prefers them. Raises OSError."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(ip_address(str(entry[4][0]).partition("%")[0]) for entry in found))
