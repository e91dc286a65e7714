//! A veth pair and packet sockets: what a user may have who may not open /dev/net/tun.
//!
//! The end's namespace has one half of the pair; the other is in a namespace that nobody else is in.
//! A packet socket on the first sees what the namespace sends in the moment in which the device
//! takes it, so that packets keep their order as they do in a TUN device's queue: at the other half
//! each processor would deliver its own. Over there they end; nothing listens. A second packet
//! socket sends from there what the namespace shall receive.

use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;
use nix::net::if_::if_nametoindex;

use super::choice::{Failure, Problem};
use super::counters::DeviceCount;
use super::ring::{Ring, Taken};
use super::setup::{self, NAME};
use super::sockets::{self, Mac};
use crate::error::{Context, HostError};
use crate::namespace::{NetNamespace, TcpSettings};
use crate::rtnetlink::{self, VethHalf};

/// The other half's name in its namespace.
const PEER: &str = "skyhop-peer";
/// Addresses of one's own making: their second bit says so.
const OWN_MAC: Mac = [0x02, 0, 0, 0, 0, 1];
const PEER_MAC: Mac = [0x02, 0, 0, 0, 0, 2];
/// How often the counters are read until nothing has come in between.
const MOST_READINGS: usize = 100;

/// The packet device of one namespace.
#[derive(Debug)]
pub struct PacketDevice {
    receiver: OwnedFd,
    received: Mutex<Received>,
    sender: OwnedFd,
    peer_index: libc::c_uint,
}

/// What came out of the namespace.
#[derive(Debug)]
struct Received {
    ring: Ring,
    /// Packets that the kernel showed to the socket, and those for which the ring had no room.
    packets: u64,
    drops: u64,
    /// Packets that were read but could not have been on a wire.
    unfit: u64,
    /// Packets that the kernel gave up on its way to the socket.
    missed: u64,
}

impl PacketDevice {
    /// Makes the only device of the calling thread's namespace, ready for traffic.
    pub fn create(addresses: &[Ipv4Addr]) -> Result<Self, Failure> {
        let peer = NetNamespace::create()?;
        // What is refused here is refused in the end's namespace too, which says so.
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
        // Without ARP whatever the namespace sends is addressed to its own device, which makes it
        // foreign at the other half.
        setup::configure(addresses, libc::IFF_NOARP)?;
        // That it was down when the socket was bound to it.
        sockets::take_error(&receiver).map_err(without_sockets)?;
        let received = Received { ring, packets: 0, drops: 0, unfit: 0, missed: 0 };
        Ok(Self { receiver, received: Mutex::new(received), sender, peer_index })
    }

    fn received(&self) -> MutexGuard<'_, Received> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads one packet; `None` when there is none.
    pub fn read(&self, buffer: &mut [u8]) -> Option<usize> {
        let mut received = self.received();
        loop {
            match received.ring.take(buffer)? {
                Taken::Packet(length) => return Some(length),
                Taken::Unfit => received.unfit += 1,
            }
        }
    }

    /// Hands one packet to the namespace; false when the device has no room for it.
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

    /// Forgets that the device was taken down: as long as the socket has something to say of it,
    /// nobody can wait for packets.
    pub fn forget_error(&self) -> Result<(), HostError> {
        sockets::take_error(&self.receiver).context("cannot read a packet socket's error")
    }

    /// What the kernel has counted; `table` was read just before.
    ///
    /// veth takes for sent whatever reaches it. Here a packet is sent once it has been read.
    pub fn count(&self, table: DeviceCount) -> Result<DeviceCount, HostError> {
        let mut received = self.received();
        let mut unread = received.ring.unread();
        for _ in 0..MOST_READINGS {
            received.add_statistics(&self.receiver)?;
            let before = std::mem::replace(&mut unread, received.ring.unread());
            if before == unread {
                break;
            }
        }
        // The other half may drop what the socket has had already: that came through.
        let passed = table.sent + table.send_drops;
        received.missed = received.missed.max(passed.saturating_sub(received.packets));
        Ok(DeviceCount {
            received: table.received,
            sent: received.packets.saturating_sub(received.drops + received.unfit + unread),
            send_drops: received.drops + received.unfit + received.missed,
        })
    }

    /// How many packets were dropped because they could not have been on a wire.
    pub fn unfit(&self) -> u64 {
        self.received().unfit
    }
}

impl Received {
    /// Adds up the socket's statistics, which start again from 0 with each reading.
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

/// Of the calling thread's namespace, before its device is up: nothing is missed.
fn open_receiver() -> Result<(OwnedFd, Ring), Errno> {
    let receiver = sockets::open()?;
    sockets::see_only_outgoing(receiver.as_fd())?;
    let ring = Ring::map(&receiver)?;
    sockets::listen(receiver.as_fd(), NAME)?;
    Ok((receiver, ring))
}

fn open_sender() -> Result<(OwnedFd, libc::c_uint), Errno> {
    let sender = sockets::open()?;
    // A packet is delivered or refused by the time the call returns, as with a TUN device.
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
    let (what, way_out) = match errno {
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
    Failure::Unavailable(Problem { what, way_out: way_out.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(failure: Failure) -> (String, String) {
        match failure {
            Failure::Unavailable(Problem { what, way_out }) => (what, way_out),
            Failure::Broken(error) => panic!("{error}"),
        }
    }

    #[test]
    fn what_is_missing_is_named_with_its_way_out() {
        let (what, way_out) = told(without_veth(Errno::EOPNOTSUPP));
        assert!(what.contains("no veth") && way_out.contains("modprobe veth"), "{what}, {way_out}");
        let (what, way_out) = told(without_sockets(Errno::EAFNOSUPPORT));
        assert!(what.contains("no packet sockets") && way_out.contains("modprobe af_packet"));
        let (what, way_out) = told(without_sockets(Errno::EPERM));
        assert!(what.contains("open a packet socket") && way_out.contains("CAP_NET_RAW"));
        let (what, _) = told(without_veth(Errno::EIO));
        assert!(what.contains("I/O error"), "{what}");
    }
}
