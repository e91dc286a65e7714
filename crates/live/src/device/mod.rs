//! The device of an end: what its namespace sends comes out here, and what is written here its
//! namespace receives.
//!
//! A TUN device where /dev/net/tun may be opened; elsewhere a veth pair with packet sockets, which
//! takes no more than namespaces of one's own. The rest of the engine does not see which.

mod choice;
mod counters;
mod packet;
mod ring;
mod setup;
mod sockets;
mod tun;

use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd};

use skyhop_scenario::LiveDevice;

pub use choice::DeviceKind;
pub(crate) use counters::DeviceCount;
pub(crate) use setup::NAME;

use crate::error::LiveError;
use crate::namespace::NetNamespace;
use choice::Failure;
use counters::NamespaceTable;
use packet::PacketDevice;
use tun::TunDevice;

/// The device of one namespace.
#[derive(Debug)]
pub(crate) struct Device {
    carrier: Carrier,
    table: NamespaceTable,
}

#[derive(Debug)]
enum Carrier {
    Tun(TunDevice),
    Packet(PacketDevice),
}

impl Device {
    /// Gives each namespace its only device, both of the same kind.
    pub(crate) fn create_pair(
        asked: LiveDevice,
        ends: [(&NetNamespace, Ipv4Addr); 2],
    ) -> Result<[Self; 2], LiveError> {
        choice::choose(asked, |kind| {
            let [near, far] = ends;
            Ok([Self::create(kind, near)?, Self::create(kind, far)?])
        })
    }

    fn create(
        kind: DeviceKind,
        (namespace, address): (&NetNamespace, Ipv4Addr),
    ) -> Result<Self, Failure> {
        namespace.inside(|| {
            let carrier = match kind {
                DeviceKind::Tun => Carrier::Tun(TunDevice::create(address)?),
                DeviceKind::Packet => Carrier::Packet(PacketDevice::create(address)?),
            };
            Ok(Self { carrier, table: NamespaceTable::open()? })
        })
    }

    pub(crate) fn kind(&self) -> DeviceKind {
        match self.carrier {
            Carrier::Tun(_) => DeviceKind::Tun,
            Carrier::Packet(_) => DeviceKind::Packet,
        }
    }

    /// Reads one packet; `None` when there is none.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> Result<Option<usize>, LiveError> {
        match &self.carrier {
            Carrier::Tun(tun) => tun.read(buffer),
            Carrier::Packet(packet) => Ok(packet.read(buffer)),
        }
    }

    /// Hands one packet to the namespace; false when the device has no room for it.
    pub(crate) fn write(&self, packet: &[u8]) -> Result<bool, LiveError> {
        match &self.carrier {
            Carrier::Tun(tun) => tun.write(packet),
            Carrier::Packet(device) => device.write(packet),
        }
    }

    /// What the kernel has counted until now.
    pub(crate) fn count(&self) -> Result<DeviceCount, LiveError> {
        let table = self.table.read()?;
        match &self.carrier {
            Carrier::Tun(_) => Ok(table),
            Carrier::Packet(packet) => packet.count(table),
        }
    }

    /// What a user must know of what the device met with.
    pub(crate) fn warning(&self) -> Option<String> {
        match &self.carrier {
            Carrier::Tun(_) => None,
            Carrier::Packet(packet) => packet.warning(),
        }
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.carrier {
            Carrier::Tun(tun) => tun.as_fd(),
            Carrier::Packet(packet) => packet.as_fd(),
        }
    }
}
