//! Configuration of devices by ioctl: addresses, MTU, queue length and offloads.

use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use crate::error::{Context, HostError};
use crate::frame::MTU;
use crate::rtnetlink;

/// Name of an end's device in its namespace.
pub const NAME: &str = "skyhop0";
/// Transmit queue length of the device, in packets: far more than the number that arrive while the link is late to
/// read. The second value is used if the kernel cannot allocate memory for the first.
const QUEUE_PACKETS: [u32; 2] = [100_000, 10_000];

/// Commands of `SIOCETHTOOL` (ethtool.h) that set an offload, with a description of the offload.
///
/// The remaining offloads are those of a TUN device: scatter-gather, and segmentation in software before the device.
const OFFLOADS: [(u32, &str); 6] = [
    (0x1f, "TCP segmentation"),
    (0x17, "transmit checksums"),
    (0x15, "receive checksums"),
    (0x2c, "generic receive offload"),
    (0x22, "UDP fragmentation"),
    (0x26, "large receive offload"),
];

/// Bring up the loopback and the device of the calling thread's namespace, with addresses in /30 networks.
pub(super) fn configure(addresses: &[Ipv4Addr], flags: libc::c_int) -> Result<(), HostError> {
    bring_up("lo", 0)?;

    set_mtu(NAME, MTU)?;

    let [long, short] = QUEUE_PACKETS;
    rtnetlink::set_queue_length(NAME, long)
        .or_else(|errno| match errno {
            Errno::ERANGE | Errno::ENOMEM => rtnetlink::set_queue_length(NAME, short),
            other => Err(other),
        })
        .context("cannot set the device's queue")?;

    for (number, address) in addresses.iter().enumerate() {
        // Each further address needs its own label.
        let label = if number == 0 { NAME.to_owned() } else { format!("{NAME}:{number}") };
        let mut own = request(&label);
        own.ifr_ifru.ifru_addr = socket_address(*address);
        apply(libc::SIOCSIFADDR, &mut own, "set the device's address")?;
        own.ifr_ifru.ifru_netmask = socket_address(Ipv4Addr::new(255, 255, 255, 252));
        apply(libc::SIOCSIFNETMASK, &mut own, "set the device's netmask")?;
    }

    bring_up(NAME, flags)
}

pub(super) fn set_mtu(name: &str, bytes: usize) -> Result<(), HostError> {
    let mut mtu = request(name);
    mtu.ifr_ifru.ifru_mtu = bytes as libc::c_int;
    apply(libc::SIOCSIFMTU, &mut mtu, "set the device's MTU")
}

/// Bring up a device with additional interface flags.
pub(crate) fn bring_up(name: &str, flags: libc::c_int) -> Result<(), HostError> {
    let mut up = request(name);
    up.ifr_ifru.ifru_flags = (libc::IFF_UP | flags) as libc::c_short;
    apply(libc::SIOCSIFFLAGS, &mut up, &format!("bring up the device {name}"))
}

#[cfg(test)]
pub(super) fn take_down(name: &str) -> Result<(), HostError> {
    apply(libc::SIOCSIFFLAGS, &mut request(name), "take the device down")
}

/// Turn off all offloads that would pass packets unlike those on a wire.
pub(super) fn turn_offloads_off(name: &str) -> Result<(), HostError> {
    for (command, what) in OFFLOADS {
        // struct ethtool_value: the command, and 0 for off.
        let mut value = [command, 0];
        let mut request = request(name);
        request.ifr_ifru.ifru_data = value.as_mut_ptr().cast();
        match ioctl(libc::SIOCETHTOOL as libc::Ioctl, &mut request) {
            // The device does not have this offload.
            Ok(()) | Err(Errno::EOPNOTSUPP) => {}
            Err(error) => return Err(error).context(&format!("cannot turn {what} off")),
        }
    }
    Ok(())
}

fn apply(command: libc::Ioctl, request: &mut libc::ifreq, what: &str) -> Result<(), HostError> {
    ioctl(command, request).context(&format!("cannot {what}"))
}

fn ioctl(command: libc::Ioctl, request: &mut libc::ifreq) -> Result<(), Errno> {
    let inet = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    // SAFETY: these commands read one ifreq, which lives for the call as what it points to does.
    let done = unsafe { libc::ioctl(inet.as_raw_fd(), command, &raw mut *request) };
    Errno::result(done).map(|_| ())
}

pub(super) fn request(name: &str) -> libc::ifreq {
    // SAFETY: an ifreq is plain numbers, for which zero is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request
}

fn socket_address(address: Ipv4Addr) -> libc::sockaddr {
    let mut data = [0; 14];
    for (to, from) in data[2..6].iter_mut().zip(address.octets()) {
        *to = from as libc::c_char;
    }
    libc::sockaddr { sa_family: libc::AF_INET as libc::sa_family_t, sa_data: data }
}
