//! Device made of a veth pair and packet sockets, for users who cannot open /dev/net/tun.
//!
//! One device of the pair is in the end's namespace; its peer is in a namespace without processes. A packet socket
//! on the first device captures packets when the device accepts them, so that they keep their order as in a TUN
//! device's queue; at the peer, each processor would deliver its packets separately. The peer discards these
//! packets. A second packet socket, on the peer, sends the packets that the end's namespace shall receive.

use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;
use nix::net::if_::if_nametoindex;

use super::choice::{Failure, Problem};
use super::counters::DeviceCount;
use super::ring::{Ring, RingEntry};
use super::setup::{self, NAME};
use super::sockets::{self, Mac};
use crate::error::{Context, HostError};
use crate::namespace::{NetNamespace, TcpSettings};
use crate::rtnetlink::{self, VethHalf};

/// Name of the peer device in its namespace.
const PEER: &str = "skyhop-peer";
/// Locally administered MAC addresses: the second bit of the first byte is set.
const OWN_MAC: Mac = [0x02, 0, 0, 0, 0, 1];
const PEER_MAC: Mac = [0x02, 0, 0, 0, 0, 2];
/// Largest number of attempts to read all counters without a packet arriving in between.
const MOST_READS: usize = 100;

/// Packet-socket device of one namespace.
#[derive(Debug)]
pub struct PacketDevice {
    receiver: OwnedFd,
    received: Mutex<Received>,
    sender: OwnedFd,
    peer_index: libc::c_uint,
}

/// Packets captured from the namespace, with their counters.
#[derive(Debug)]
struct Received {
    ring: Ring,
    /// Packets that the kernel passed to the socket, including `drops`.
    packets: u64,
    /// Packets for which the ring had no room.
    drops: u64,
    /// Packets dropped after reading: too long or without a checksum.
    rejected: u64,
    /// Packets that the kernel dropped before the socket.
    missed: u64,
}

impl PacketDevice {
    /// Create the only device of the calling thread's namespace, ready for traffic.
    pub fn create(addresses: &[Ipv4Addr]) -> Result<Self, Failure> {
        let peer = NetNamespace::create()?;
        // No warning here: a setting that the kernel refuses for the peer is refused for the end's
        // namespace too, and reported there.
        peer.tune(&TcpSettings::default())?;
        let own_half = VethHalf { name: NAME, mac: OWN_MAC };
        let peer_half = VethHalf { name: PEER, mac: PEER_MAC };
        rtnetlink::add_veth(own_half, peer_half, peer.as_fd()).map_err(without_veth)?;
        setup::turn_offloads_off(NAME)?;
        let (sender, peer_index) = peer.inside(|| {
            setup::turn_offloads_off(PEER)?;
            setup::bring_up(PEER, libc::IFF_NOARP)?;
            open_sender().map_err(without_sockets)
        })?;
        let (receiver, ring) = open_receiver().map_err(without_sockets)?;
        // Without ARP the namespace addresses all packets to its own device's MAC, so that the peer discards them as
        // belonging to another host.
        setup::configure(addresses, libc::IFF_NOARP)?;
        // Clear the error ENETDOWN: the device was down when the socket was bound to it.
        sockets::clear_error(&receiver).map_err(without_sockets)?;
        let received = Received { ring, packets: 0, drops: 0, rejected: 0, missed: 0 };
        Ok(Self { receiver, received: Mutex::new(received), sender, peer_index })
    }

    fn received(&self) -> MutexGuard<'_, Received> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Read one packet; return its length, `None` if there is none.
    pub fn read(&self, buffer: &mut [u8]) -> Option<usize> {
        let mut received = self.received();
        loop {
            match received.ring.pop(buffer)? {
                RingEntry::Packet(length) => return Some(length),
                RingEntry::Rejected => received.rejected += 1,
            }
        }
    }

    /// Deliver one packet to the namespace; return false if the device has no room.
    pub fn write(&self, packet: &[u8], ethertype: u16) -> Result<bool, HostError> {
        let to = sockets::link_address(ethertype, self.peer_index, OWN_MAC);
        loop {
            match sockets::send(&self.sender, packet, &to) {
                Ok(()) => return Ok(true),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN | Errno::ENOBUFS | Errno::ENOMEM) => return Ok(false),
                Err(error) => return Err(error).context("cannot write to the packet device"),
            }
        }
    }

    /// Clear the error that the device was down: while it is pending, poll(2) returns at once.
    pub fn clear_error(&self) -> Result<(), HostError> {
        sockets::clear_error(&self.receiver).context("cannot read a packet socket's error")
    }

    /// Counters of the device; the caller has read `table` just before.
    ///
    /// veth counts every packet that it accepts as sent, whereas this function counts a packet as
    /// sent once it has been read.
    pub fn count(&self, table: DeviceCount) -> Result<DeviceCount, HostError> {
        let mut received = self.received();
        let mut unread = received.ring.unread();
        for _ in 0..MOST_READS {
            received.add_statistics(&self.receiver)?;
            let before = std::mem::replace(&mut unread, received.ring.unread());
            if before == unread {
                break;
            }
        }
        // The peer may drop packets that the socket has already captured; these packets are not lost.
        let passed = table.sent + table.send_drops;
        received.missed = received.missed.max(passed.saturating_sub(received.packets));
        Ok(DeviceCount {
            received: table.received,
            sent: received.packets.saturating_sub(received.drops + received.rejected + unread),
            send_drops: received.drops + received.rejected + received.missed,
        })
    }

    /// Number of packets dropped after reading: too long or without a checksum.
    pub fn rejected(&self) -> u64 {
        self.received().rejected
    }
}

impl Received {
    /// Add the socket's statistics, which reading resets to 0.
    fn add_statistics(&mut self, receiver: &OwnedFd) -> Result<(), HostError> {
        let (packets, drops) = sockets::take_statistics(receiver)
            .context("cannot read a packet socket's statistics")?;
        self.packets += packets;
        self.drops += drops;
        Ok(())
    }
}

impl AsFd for PacketDevice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.receiver.as_fd()
    }
}

/// Open the capturing socket in the calling thread's namespace, before the device is up, so that
/// the socket does not miss a packet.
fn open_receiver() -> Result<(OwnedFd, Ring), Errno> {
    let receiver = sockets::open()?;
    sockets::filter_outgoing(receiver.as_fd())?;
    let ring = Ring::map(&receiver)?;
    sockets::bind(receiver.as_fd(), NAME)?;
    Ok((receiver, ring))
}

fn open_sender() -> Result<(OwnedFd, libc::c_uint), Errno> {
    let sender = sockets::open()?;
    // PACKET_QDISC_BYPASS: a packet is delivered or refused when the call returns, as with a TUN device.
    let bypass: libc::c_int = 1;
    sockets::set_option(sender.as_fd(), libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &bypass)?;
    Ok((sender, if_nametoindex(PEER)?))
}

fn without_veth(errno: Errno) -> Failure {
    let lack = ("this kernel has no veth devices", "load the module as root: modprobe veth");
    unavailable("make a veth device", lack, errno)
}

fn without_sockets(errno: Errno) -> Failure {
    let lack = ("this kernel has no packet sockets", "load the module as root: modprobe af_packet");
    unavailable("open a packet socket", lack, errno)
}

fn unavailable(action: &str, lack: (&str, &str), errno: Errno) -> Failure {
    let (what, remedy) = match errno {
        Errno::EOPNOTSUPP | Errno::EAFNOSUPPORT | Errno::EPROTONOSUPPORT | Errno::ENODEV => {
            (lack.0.to_owned(), lack.1)
        }
        Errno::EPERM | Errno::EACCES => (
            format!("this system does not let skyhop {action} in its own namespaces"),
            "run skyhop as root, or in a container that grants CAP_NET_ADMIN and CAP_NET_RAW",
        ),
        _ => (
            format!("skyhop cannot {action} ({})", errno.desc()),
            "check that there is memory for it (64 MB), and that the kernel is Linux 4.0 or newer",
        ),
    };
    Failure::Unavailable(Problem { what, remedy: remedy.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(failure: Failure) -> (String, String) {
        match failure {
            Failure::Unavailable(Problem { what, remedy }) => (what, remedy),
            Failure::Broken(error) => panic!("{error}"),
        }
    }

    #[test]
    fn missing_features_are_named_with_a_remedy() {
        let (what, remedy) = parts(without_veth(Errno::EOPNOTSUPP));
        assert!(what.contains("no veth") && remedy.contains("modprobe veth"), "{what}, {remedy}");
        let (what, remedy) = parts(without_sockets(Errno::EAFNOSUPPORT));
        assert!(what.contains("no packet sockets") && remedy.contains("modprobe af_packet"));
        let (what, remedy) = parts(without_sockets(Errno::EPERM));
        assert!(what.contains("open a packet socket") && remedy.contains("CAP_NET_RAW"));
        let (what, _) = parts(without_veth(Errno::EIO));
        assert!(what.contains("I/O error"), "{what}");
    }
}
