"""Fence of a run: rules, the packet filter against a plain reference, routes, and owners' names."""

from __future__ import annotations

import ipaddress
import random
import struct
from collections.abc import Iterator

import pytest

from needs import cases
from skyhop.errors import InputError
from skyhop_testbed.agent.host_networks import HostNetworks
from skyhop_testbed.agent.policy import Policy
from skyhop_testbed.agent.reach import Reach
from skyhop_testbed.executor.packet_filter import compile_filter
from skyhop_testbed.fence import (
    NOT_PUBLIC_4,
    NOT_PUBLIC_6,
    PUBLIC_6,
    Fence,
    Rule,
    check_listen,
    check_reach,
    parse_ports,
    parse_target,
)
from skyhop_testbed.job import job_of
from skyhop_testbed.words import Network, Side

_TCP, _UDP, _ICMP_6 = 6, 17, 58
_SYN, _ACK = 2, 16
_MOST_INSTRUCTIONS = 4096
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def passes(fence: Fence, frame: bytes) -> bool:
    """Execute the filter on a frame, as the kernel does."""
    code = list(struct.iter_unpack("=HBBI", compile_filter(fence)))
    assert len(code) <= _MOST_INSTRUCTIONS
    accumulator, at = 0, 0
    while True:
        what, true, false, operand = code[at]
        at += 1
        size = {0x20: 4, 0x28: 2, 0x30: 1}.get(what)
        if size:
            if operand + size > len(frame):
                return False
            accumulator = int.from_bytes(frame[operand : operand + size], "big")
        elif what == 0x54:
            accumulator &= operand
        elif what == 0x05:
            at += operand
        elif what == 0x06:
            return operand == 0
        else:
            compared = {
                0x15: accumulator == operand, 0x25: accumulator > operand,
                0x35: accumulator >= operand, 0x45: bool(accumulator & operand),
            }  # fmt: skip
            at += true if compared[what] else false


def frame_to(
    address: Address, protocol: int, ports: tuple[int, int] = (40_000, 80), flags: int = _SYN
) -> bytes:
    """Return a frame with a packet to an address."""
    transport = struct.pack("!HHIIBBHHH", *ports, 0, 0, 0x50, flags, 0, 0, 0)
    if address.version == 4:
        source = ipaddress.ip_address("10.0.2.100").packed
        header = struct.pack("!BBHHHBBH", 0x45, 0, 40, 0, 0, 64, protocol, 0)
        return bytes(12) + b"\x08\x00" + header + source + address.packed + transport
    header = struct.pack("!IHBB", 6 << 28, 20, protocol, 64) + bytes(16) + address.packed
    return bytes(12) + b"\x86\xdd" + header + transport


def reference(
    fence: Fence, address: Address, protocol: int, ports: tuple[int, int], flags: int
) -> bool:
    """Return whether a packet passes, in plain words of the module's first lines."""
    if address.version == 6 and protocol == _ICMP_6:
        return True  # The trials send neighbour discovery alone.
    if protocol == _TCP and fence.may_listen(ports[0]) and flags & (_SYN | _ACK) != _SYN:
        return True
    for rule in fence.parsed_rules():
        is_met = address in rule.prefix and address.version == rule.prefix.version
        if is_met and (rule.port is None or (rule.port == ports[1] and protocol in (_TCP, _UDP))):
            return rule.allows
    if address.version == 4:
        return not any(address in prefix for prefix in NOT_PUBLIC_4)
    return address in PUBLIC_6 and not any(address in prefix for prefix in NOT_PUBLIC_6)


_PREFIXES = [
    "192.168.100.1", "192.168.1.0/24", "10.0.0.0/8", "198.51.100.9", "0.0.0.0/0", "169.254.0.0/16",
    "224.0.0.0/4", "fd12::/64", "fd12::1", "2001:db8:1::/48", "fe80::/10", "::/0", "2002::/16",
]  # fmt: skip


def _addresses(draw: random.Random) -> Iterator[Address]:
    for text in (*_PREFIXES, "8.8.8.8", "255.255.255.255", "127.0.0.1", "2001:4860::1", "::1"):
        prefix = ipaddress.ip_network(text)
        for offset in (-1, 0, prefix.num_addresses - 1, draw.randrange(prefix.num_addresses)):
            number = int(prefix.network_address) + offset
            if 0 <= number < 1 << prefix.max_prefixlen:
                yield type(prefix.network_address)(number)


def _fence(draw: random.Random) -> Fence:
    rules = []
    for text in draw.sample(_PREFIXES, draw.randrange(6)):
        port = draw.choice([None, None, 80, 8080])
        prefix = ipaddress.ip_network(text)
        rules.append(str(Rule(draw.random() < 0.5, prefix, port)))
    return Fence(rules, draw.choice([[], [], ["6000"], ["6000-6010", "80"]]))


def test_the_filter_does_what_its_rules_say() -> None:
    draw, verdicts = random.Random(7), {True: 0, False: 0}
    for _ in range(cases(25)):
        fence = _fence(draw)
        assert [str(rule) for rule in fence.parsed_rules()] == fence.rules
        for address in _addresses(draw):
            protocol = draw.choice([_TCP, _UDP, 1])
            ports = draw.choice([6000, 6005, 40_000]), draw.choice([80, 8080, 443])
            flags = draw.choice([_SYN, _SYN | _ACK, _ACK])
            found = passes(fence, frame_to(address, protocol, ports, flags))
            expected = reference(fence, address, protocol, ports, flags)
            assert found == expected, (fence, address, protocol, ports, flags)
            verdicts[found] += 1
    assert min(verdicts.values()) > 100


def test_routes_prohibit_no_packet_that_the_filter_passes() -> None:
    draw, prohibited = random.Random(8), 0
    for _ in range(cases(25)):
        fence = _fence(draw)
        closed, opened = fence.prohibited(), fence.reached()
        for address in _addresses(draw):
            met = [p for p in (*closed, *opened) if p.version == address.version and address in p]
            if not met or max(met, key=lambda each: each.prefixlen) not in closed:
                continue
            prohibited += 1
            for protocol in (_TCP, _UDP):
                for port in (80, 8080, 443):
                    frame = frame_to(address, protocol, (1, port))
                    assert not passes(fence, frame), (fence, address)
    assert prohibited > 100


def test_packets_that_hide_their_destination_do_not_pass() -> None:
    public = ipaddress.ip_address("8.8.8.8")
    plain = frame_to(public, _TCP)
    assert passes(Fence(), plain)
    with_options = plain[:14] + b"\x46" + plain[15:]
    assert not passes(Fence(), with_options)
    for ethertype in (0x8100, 0x0842, 0x88A8, 0x8864):
        assert not passes(Fence(), plain[:12] + struct.pack("!H", ethertype) + plain[14:])
    # A later fragment has no port, and so meets no rule with one.
    closed = Fence(["allow 192.168.1.5:80"])
    near = frame_to(ipaddress.ip_address("192.168.1.5"), _UDP)
    assert passes(closed, near)
    assert not passes(closed, near[:20] + b"\x00\x10" + near[22:])


def test_neighbour_discovery_passes_and_other_messages_to_neighbours_do_not() -> None:
    near = ipaddress.ip_address("fe80::1")
    for kind, is_discovery in ((133, True), (135, True), (136, True), (137, False), (128, False)):
        frame = frame_to(near, _ICMP_6, (kind << 8, 0))
        assert passes(Fence(), frame) == is_discovery, kind


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("192.168.1.5", "192.168.1.5"), ("192.168.1.5:80", "192.168.1.5:80"),
        ("fd12::1", "fd12::1"), ("[fd12::1]", "fd12::1"), ("[fd12::1]:80", "[fd12::1]:80"),
        ("10.1.0.0/16", "10.1.0.0/16"), ("fd12::/64", "fd12::/64"),
    ],
)  # fmt: skip
def test_forms_of_targets(text: str, shown: str) -> None:
    assert str(Rule(True, *parse_target(text))) == f"allow {shown}"
    assert Rule.parse(f"deny {text}") == Rule(False, *parse_target(text))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "lan",
        "1.2.3",
        "1.2.3.4:0",
        "1.2.3.4:99999",
        "1.2.3.4:",
        "1.2.3.4/33",
        "[::1",
        "10.0.0.1/8",
    ],
)
def test_what_is_no_target_is_refused_in_a_line(text: str) -> None:
    with pytest.raises(ValueError, match="is no"):
        parse_target(text)
    if text != "lan":
        with pytest.raises(InputError, match="reach: ") as caught:
            check_reach([text])
        assert "\n" not in str(caught.value)


def test_ports_and_lists_of_policies() -> None:
    assert (parse_ports("80"), parse_ports("6000-6010")) == ((80, 80), (6000, 6010))
    assert Fence(listen=["80", "6000-6010"]).may_listen(6010)
    assert not Fence(listen=["80", "6000-6010"]).may_listen(6011)
    for wrong in ("80-", "-80", "9-8", "0", "x", "70000"):
        with pytest.raises(InputError, match="listen: "):
            check_listen([wrong])
    for check in (check_reach, check_listen):
        assert check(None) == ()
        for wrong_list in ("lan", 1, ["80"] * 65):
            with pytest.raises(InputError, match="expected a list"):
                check(wrong_list)


HOME = HostNetworks(
    (ipaddress.ip_network("192.168.1.0/24"), ipaddress.ip_network("2001:db8:1::/64"),
     ipaddress.ip_network("169.254.0.0/16")),
    (ipaddress.ip_network("192.168.1.10"), ipaddress.ip_network("203.0.113.2")),
)  # fmt: skip
NAMES = {"orchestrator.example": ["198.51.100.9"], "dish.example": ["198.18.0.1"]}


def reach_of(*opened: str, said: list[str] | None = None, **more: object) -> Fence:
    """Return the fence of a home, with what its owner opens."""

    def resolve(host: str) -> list[str]:
        if host in NAMES:
            return NAMES[host]
        return [str(ipaddress.ip_address(host))]

    said = [] if said is None else said
    made = Reach(
        "dish.example:9200", ["orchestrator.example:7401"], said.append,
        networks=lambda: HOME, resolve=resolve,
    )  # fmt: skip
    return made.fence(opened, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("opened", "reached"),
    [
        ([], []),
        (["dish"], ["192.168.100.1", "198.18.0.1"]),
        (["lan"], ["192.168.1.5", "10.9.9.9", "2001:db8:1::5", "fd12::5"]),
        (["host"], ["192.168.1.10", "203.0.113.2"]),
        (["lan", "dish"], ["192.168.1.5", "10.9.9.9", "2001:db8:1::5", "fd12::5", "192.168.100.1",
                           "198.18.0.1"]),
        (["192.168.1.5:80"], ["192.168.1.5"]),
        (["192.168.1.5:81"], []),
        (["169.254.169.254"], ["169.254.169.254"]),
    ],
)  # fmt: skip
def test_what_owners_names_open(opened: list[str], reached: list[str]) -> None:
    near = [
        "192.168.100.1", "198.18.0.1", "192.168.1.5", "10.9.9.9", "2001:db8:1::5", "fd12::5",
        "192.168.1.10", "203.0.113.2", "198.51.100.9", "169.254.169.254", "127.0.0.1", "fe80::1",
        "224.0.0.251", "255.255.255.255", "::1", "ff02::fb",
    ]  # fmt: skip
    fence = reach_of(*opened)
    found = [a for a in near if passes(fence, frame_to(ipaddress.ip_address(a), _TCP))]
    assert sorted(found) == sorted(reached)
    for public in ("8.8.8.8", "203.0.113.3", "2001:4860::1"):
        assert passes(fence, frame_to(ipaddress.ip_address(public), _TCP)), public


def test_a_server_on_the_orchestrators_machine_is_reached_at_its_port_alone() -> None:
    orchestrator = ipaddress.ip_address("198.51.100.9")
    fence = reach_of(server=("198.51.100.9", 5201))
    assert passes(fence, frame_to(orchestrator, _UDP, (1, 5201)))
    assert not passes(fence, frame_to(orchestrator, _TCP, (1, 7401)))
    # A server elsewhere opens nothing: its address is public, or its owner's to open.
    near = reach_of(server=("192.168.1.5", 5201))
    assert not passes(near, frame_to(ipaddress.ip_address("192.168.1.5"), _TCP, (1, 5201)))


def test_a_name_that_cannot_be_resolved_keeps_its_last_address() -> None:
    said: list[str] = []
    answers: list[list[str] | OSError] = [["198.51.100.9"], OSError("no network")]

    def resolve(host: str) -> list[str]:
        if host != "orchestrator.example":
            return [host]
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    made = Reach(
        None, ["orchestrator.example:1"], said.append, networks=HostNetworks, resolve=resolve
    )
    assert made.fence([]) == made.fence([])
    assert said == []
    answers = [OSError("no network")]
    again = Reach(
        None, ["orchestrator.example:1"], said.append, networks=HostNetworks, resolve=resolve
    )
    assert "deny 198.51.100.9" not in again.fence([]).rules
    assert len(said) == 1


@pytest.mark.parametrize(
    ("networks", "client", "server"),
    [
        (None, Network.VETH, Network.INTERNET),
        (["veth", "host"], Network.VETH, Network.HOST),
        (["veth", "internet"], Network.VETH, Network.INTERNET),
    ],
)
def test_the_server_of_a_job_with_a_device_uses_another_network(
    networks: list[str] | None, client: Network, server: Network
) -> None:
    policy = Policy.of({} if networks is None else {"networks": networks})
    run = {"client": ["true"], "serve": ["true"], "network": "veth"}
    spec = job_of({"id": "j", "nodes": ["a"], "server": "s", "length": 1.0, "when": {"at": 1},
                   "run": run})  # fmt: skip
    assert policy.network_of(spec.run, Side.CLIENT) is client
    assert policy.network_of(spec.run, Side.SERVER) is server


def test_a_job_without_a_network_has_the_internet_and_says_so_to_no_older_node() -> None:
    values = {"id": "j", "nodes": ["a"], "length": 1.0, "when": {"at": 1}, "run": {"client": ["x"]}}
    spec = job_of(values)
    assert spec.run.network is Network.INTERNET
    assert "network" not in spec.as_json()["run"]  # type: ignore[operator]
