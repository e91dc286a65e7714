//! Default congestion control of a namespace, for sockets that choose none.
//!
//! A namespace other than the host's accepts only defaults that the host's root user has allowed. If the kernel
//! refuses the default, a route with the congestion control as its metric is set instead, for which the kernel
//! accepts every congestion control.

use std::fs;

use tracing::info;

use crate::error::{Context, HostError};
use crate::rtnetlink::PeerRoute;
use crate::socket::{check_congestion_control, unknown_congestion_control};

const DEFAULT: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

/// Make `cc` the default congestion control of the calling thread's namespace. Its programs have
/// one peer, which `route` leads to.
///
/// Returns a warning if only the route could be set, because the route overrides the choice of
/// programs that set a congestion control themselves.
pub fn set(cc: &str, route: PeerRoute<'_>) -> Result<Option<String>, HostError> {
    check_congestion_control(cc)?;
    let current = fs::read_to_string(DEFAULT).context(&format!("cannot read {DEFAULT}"))?;
    if current.trim() == cc {
        return Ok(None);
    }
    let refused = match fs::write(DEFAULT, cc) {
        Ok(()) => return Ok(None),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {
            return Err(unknown_congestion_control(cc));
        }
        Err(error) => error,
    };
    info!(cc, %refused, "default congestion control refused; the route sets it");
    PeerRoute { cc: Some(cc), ..route }
        .set()
        .context(&format!("cannot add a route with congestion control {cc}"))?;
    Ok(Some(format!(
        "programs use {cc} even if they choose another congestion control before they connect, because this machine \
         does not allow it as a default; to allow it, run as root: sysctl -w \
         net.ipv4.tcp_allowed_congestion_control=\"$(sysctl -n net.ipv4.tcp_allowed_congestion_control) {cc}\""
    )))
}
