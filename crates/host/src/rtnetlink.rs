//! Requests of rtnetlink(7) that have no ioctl, or whose ioctl does not work in a user namespace.

use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, BorrowedFd};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVeth, LinkAttribute, LinkInfo, LinkMessage,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteMetric, RouteProtocol,
    RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use nix::errno::Errno;
use nix::net::if_::if_nametoindex;
use nix::sys::socket::{self, MsgFlags, SockFlag, SockProtocol, SockType};

/// Set the transmit queue length of a device of the calling thread's namespace, in packets.
pub fn set_queue_length(device: &str, packets: u32) -> Result<(), Errno> {
    let mut link = LinkMessage::default();
    link.header.index = if_nametoindex(device)?;
    link.attributes.push(LinkAttribute::TxQueueLen(packets));
    request(RouteNetlinkMessage::SetLink(link), 0)
}

/// Route to one address, with metrics for its connections.
#[derive(Debug, Clone, Copy)]
pub struct PeerRoute<'n> {
    /// Destination address of the route.
    pub peer: Ipv4Addr,
    /// Output device of the route.
    pub device: &'n str,
    /// Preferred source address of connections.
    pub source: Ipv4Addr,
    /// Initial congestion window, in segments; `None`: the kernel's default.
    pub initial_cwnd: Option<u32>,
    /// Congestion control of connections; `None`: as the socket chooses.
    pub cc: Option<&'n str>,
}

/// Add a host route to an address over a device of the calling thread's namespace.
pub fn add_host_route(peer: Ipv4Addr, device: &str) -> Result<(), Errno> {
    let mut route = RouteMessage::default();
    route.header = unicast(32);
    route.attributes = vec![
        RouteAttribute::Destination(RouteAddress::Inet(peer)),
        RouteAttribute::Oif(if_nametoindex(device)?),
    ];
    request(RouteNetlinkMessage::NewRoute(route), NLM_F_CREATE | NLM_F_EXCL)
}

fn unicast(prefix: u8) -> RouteHeader {
    RouteHeader {
        address_family: AddressFamily::Inet,
        destination_prefix_length: prefix,
        table: RouteHeader::RT_TABLE_MAIN,
        protocol: RouteProtocol::Static,
        scope: RouteScope::Link,
        kind: RouteType::Unicast,
        ..RouteHeader::default()
    }
}

impl PeerRoute<'_> {
    /// Add the route in the calling thread's namespace, or replace the one to the same address.
    ///
    /// # Errors
    /// The kernel refuses the route.
    pub fn set(self) -> Result<(), Errno> {
        self.set_for(32)
    }

    /// Add the route as the default route of the calling thread's namespace, or replace the
    /// existing default route.
    ///
    /// # Errors
    /// The kernel refuses the route.
    pub fn set_as_default(self) -> Result<(), Errno> {
        self.set_for(0)
    }

    /// Add the route for the prefix of this length.
    fn set_for(self, prefix: u8) -> Result<(), Errno> {
        let mut route = RouteMessage::default();
        route.header = unicast(prefix);
        let cc = self.cc.map(|cc| RouteMetric::CcAlgo(cc.to_owned()));
        let metrics = self.initial_cwnd.map(RouteMetric::InitCwnd).into_iter().chain(cc);
        let destination = RouteAttribute::Destination(RouteAddress::Inet(self.peer));
        route.attributes.extend((prefix > 0).then_some(destination));
        route.attributes.extend([
            RouteAttribute::PrefSource(RouteAddress::Inet(self.source)),
            RouteAttribute::Oif(if_nametoindex(self.device)?),
            RouteAttribute::Metrics(metrics.collect()),
        ]);
        request(RouteNetlinkMessage::NewRoute(route), NLM_F_CREATE | NLM_F_REPLACE)
    }
}

/// One end of a veth pair.
#[derive(Debug, Clone, Copy)]
pub struct VethHalf<'n> {
    pub name: &'n str,
    pub mac: [u8; 6],
}

impl VethHalf<'_> {
    fn message(self) -> LinkMessage {
        let mut link = LinkMessage::default();
        link.attributes = vec![
            LinkAttribute::IfName(self.name.to_owned()),
            LinkAttribute::Address(self.mac.to_vec()),
        ];
        link
    }
}

/// Create a veth pair, one end in the calling thread's namespace and the other in `namespace`.
pub fn add_veth(
    here: VethHalf<'_>,
    there: VethHalf<'_>,
    namespace: BorrowedFd<'_>,
) -> Result<(), Errno> {
    let mut peer = there.message();
    peer.attributes.push(LinkAttribute::NetNsFd(namespace.as_raw_fd()));
    let mut link = here.message();
    link.attributes.push(LinkAttribute::LinkInfo(vec![
        LinkInfo::Kind(InfoKind::Veth),
        LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
    ]));
    request(RouteNetlinkMessage::NewLink(link), NLM_F_CREATE | NLM_F_EXCL)
}

/// Send one request and wait for its acknowledgement.
fn request(body: RouteNetlinkMessage, flags: u16) -> Result<(), Errno> {
    let mut message = NetlinkMessage::from(body);
    message.header.flags = flags | NLM_F_REQUEST | NLM_F_ACK;
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);

    let (family, flags) = (socket::AddressFamily::Netlink, SockFlag::SOCK_CLOEXEC);
    let kernel = socket::socket(family, SockType::Raw, flags, SockProtocol::NetlinkRoute)?;
    socket::send(kernel.as_raw_fd(), &bytes, MsgFlags::empty())?;
    let mut answer = [0; 4096];
    let length = socket::recv(kernel.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    check_acknowledgement(&answer[..length])
}

/// Check the kernel's acknowledgement of a request.
pub(crate) fn check_acknowledgement(answer: &[u8]) -> Result<(), Errno> {
    let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(answer);
    match answer.map(|answer| answer.payload) {
        // An NLMSG_ERROR with code 0 is the acknowledgement.
        Ok(NetlinkPayload::Error(error)) => match error.code {
            None => Ok(()),
            Some(code) => Err(Errno::from_raw(-code.get())),
        },
        _ => Err(Errno::EBADMSG),
    }
}
