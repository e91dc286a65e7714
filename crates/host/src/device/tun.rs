//! TUN device: packets are read from and written to a descriptor of /dev/net/tun.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSliceMut};
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::errno::Errno;
use nix::sys::uio::readv;

use super::choice::{Failure, Problem};
use super::counters::DeviceCount;
use super::setup::{self, NAME};
use crate::error::{Context, HostError};

/// TUN device of one namespace.
#[derive(Debug)]
pub struct TunDevice {
    file: File,
    /// Packets dropped after reading because they were too long.
    rejected: AtomicU64,
}

impl TunDevice {
    /// Create the only device of the calling thread's namespace, ready for traffic.
    pub fn create(addresses: &[Ipv4Addr]) -> Result<Self, Failure> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open("/dev/net/tun")
            .map_err(|error| unavailable(&error))?;
        let mut request = setup::request(NAME);
        request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
        // SAFETY: TUNSETIFF reads and writes one ifreq, which lives for the call.
        let made = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
        Errno::result(made).map_err(|error| unavailable(&io::Error::from(error)))?;
        setup::configure(addresses, 0)?;
        Ok(Self { file, rejected: AtomicU64::new(0) })
    }

    /// Read one packet; return its length, `None` if there is none.
    pub fn read(&self, buffer: &mut [u8]) -> Result<Option<usize>, HostError> {
        // The kernel truncates longer packets: one byte of extra room detects them.
        let (room, mut beyond) = (buffer.len(), [0]);
        loop {
            let mut parts = [IoSliceMut::new(buffer), IoSliceMut::new(&mut beyond)];
            match readv(&self.file, &mut parts) {
                Ok(length) if length <= room => return Ok(Some(length)),
                Ok(_) => self.rejected.fetch_add(1, Ordering::Relaxed),
                Err(Errno::EAGAIN | Errno::EINTR) => return Ok(None),
                Err(error) => return Err(error).context("cannot read from the TUN device"),
            };
        }
    }

    /// Deliver one packet to the namespace; return false if the device has no room.
    pub fn write(&self, packet: &[u8]) -> Result<bool, HostError> {
        loop {
            match nix::unistd::write(&self.file, packet) {
                Ok(_) => return Ok(true),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN | Errno::ENOBUFS | Errno::ENOMEM) => return Ok(false),
                Err(error) => return Err(error).context("cannot write to the TUN device"),
            }
        }
    }

    /// Counters of the device. In `table`, every packet that was read counts as sent.
    pub fn count(&self, table: DeviceCount) -> DeviceCount {
        let rejected = self.rejected();
        DeviceCount {
            sent: table.sent.saturating_sub(rejected),
            send_drops: table.send_drops + rejected,
            ..table
        }
    }

    /// Number of packets dropped after reading because they were too long.
    pub fn rejected(&self) -> u64 {
        self.rejected.load(Ordering::Relaxed)
    }
}

impl AsFd for TunDevice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn unavailable(error: &io::Error) -> Failure {
    let (what, remedy) = match error.raw_os_error() {
        Some(libc::ENOENT) => (
            "/dev/net/tun does not exist".to_owned(),
            "load the module as root (modprobe tun), or pass the device to the container \
             (--device /dev/net/tun)",
        ),
        Some(libc::ENODEV | libc::ENXIO) => {
            ("/dev/net/tun has no driver".to_owned(), "load the module as root: modprobe tun")
        }
        Some(libc::EACCES | libc::EPERM) => (
            "/dev/net/tun may not be used by this user".to_owned(),
            "run as root: chmod 0666 /dev/net/tun, or run skyhop as root",
        ),
        _ => (
            format!("/dev/net/tun cannot be used ({error})"),
            "check that the tun module is loaded",
        ),
    };
    Failure::Unavailable(Problem { what, remedy: remedy.to_owned() })
}
