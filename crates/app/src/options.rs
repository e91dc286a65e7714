//! What an application sets on its sockets.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use skyhop_model::KeepAlive;
use skyhop_units::{Bytes, Duration};

/// A receive buffer has room for a few segments (Linux: SOCK_MIN_RCVBUF).
const LEAST_BUFFER: Bytes = Bytes::new(4096);
/// What Linux counts keep-alive times in.
const SECOND: Duration = Duration::from_secs(1);

/// `tcp = { … }` of a flow: both ends' socket options. The defaults are Linux's, but for a receive buffer that does
/// not limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TcpOptions {
    /// Whether congestion may be told by marks (RFC 3168).
    pub ecn: bool,
    /// Whether short segments leave at once (TCP_NODELAY), rather than one per round trip.
    pub nodelay: bool,
    /// Whether short segments wait for more as long as they may (TCP_CORK).
    pub cork: bool,
    /// Probes of an idle connection (SO_KEEPALIVE); none where not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keepalive: Option<KeepAlive>,
    /// How much may wait to be read (SO_RCVBUF); as much as it takes where not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive_buffer: Option<Bytes>,
}

impl TcpOptions {
    /// What cannot be: the key and why.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        if self.receive_buffer.is_some_and(|buffer| buffer < LEAST_BUFFER) {
            return Err(("receive_buffer", format!("must be at least {LEAST_BUFFER}")));
        }
        match self.keepalive {
            Some(keepalive) if keepalive.probes == 0 => {
                Err(("keepalive.probes", "must be at least 1".to_owned()))
            }
            Some(keepalive) if keepalive.time < SECOND || keepalive.interval < SECOND => {
                let key =
                    if keepalive.time < SECOND { "keepalive.time" } else { "keepalive.interval" };
                Err((key, "must be at least 1 s".to_owned()))
            }
            _ => Ok(()),
        }
    }
}
