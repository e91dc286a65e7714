//! TCP sockets and what is set on them.

use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{self, AddressFamily, SockFlag, SockType, sockopt};
use skyhop_model::Dscp;

use crate::error::{Context, HostError};

/// How much may wait unsent in the socket; without a limit the buffer fills with 64 MB.
const UNSENT_LOW_WATER: libc::c_int = 256 * 1024;
/// The room for a name in the kernel, with its end (`TCP_CA_NAME_MAX`).
const NAME_MAX: usize = 16;

/// A TCP socket of the calling thread's namespace, neither bound nor connected yet.
pub fn open() -> Result<OwnedFd, HostError> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket::socket(AddressFamily::Inet, SockType::Stream, flags, None)
        .context("cannot open a flow's socket")?;
    set_int(&socket, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, UNSENT_LOW_WATER)
        .context("cannot limit a flow's unsent data")?;
    Ok(socket)
}

/// Has its packets carry a DSCP; those that a listening socket accepts carry it too.
///
/// # Errors
/// The kernel refuses.
pub fn set_dscp(socket: impl AsFd, dscp: Dscp) -> Result<(), HostError> {
    set_int(socket, libc::IPPROTO_IP, libc::IP_TOS, dscp.tos().into())
        .context("cannot set a flow's DSCP")
}

/// Sets an option that is an int.
///
/// # Errors
/// The kernel refuses.
pub fn set_int(
    socket: impl AsFd,
    level: libc::c_int,
    option: libc::c_int,
    value: libc::c_int,
) -> Result<(), Errno> {
    let size = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the kernel reads one int, which lives for the call.
    let set = unsafe {
        libc::setsockopt(socket.as_fd().as_raw_fd(), level, option, (&raw const value).cast(), size)
    };
    Errno::result(set).map(|_| ())
}

/// Chooses a socket's congestion control; those that a listening socket accepts have it too.
pub fn set_congestion_control(socket: &OwnedFd, cc: &str) -> Result<(), HostError> {
    match socket::setsockopt(socket, sockopt::TcpCongestion, &OsString::from(cc)) {
        Err(Errno::ENOENT | Errno::EINVAL) => Err(unknown_congestion_control(cc)),
        set => set.context(&format!("cannot choose the congestion control \"{cc}\"")),
    }
}

/// Whether the calling thread's namespace has this congestion control.
pub fn check_congestion_control(cc: &str) -> Result<(), HostError> {
    // The kernel would cut a longer name, and take what is left of it.
    if cc.is_empty() || cc.len() >= NAME_MAX {
        return Err(unknown_congestion_control(cc));
    }
    set_congestion_control(&open()?, cc)
}

/// The error about a congestion control that there is not; it names those there are.
pub fn unknown_congestion_control(cc: &str) -> HostError {
    let available = skyhop_kernel::offered()
        .map_or_else(|error| format!("an unknown set ({error})"), |names| names.join(", "));
    HostError::UnknownCongestionControl { name: cc.to_owned(), available }
}
