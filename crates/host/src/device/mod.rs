//! Network device of an end of the path. Packets that the end's namespace sends are read from the device, and
//! packets written to the device are received by the namespace.
//!
//! The device is a TUN device if /dev/net/tun can be opened, else a veth pair with packet sockets, which the
//! owner of a namespace may always create. The rest of the engine does not distinguish the two kinds.

mod choice;
mod counters;
mod packet;
mod ring;
mod routers;
mod setup;
mod sockets;
mod tun;

use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd};

use skyhop_model::LiveDevice;
use tracing::debug;

pub use choice::DeviceKind;
pub use counters::DeviceCount;
pub use routers::{DisciplineStats, Disciplines, Routers};
pub use setup::NAME;
#[cfg(test)]
pub(crate) use setup::bring_up;

use crate::error::HostError;
use crate::namespace::NetNamespace;
use choice::Failure;
use counters::NamespaceTable;
use packet::PacketDevice;
use tun::TunDevice;

/// Device of one namespace, with its counters.
#[derive(Debug)]
pub struct Device {
    backend: Backend,
    table: NamespaceTable,
}

#[derive(Debug)]
enum Backend {
    Tun(TunDevice),
    Packet(PacketDevice),
}

impl Device {
    /// Create the only device of each namespace. Both are of the same kind: `requested` or, if that
    /// is "auto", `preferred` if available.
    pub fn create_pair(
        requested: LiveDevice,
        preferred: DeviceKind,
        ends: [(&NetNamespace, &[Ipv4Addr]); 2],
    ) -> Result<[Self; 2], HostError> {
        choice::choose(requested, preferred, |kind| {
            let [from, to] = ends;
            Ok([Self::create(kind, from)?, Self::create(kind, to)?])
        })
    }

    fn create(
        kind: DeviceKind,
        (namespace, addresses): (&NetNamespace, &[Ipv4Addr]),
    ) -> Result<Self, Failure> {
        namespace.inside(|| {
            let backend = match kind {
                DeviceKind::Tun => Backend::Tun(TunDevice::create(addresses)?),
                DeviceKind::Packet => Backend::Packet(PacketDevice::create(addresses)?),
                DeviceKind::Veth => {
                    return Err(HostError::Unsupported("routers join both ends".to_owned()).into());
                }
            };
            debug!(name = NAME, ?kind, ?addresses, "device created");
            Ok(Self { backend, table: NamespaceTable::open()? })
        })
    }

    /// Kind of the device.
    pub fn kind(&self) -> DeviceKind {
        match self.backend {
            Backend::Tun(_) => DeviceKind::Tun,
            Backend::Packet(_) => DeviceKind::Packet,
        }
    }

    /// Read one packet; return its length, `None` if there is none.
    pub fn read(&self, buffer: &mut [u8]) -> Result<Option<usize>, HostError> {
        match &self.backend {
            Backend::Tun(tun) => tun.read(buffer),
            Backend::Packet(packet) => Ok(packet.read(buffer)),
        }
    }

    /// Deliver one packet to the namespace; return false if it is not an IP packet or the device has no room.
    pub fn write(&self, packet: &[u8]) -> Result<bool, HostError> {
        let ethertype = match packet.first().map(|first| first >> 4) {
            Some(4) => libc::ETH_P_IP,
            Some(6) => libc::ETH_P_IPV6,
            // A program has sent a packet that is not IP.
            _ => return Ok(false),
        };
        match &self.backend {
            Backend::Tun(tun) => tun.write(packet),
            Backend::Packet(device) => device.write(packet, ethertype as u16),
        }
    }

    /// Clear the descriptor's pending error, which would otherwise end every poll(2) at once.
    pub fn clear_error(&self) -> Result<(), HostError> {
        match &self.backend {
            Backend::Tun(_) => Ok(()),
            Backend::Packet(packet) => packet.clear_error(),
        }
    }

    /// Kernel's counters of the device.
    pub fn count(&self) -> Result<DeviceCount, HostError> {
        let table = self.table.read()?;
        match &self.backend {
            Backend::Tun(tun) => Ok(tun.count(table)),
            Backend::Packet(packet) => packet.count(table),
        }
    }

    /// Warning about packets that the device dropped because they were too long or lacked a checksum.
    pub fn warning(&self) -> Option<String> {
        let rejected = match &self.backend {
            Backend::Tun(tun) => tun.rejected(),
            Backend::Packet(packet) => packet.rejected(),
        };
        (rejected > 0).then(|| {
            format!(
                "{rejected} packets of more than 1500 bytes or without a checksum were dropped at the \
                 device; leave the settings of {NAME} as they are"
            )
        })
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.backend {
            Backend::Tun(tun) => tun.as_fd(),
            Backend::Packet(packet) => packet.as_fd(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::*;
    use crate::frame::MTU;
    use crate::namespace::TcpSettings;

    const HERE: Ipv4Addr = Ipv4Addr::new(10, 83, 0, 1);
    const THERE: (Ipv4Addr, u16) = (Ipv4Addr::new(10, 83, 0, 2), 9);

    /// Create a namespace with a device; root can do so without a user namespace.
    fn end(kind: DeviceKind) -> Option<(NetNamespace, Device)> {
        let made = NetNamespace::create().map_err(Failure::from).and_then(|namespace| {
            namespace.tune(&TcpSettings::default())?;
            let device = Device::create(kind, (&namespace, &[HERE]))?;
            Ok((namespace, device))
        });
        let need = if kind == DeviceKind::Tun { "tun" } else { "root" };
        made.inspect_err(|failure| skyhop_needs::missing(need, message(failure))).ok()
    }

    fn message(failure: &Failure) -> String {
        match failure {
            Failure::Unavailable(problem) => problem.what.clone(),
            Failure::Broken(error) => error.to_string(),
        }
    }

    fn send_from(namespace: &NetNamespace, payload: &[u8], packets: usize) {
        let sent = namespace.inside(|| {
            let socket = UdpSocket::bind((HERE, 0)).expect("the address is there");
            (0..packets).for_each(|_| assert!(socket.send_to(payload, THERE).is_ok()));
            Ok::<_, HostError>(())
        });
        sent.expect("the namespace can be entered");
    }

    #[test]
    fn drops_of_a_full_ring_are_counted_once() {
        let Some((namespace, device)) = end(DeviceKind::Packet) else { return };
        let packets = 25_000;
        send_from(&namespace, &[0; 100], packets);
        let full = device.count().unwrap();
        assert_eq!((full.sent, full.received), (0, 0), "{full:?}");
        assert!(full.send_drops > 1000, "{full:?}");

        let mut buffer = [0; MTU];
        let mut read = 0;
        while let Some(length) = device.read(&mut buffer).unwrap() {
            assert_eq!((length, buffer[0]), (128, 0x45));
            read += 1;
        }
        assert_eq!(read + full.send_drops, packets as u64);
        assert_eq!(device.count().unwrap(), DeviceCount { sent: read, ..full });
        // Reading has made room again.
        send_from(&namespace, &[0; 100], 1);
        assert_eq!(device.read(&mut buffer).unwrap(), Some(128));
        assert_eq!(device.count().unwrap(), DeviceCount { sent: read + 1, ..full });
        assert_eq!(device.warning(), None);
    }

    #[test]
    fn a_packet_that_is_too_long_is_dropped_and_told_of() {
        for kind in [DeviceKind::Tun, DeviceKind::Packet] {
            let Some((namespace, device)) = end(kind) else { continue };
            namespace.inside(|| setup::set_mtu(NAME, 4000)).unwrap();
            send_from(&namespace, &[0; 1473], 1);
            send_from(&namespace, &[0; 1472], 1);
            let mut buffer = [0; MTU];
            assert_eq!(device.read(&mut buffer).unwrap(), Some(1500));
            assert_eq!(device.read(&mut buffer).unwrap(), None);
            let expected = DeviceCount { received: 0, sent: 1, send_drops: 1 };
            assert_eq!(device.count().unwrap(), expected);
            let warning = device.warning().unwrap();
            assert!(warning.starts_with("1 packets of more than 1500 bytes"), "{warning}");
        }
    }

    #[test]
    fn waiting_for_packets_waits_also_after_the_device_was_down() {
        let Some((namespace, device)) = end(DeviceKind::Packet) else { return };
        let woken = || {
            let mut ready = [PollFd::new(device.as_fd(), PollFlags::POLLIN)];
            poll(&mut ready, PollTimeout::ZERO).unwrap();
            ready[0].revents().unwrap()
        };
        assert_eq!(woken(), PollFlags::empty());
        let down_and_up = || {
            setup::take_down(NAME)?;
            setup::bring_up(NAME, libc::IFF_NOARP)
        };
        namespace.inside(down_and_up).unwrap();
        assert_eq!(woken(), PollFlags::POLLERR);
        device.clear_error().unwrap();
        assert_eq!(woken(), PollFlags::empty());
        send_from(&namespace, b"there", 1);
        assert_eq!(woken(), PollFlags::POLLIN);
    }

    #[test]
    fn written_packets_arrive_and_are_not_read_back() {
        for kind in [DeviceKind::Tun, DeviceKind::Packet] {
            let Some((namespace, device)) = end(kind) else { continue };
            an_answer_arrives(&namespace, &device);
        }
    }

    fn an_answer_arrives(namespace: &NetNamespace, device: &Device) {
        let mut buffer = [0; MTU];
        send_from(namespace, b"there", 1);
        let length = device.read(&mut buffer).unwrap().unwrap();
        let (socket, port) = namespace
            .inside(|| {
                let socket = UdpSocket::bind((HERE, 0)).expect("the address is there");
                let port = socket.local_addr().expect("it is bound").port();
                Ok::<_, HostError>((socket, port))
            })
            .unwrap();
        // The reply: swapping the addresses leaves the IP checksum valid; the UDP checksum is set to none.
        let packet = &mut buffer[..length];
        let (source, destination) = packet[12..20].split_at_mut(4);
        source.swap_with_slice(destination);
        packet[22..24].copy_from_slice(&port.to_be_bytes());
        packet[26..28].fill(0);
        assert!(device.write(packet).unwrap());
        assert!(!device.write(&[0; 40]).unwrap());
        let mut heard = [0; 16];
        let (length, from) = socket.recv_from(&mut heard).unwrap();
        assert_eq!((&heard[..length], from.ip()), (&b"there"[..], THERE.0.into()));
        assert_eq!(device.read(&mut buffer).unwrap(), None);
        let expected = DeviceCount { received: 1, sent: 1, send_drops: 0 };
        assert_eq!(device.count().unwrap(), expected);
    }
}
