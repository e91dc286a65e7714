//! The requests of rtnetlink(7) for which no ioctl serves: unlike those they work in a user
//! namespace, or have no ioctl at all.

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

/// Sets how many packets a device of the calling thread's namespace may hold.
pub fn set_queue_length(device: &str, packets: u32) -> Result<(), Errno> {
    let mut link = LinkMessage::default();
    link.header.index = if_nametoindex(device)?;
    link.attributes.push(LinkAttribute::TxQueueLen(packets));
    request(RouteNetlinkMessage::SetLink(link), 0)
}

/// A route to one address, and what connections over it have of their own.
#[derive(Debug, Clone, Copy)]
pub struct PeerRoute<'n> {
    /// The address that it leads to.
    pub peer: Ipv4Addr,
    /// The device that it leads over.
    pub device: &'n str,
    /// The address that connections come from.
    pub source: Ipv4Addr,
    /// In segments; the kernel's own where not given.
    pub initial_cwnd: Option<u32>,
    /// The congestion control; what sockets choose where not given.
    pub cc: Option<&'n str>,
}

/// Makes a device of the calling thread's namespace the way to an address of another one.
pub fn lead(peer: Ipv4Addr, device: &str) -> Result<(), Errno> {
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
    /// Makes it one of the calling thread's namespace, in place of one to the same address.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn set(self) -> Result<(), Errno> {
        self.set_for(32)
    }

    /// Makes it the calling thread's namespace's way to all other addresses, too.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn set_as_default(self) -> Result<(), Errno> {
        self.set_for(0)
    }

    /// For addresses that share so many bits with the peer's.
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

/// One half of a veth pair.
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

/// Makes a pair of devices, one in the calling thread's namespace and one in `namespace`.
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

/// Sends one request and waits for its acknowledgement.
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
    acknowledged(&answer[..length])
}

/// What the kernel's answer to a request says.
pub(crate) fn acknowledged(answer: &[u8]) -> Result<(), Errno> {
    let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(answer);
    match answer.map(|answer| answer.payload) {
        // An error without a code is the acknowledgement.
        Ok(NetlinkPayload::Error(error)) => match error.code {
            None => Ok(()),
            Some(code) => Err(Errno::from_raw(-code.get())),
        },
        _ => Err(Errno::EBADMSG),
    }
}
