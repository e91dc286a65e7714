//! Packet sockets of an end: one captures the packets that the namespace sends, one sends packets
//! to the namespace.

use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::errno::Errno;
use nix::net::if_::if_nametoindex;
use nix::sys::socket::{getsockopt, sockopt};

/// MAC address of a device.
pub(super) type Mac = [u8; 6];

/// Open an unbound packet socket, whose packets have no link headers.
pub(super) fn open() -> Result<OwnedFd, Errno> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: this makes a new descriptor or fails.
    let socket = Errno::result(unsafe { libc::socket(libc::AF_PACKET, kind, 0) })?;
    // SAFETY: the descriptor is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(socket) })
}

/// Attach a filter that passes only packets sent by the namespace, not those that skyhop delivers to it.
pub(super) fn filter_outgoing(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    let packet_type = (libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE) as u32;
    let instruction = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut filter = [
        instruction(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 0, 0, packet_type),
        instruction(libc::BPF_JMP | libc::BPF_JEQ, 0, 1, u32::from(libc::PACKET_OUTGOING)),
        instruction(libc::BPF_RET, 0, 0, u32::MAX),
        instruction(libc::BPF_RET, 0, 0, 0),
    ];
    let program =
        libc::sock_fprog { len: filter.len() as libc::c_ushort, filter: filter.as_mut_ptr() };
    set_option(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}

/// Bind a socket to a device of the calling thread's namespace, for all protocols.
pub(super) fn bind(socket: BorrowedFd<'_>, device: &str) -> Result<(), Errno> {
    let address = link_address(libc::ETH_P_ALL as u16, if_nametoindex(device)?, [0; 6]);
    let (address, length) = (&raw const address, mem::size_of_val(&address));
    // SAFETY: bind reads one address of this size, which lives for the call.
    let bound =
        unsafe { libc::bind(socket.as_raw_fd(), address.cast(), length as libc::socklen_t) };
    Errno::result(bound).map(|_| ())
}

/// Link-layer address for a packet of this EtherType to `mac` over a device.
pub(super) fn link_address(ethertype: u16, index: libc::c_uint, mac: Mac) -> libc::sockaddr_ll {
    let mut padded = [0; 8];
    padded[..6].copy_from_slice(&mac);
    libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: ethertype.to_be(),
        sll_ifindex: index as libc::c_int,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 6,
        sll_addr: padded,
    }
}

/// Send one packet without blocking.
pub(super) fn send(socket: &OwnedFd, packet: &[u8], to: &libc::sockaddr_ll) -> Result<(), Errno> {
    let (to, length) = ((&raw const *to).cast(), mem::size_of_val(to) as libc::socklen_t);
    // SAFETY: the packet and the address live for the call, which only reads them.
    let sent = unsafe {
        let (bytes, flags) = (packet.as_ptr().cast(), libc::MSG_DONTWAIT);
        libc::sendto(socket.as_raw_fd(), bytes, packet.len(), flags, to, length)
    };
    Errno::result(sent).map(|_| ())
}

/// Read and reset a socket's statistics: packets in total, and those dropped because the ring was full.
pub(super) fn take_statistics(socket: &OwnedFd) -> Result<(u64, u64), Errno> {
    let mut statistics = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
    let mut length = mem::size_of_val(&statistics) as libc::socklen_t;
    // SAFETY: the kernel writes one tpacket_stats, which lives for the call.
    let read = unsafe {
        let (level, name) = (libc::SOL_PACKET, libc::PACKET_STATISTICS);
        let value = (&raw mut statistics).cast();
        libc::getsockopt(socket.as_raw_fd(), level, name, value, &raw mut length)
    };
    Errno::result(read)?;
    Ok((statistics.tp_packets.into(), statistics.tp_drops.into()))
}

/// Read and clear a socket's pending error.
pub(super) fn clear_error(socket: &OwnedFd) -> Result<(), Errno> {
    getsockopt(socket, sockopt::SocketError).map(|_| ())
}

pub(super) fn set_option<T>(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: &T,
) -> Result<(), Errno> {
    let (value, length) = ((&raw const *value).cast(), mem::size_of::<T>() as libc::socklen_t);
    // SAFETY: the kernel reads one T, which lives for the call as what it points to does.
    let set = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value, length) };
    Errno::result(set).map(|_| ())
}
