//! What an application sets on its sockets.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use skyhop_units::{Bytes, Duration};

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

/// When an idle connection is probed, and given up. The defaults are Linux's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct KeepAlive {
    /// After being idle for so long (TCP_KEEPIDLE).
    pub time: Duration,
    /// The time between probes that are not answered (TCP_KEEPINTVL).
    pub interval: Duration,
    /// How many of them there are (TCP_KEEPCNT).
    pub probes: u32,
}

impl Default for KeepAlive {
    fn default() -> Self {
        let (time, interval) = (Duration::from_secs(7200), Duration::from_secs(75));
        Self { time, interval, probes: 9 }
    }
}
