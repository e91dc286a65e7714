//! The TUN device of one namespace.

use std::fs::{File, OpenOptions};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use crate::error::{During, LiveError};
use crate::frame::MTU;
use crate::rtnetlink;

/// The device's name in its namespace.
pub(crate) const NAME: &str = "skyhop0";
/// What the device may hold before it drops: far more than the link reads late.
const QUEUE_PACKETS: u32 = 100_000;

/// The TUN device of one namespace: what the namespace sends is read from it.
#[derive(Debug)]
pub(crate) struct TunDevice {
    file: File,
}

impl TunDevice {
    /// Makes the only device of the calling thread's namespace, ready for traffic.
    pub(crate) fn create(address: Ipv4Addr) -> Result<Self, LiveError> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open("/dev/net/tun")
            .map_err(|error| tun_unavailable(&error))?;
        let mut request = request(NAME);
        request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
        // SAFETY: TUNSETIFF reads and writes one ifreq, which lives for the call.
        let made = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
        Errno::result(made).map_err(|error| tun_unavailable(&io::Error::from(error)))?;
        configure(address)?;
        Ok(Self { file })
    }

    /// Reads one packet; `None` when there is none.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> Result<Option<usize>, LiveError> {
        match nix::unistd::read(&self.file, buffer) {
            Ok(length) => Ok(Some(length)),
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(None),
            Err(error) => Err(error).during("cannot read from the TUN device"),
        }
    }

    /// Hands one packet to the namespace; false when the device has no room for it.
    pub(crate) fn write(&self, packet: &[u8]) -> Result<bool, LiveError> {
        loop {
            match nix::unistd::write(&self.file, packet) {
                Ok(_) => return Ok(true),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN | Errno::ENOBUFS | Errno::ENOMEM) => return Ok(false),
                Err(error) => return Err(error).during("cannot write to the TUN device"),
            }
        }
    }
}

impl AsFd for TunDevice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// What the kernel counted at a device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct DeviceCount {
    /// Packets that the namespace got.
    pub(crate) received: u64,
    /// Packets that were taken from the namespace and read.
    pub(crate) sent: u64,
    /// Packets that the namespace sent and the device dropped.
    pub(crate) send_drops: u64,
}

/// The counters of one namespace's device.
#[derive(Debug)]
pub(crate) struct DeviceCounters {
    table: File,
}

impl DeviceCounters {
    /// Those of the calling thread's namespace, readable from any.
    pub(crate) fn open() -> Result<Self, LiveError> {
        let table = File::open("/proc/thread-self/net/dev")
            .during("cannot open /proc/thread-self/net/dev")?;
        Ok(Self { table })
    }

    pub(crate) fn read(&self) -> Result<DeviceCount, LiveError> {
        let mut text = [0; 4096];
        let length =
            self.table.read_at(&mut text, 0).during("cannot read the device's counters")?;
        let text = String::from_utf8_lossy(&text[..length]);
        parse(&text).ok_or_else(|| LiveError::System {
            action: "cannot read the device's counters".to_owned(),
            reason: format!("/proc/net/dev does not list {NAME} as expected"),
        })
    }
}

/// Columns: 8 for receiving (bytes, packets, errs, drop, …), then 8 for sending.
fn parse(table: &str) -> Option<DeviceCount> {
    let line = table.lines().find_map(|line| line.trim().strip_prefix(NAME)?.strip_prefix(':'))?;
    let columns: Vec<u64> =
        line.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
    let (received, sent, send_drops) = (*columns.get(1)?, *columns.get(9)?, *columns.get(11)?);
    Some(DeviceCount { received, sent, send_drops })
}

/// Brings up the loopback and the TUN device.
fn configure(address: Ipv4Addr) -> Result<(), LiveError> {
    let mut up = request("lo");
    up.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short;
    apply(libc::SIOCSIFFLAGS, &mut up, "bring up the loopback device")?;

    let mut mtu = request(NAME);
    mtu.ifr_ifru.ifru_mtu = MTU as libc::c_int;
    apply(libc::SIOCSIFMTU, &mut mtu, "set the TUN device's MTU")?;

    rtnetlink::set_queue_length(NAME, QUEUE_PACKETS).during("cannot set the TUN device's queue")?;

    let mut own = request(NAME);
    own.ifr_ifru.ifru_addr = socket_address(address);
    apply(libc::SIOCSIFADDR, &mut own, "set the TUN device's address")?;
    own.ifr_ifru.ifru_netmask = socket_address(Ipv4Addr::new(255, 255, 255, 252));
    apply(libc::SIOCSIFNETMASK, &mut own, "set the TUN device's netmask")?;

    let mut up = request(NAME);
    up.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short;
    apply(libc::SIOCSIFFLAGS, &mut up, "bring up the TUN device")
}

fn apply(ioctl: libc::Ioctl, request: &mut libc::ifreq, what: &str) -> Result<(), LiveError> {
    let action = format!("cannot {what}");
    let inet = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)
        .during(&action)?;
    // SAFETY: these requests read one ifreq, which lives for the call.
    let done = unsafe { libc::ioctl(inet.as_raw_fd(), ioctl, &raw mut *request) };
    Errno::result(done).during(&action).map(|_| ())
}

fn request(name: &str) -> libc::ifreq {
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

fn tun_unavailable(error: &io::Error) -> LiveError {
    let (problem, way_out) = match error.raw_os_error() {
        Some(libc::ENOENT) => (
            "does not exist".to_owned(),
            "load the module as root (modprobe tun), or pass the device to the container \
             (--device /dev/net/tun)",
        ),
        Some(libc::ENODEV | libc::ENXIO) => {
            ("has no driver".to_owned(), "load the module as root: modprobe tun")
        }
        Some(libc::EACCES | libc::EPERM) => (
            "may not be used by this user".to_owned(),
            "run as root: chmod 0666 /dev/net/tun, or run skyhop as root",
        ),
        _ => (format!("cannot be used ({error})"), "check that the tun module is loaded"),
    };
    LiveError::TunUnavailable { problem, way_out: way_out.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_from_the_devices_own_line() {
        let table = "Inter-|   Receive     |  Transmit\n face |bytes packets errs …\n    \
                     lo:  1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n\
                     skyhop0: 100 20 0 1 0 0 0 0 300 40 0 5 0 0 0 0\n";
        let expected = DeviceCount { received: 20, sent: 40, send_drops: 5 };
        assert_eq!(parse(table), Some(expected));
        assert_eq!(parse("skyhop0: 1 2"), None);
    }
}
