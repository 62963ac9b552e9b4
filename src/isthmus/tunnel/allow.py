"""Where an exit connects to: rules, brokers that the cluster itself advertises, and addresses that are never meant.

Must stay true: what is checked is the address that a name resolves to, and that very address is connected to, so a
name that changes its mind passes nothing. Loopback, link-local, multicast and metadata addresses are open only to a
rule that names the address or its network. A name that no rule could let pass is not even resolved.
"""

from __future__ import annotations

import fnmatch
import ipaddress
import re
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from isthmus.errors import ConfigError, IsthmusError
from isthmus.tunnel.lines import Destination, Refused

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Asking = Callable[[], Collection[tuple[str, int]]]
_RULE = re.compile(r"(\[[0-9A-Fa-f:./]+\]|[^\s:\[\]]+):(\*|\d{1,5}(?:-\d{1,5})?)")
_HOST = re.compile(r"[A-Za-z0-9._*?-]+")
# Where clouds answer questions about the machine itself; most are link-local, these are not.
_METADATA = tuple(
    map(ipaddress.ip_network, ("100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32", "fd00:ec2::/32"))
)
_EMBEDDING = ipaddress.ip_network("64:ff9b::/96")  # NAT64: an IPv4 address in the last 32 bits
_ASK_AGAIN_S = 1.0  # a client that asks for what is not there must not make the exit ask all the time


@dataclass(frozen=True, slots=True)
class Rule:
    """Hosts by a pattern, or addresses by a network; and a range of ports."""

    pattern: str
    network: Network | None
    first: int
    last: int

    def has_port(self, port: int) -> bool:
        return self.first <= port <= self.last


def read_rule(text: str) -> Rule:
    """`host:port`, `*.example.com:9092-9099`, `10.0.0.0/8:*`, `[fd00::/8]:9092`; ConfigError otherwise."""
    found = _RULE.fullmatch(text.strip())
    first, _, last = (found[2] if found else "").replace("*", "1-65535").partition("-")
    host = found[1].strip("[]").lower() if found else ""
    network = _network(host)
    if not found or (network is None and not _HOST.fullmatch(host)) or not 0 < int(first) <= int(last or first) < 65536:
        hint = "host:port is meant: a name (with * for any letters), or an address or network; a port, a range or *"
        raise ConfigError(f"`{text}` is no rule of what a tunnel lets pass", hint=hint, code="TUNNEL_ALLOW")
    return Rule(host, network, int(first), int(last or first))


def _network(text: str) -> Network | None:
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        return None


class Advertised:
    """The brokers that a cluster tells of, asked again when somebody wants one that is not known."""

    def __init__(self, ask: Asking, always: Collection[tuple[str, int]] = (), again_s: float = _ASK_AGAIN_S) -> None:
        self._ask = ask
        self._always = _spelled(always)
        self._again_s = again_s
        self._known: frozenset[tuple[str, int]] = frozenset()
        self._asked_at = -again_s
        self._asking = threading.Lock()
        self.trouble = ""

    def has(self, wanted: Destination) -> bool:
        """A broker that joined a moment ago is known after one more question."""
        key = (wanted.host.lower().rstrip("."), wanted.port)
        if key in self._always or key in self._known:
            return True
        came = time.monotonic()
        with self._asking:
            if key not in self._known and self._asked_at < came:
                time.sleep(max(0.0, self._asked_at + self._again_s - time.monotonic()))
                self._refresh()
        return key in self._known

    def _refresh(self) -> None:
        try:
            self._known = _spelled(self._ask())
            self.trouble = ""
        except (IsthmusError, OSError) as error:
            self.trouble = f"the cluster cannot be asked for its brokers: {error}"
        self._asked_at = time.monotonic()


def _spelled(brokers: Collection[tuple[str, int]]) -> frozenset[tuple[str, int]]:
    return frozenset((host.lower().rstrip("."), port) for host, port in brokers)


def resolved(host: str, port: int) -> list[Address]:
    """The addresses of a name; Refused if there is none."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise Refused("UNRESOLVED", f"{host} has no address here") from None
    return list(dict.fromkeys(ipaddress.ip_address(str(each[4][0]).partition("%")[0]) for each in found))


class AllowList:
    """Decides about destinations. Without rules, only what the cluster advertises passes."""

    def __init__(
        self,
        rules: Iterable[Rule] = (),
        advertised: Advertised | None = None,
        resolve: Callable[[str, int], list[Address]] = resolved,
    ) -> None:
        self._rules = tuple(rules)
        self._advertised = advertised
        self._resolve = resolve

    def addresses(self, wanted: Destination) -> list[Address]:
        """Where to connect to, in this order; Refused if nowhere."""
        rules = [rule for rule in self._rules if rule.has_port(wanted.port)]
        networks = [rule.network for rule in rules if rule.network is not None]
        named = self._is_named(wanted, rules)
        if not named and not networks:
            raise Refused("NOT_ALLOWED", self._not_named(wanted))
        found = self._resolve(wanted.host, wanted.port)
        passing = [each for each in found if (named and not is_special(each)) or _within(each, networks)]
        if not passing and named:
            said = ", ".join(map(str, found))
            raise Refused("NOT_ALLOWED", f"{wanted.host} is {said} there, which only a rule for the address opens")
        if not passing:
            raise Refused("NOT_ALLOWED", self._not_named(wanted))
        return passing

    def _is_named(self, wanted: Destination, rules: Iterable[Rule]) -> bool:
        host = wanted.host.lower().rstrip(".")
        if any(rule.network is None and fnmatch.fnmatchcase(host, rule.pattern) for rule in rules):
            return True
        return self._advertised is not None and self._advertised.has(wanted)

    def _not_named(self, wanted: Destination) -> str:
        trouble = self._advertised.trouble if self._advertised is not None else ""
        if trouble:
            return f"no rule allows {wanted}, and {trouble}"
        told = " and no broker advertises" if self._advertised is not None else ""
        return f"no rule allows{told} {wanted}"


def _within(address: Address, networks: Iterable[Network]) -> bool:
    candidates = [address, *_embedded(address)]
    return any(each in network for each in candidates for network in networks if each.version == network.version)


def is_special(address: Address) -> bool:
    """Never a broker, unless somebody says so in as many words."""
    return any(_is_special(each) for each in (address, *_embedded(address)))


def _is_special(address: Address) -> bool:
    return (
        address.is_loopback
        or address.is_link_local
        or address.is_multicast
        or address.is_unspecified
        or any(address in network for network in _METADATA if network.version == address.version)
        or address == ipaddress.ip_address("255.255.255.255")
    )


def _embedded(address: Address) -> list[Address]:
    """The IPv4 address that an IPv6 one leads to, if it does."""
    if address.version == 4:
        return []
    inner = [address.ipv4_mapped, address.sixtofour]
    if address in _EMBEDDING:
        inner.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return [each for each in inner if each is not None]
