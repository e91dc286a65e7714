//! The congestion control of sockets that choose none.
//!
//! A namespace other than the host's may take only what the host's root has allowed as its default.
//! Where that refuses, routes can carry the choice: they work for every congestion control that the
//! kernel has.

use std::fs;

use crate::error::{Context, HostError};
use crate::rtnetlink::PeerRoute;
use crate::socket::{check_congestion_control, unknown_congestion_control};

const DEFAULT: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

/// Makes `cc` the default of the calling thread's namespace, whose programs have one peer, over `route`.
///
/// Returns what a user must know where only the route could be given the choice.
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
    PeerRoute { cc: Some(cc), ..route }
        .set()
        .context(&format!("cannot add a route with congestion control {cc}"))?;
    Ok(Some(format!(
        "{cc} is not allowed as a namespace's default congestion control ({refused}), so the route \
         carries it, which overrides what a program itself chooses before it connects; to avoid \
         that, root adds {cc} to net.ipv4.tcp_allowed_congestion_control"
    )))
}
