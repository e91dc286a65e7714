//! TCP sockets and their options.

use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{self, AddressFamily, SockFlag, SockType, sockopt};
use skyhop_model::Dscp;

use crate::error::{Context, HostError};

/// TCP_NOTSENT_LOWAT: limit of unsent bytes in the socket's send buffer, which could otherwise fill with 64 MB.
const UNSENT_LOW_WATER: libc::c_int = 256 * 1024;
/// Size of a congestion control's name in the kernel, with its zero byte (`TCP_CA_NAME_MAX`).
const NAME_MAX: usize = 16;

/// Open a non-blocking TCP socket in the calling thread's namespace, neither bound nor connected.
pub fn open() -> Result<OwnedFd, HostError> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket::socket(AddressFamily::Inet, SockType::Stream, flags, None)
        .context("cannot open a flow's socket")?;
    set_int(&socket, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, UNSENT_LOW_WATER)
        .context("cannot limit a flow's unsent data")?;
    Ok(socket)
}

/// Set the DSCP of a socket's packets; accepted sockets inherit it from the listening one.
///
/// # Errors
/// The kernel refuses the option.
pub fn set_dscp(socket: impl AsFd, dscp: Dscp) -> Result<(), HostError> {
    set_int(socket, libc::IPPROTO_IP, libc::IP_TOS, dscp.tos().into())
        .context("cannot set a flow's DSCP")
}

/// Set a socket option of type int.
///
/// # Errors
/// The kernel refuses the option.
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

/// Set a socket's congestion control; accepted sockets inherit it from the listening one.
pub fn set_congestion_control(socket: &OwnedFd, cc: &str) -> Result<(), HostError> {
    match socket::setsockopt(socket, sockopt::TcpCongestion, &OsString::from(cc)) {
        Err(Errno::ENOENT | Errno::EINVAL) => Err(unknown_congestion_control(cc)),
        set => set.context(&format!("cannot choose the congestion control \"{cc}\"")),
    }
}

/// Check that the calling thread's namespace offers this congestion control.
pub fn check_congestion_control(cc: &str) -> Result<(), HostError> {
    // The kernel would truncate a longer name and accept the truncated one.
    if cc.is_empty() || cc.len() >= NAME_MAX {
        return Err(unknown_congestion_control(cc));
    }
    set_congestion_control(&open()?, cc)
}

/// Error about an unknown congestion control, with the available ones.
pub fn unknown_congestion_control(cc: &str) -> HostError {
    let available = skyhop_kernel::offered()
        .map_or_else(|error| format!("an unknown set ({error})"), |names| names.join(", "));
    HostError::UnknownCongestionControl { name: cc.to_owned(), available }
}
