//! The requests of rtnetlink(7) for which no ioctl serves: unlike those they work in a user
//! namespace, or have no ioctl at all.

use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, BorrowedFd};

use nix::errno::Errno;
use nix::net::if_::if_nametoindex;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket,
};

/// Attribute of a route's metrics: the congestion control of connections over it (rtnetlink.h).
const RTAX_CC_ALGO: u16 = 16;
/// Attribute of a veth device's data: its other half (veth.h).
const VETH_INFO_PEER: u16 = 1;
/// The size of `ifinfomsg`, all zeros for a device that is yet to be made.
const DEVICE_HEADER: usize = 16;
/// The size of a message's header.
const HEADER: usize = 16;

/// Sets how many packets a device of the calling thread's namespace may hold.
pub fn set_queue_length(device: &str, packets: u32) -> Result<(), Errno> {
    let mut body = vec![0; 4];
    body.extend(if_nametoindex(device)?.to_ne_bytes());
    // No flags, and none to be changed.
    body.extend([0; 8]);
    body.extend(attribute(libc::IFLA_TXQLEN, &packets.to_ne_bytes()));
    request(libc::RTM_SETLINK, 0, &body)
}

/// Adds a route to `peer` over `device` whose connections use the congestion control `cc`.
pub fn add_route(peer: Ipv4Addr, device: &str, cc: &str) -> Result<(), Errno> {
    let (host, table, scope) = (32, libc::RT_TABLE_MAIN, libc::RT_SCOPE_LINK);
    let mut body = vec![libc::AF_INET as u8, host, 0, 0, table, libc::RTPROT_STATIC, scope];
    body.push(libc::RTN_UNICAST);
    body.extend(0_u32.to_ne_bytes());
    body.extend(attribute(libc::RTA_DST, &peer.octets()));
    body.extend(attribute(libc::RTA_OIF, &if_nametoindex(device)?.to_ne_bytes()));
    body.extend(attribute(libc::RTA_METRICS, &attribute(RTAX_CC_ALGO, &terminated(cc))));
    request(libc::RTM_NEWROUTE, libc::NLM_F_CREATE | libc::NLM_F_REPLACE, &body)
}

/// One half of a veth pair.
#[derive(Debug, Clone, Copy)]
pub struct VethHalf<'n> {
    pub name: &'n str,
    pub mac: [u8; 6],
}

impl VethHalf<'_> {
    fn attributes(self) -> Vec<u8> {
        let mut attributes = attribute(libc::IFLA_IFNAME, &terminated(self.name));
        attributes.extend(attribute(libc::IFLA_ADDRESS, &self.mac));
        attributes
    }
}

/// Makes a pair of devices, one in the calling thread's namespace and one in `namespace`.
pub fn add_veth(
    here: VethHalf<'_>,
    there: VethHalf<'_>,
    namespace: BorrowedFd<'_>,
) -> Result<(), Errno> {
    let mut peer = vec![0; DEVICE_HEADER];
    peer.extend(there.attributes());
    peer.extend(attribute(libc::IFLA_NET_NS_FD, &namespace.as_raw_fd().to_ne_bytes()));
    let mut kind = attribute(libc::IFLA_INFO_KIND, b"veth");
    kind.extend(attribute(libc::IFLA_INFO_DATA, &attribute(VETH_INFO_PEER, &peer)));

    let mut body = vec![0; DEVICE_HEADER];
    body.extend(here.attributes());
    body.extend(attribute(libc::IFLA_LINKINFO, &kind));
    request(libc::RTM_NEWLINK, libc::NLM_F_CREATE | libc::NLM_F_EXCL, &body)
}

fn terminated(name: &str) -> Vec<u8> {
    name.bytes().chain([0]).collect()
}

/// Length, kind and value, padded to four bytes.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = 4 + value.len() as u16;
    let mut attribute = Vec::new();
    attribute.extend(length.to_ne_bytes());
    attribute.extend(kind.to_ne_bytes());
    attribute.extend(value);
    attribute.resize(attribute.len().next_multiple_of(4), 0);
    attribute
}

/// Sends one request and waits for its acknowledgement.
fn request(kind: u16, flags: libc::c_int, body: &[u8]) -> Result<(), Errno> {
    let flags = (flags | libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16;
    let mut message = Vec::new();
    message.extend(((HEADER + body.len()) as u32).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    // Sequence number and sender: the kernel's answer is the only one there will be.
    message.extend([0; 8]);
    message.extend(body);

    let flags = SockFlag::SOCK_CLOEXEC;
    let kernel = socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkRoute)?;
    send(kernel.as_raw_fd(), &message, MsgFlags::empty())?;
    let mut answer = [0; 4096];
    let length = recv(kernel.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    // netlink(7): behind the header stands a negative error number, or 0.
    let error = answer[..length].get(HEADER..).and_then(|body| body.first_chunk::<4>());
    match error.map(|error| i32::from_ne_bytes(*error)) {
        Some(0) => Ok(()),
        Some(error) => Err(Errno::from_raw(-error)),
        None => Err(Errno::EBADMSG),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_padded_but_their_length_is_not() {
        let attribute = attribute(7, b"cubic\0");
        assert_eq!(attribute.len(), 12);
        assert_eq!(attribute[..4], [10_u16.to_ne_bytes(), 7_u16.to_ne_bytes()].concat());
    }
}
