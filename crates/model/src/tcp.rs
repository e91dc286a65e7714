//! What Linux says of a TCP sender.

use skyhop_units::Duration;

words! {
    /// Linux's congestion state of a TCP sender: `enum tcp_ca_state`.
    #[derive(Default)]
    #[repr(u8)]
    CongestionState ["congestion state"] {
        /// Nothing unusual.
        #[default]
        Open = "open",
        /// Duplicate acknowledgements, nothing known lost.
        Disorder = "disorder",
        /// The window is being reduced without loss.
        Cwr = "cwr",
        /// Fast recovery.
        Recovery = "recovery",
        /// After a retransmission timeout.
        Loss = "loss",
    }
}

impl CongestionState {
    /// The state behind `icsk_ca_state` or `tcpi_ca_state`.
    pub fn from_linux(value: u8) -> Self {
        Self::ALL.get(usize::from(value)).copied().unwrap_or(Self::Loss)
    }
}

/// When an idle connection is probed, and given up. The defaults are Linux's.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(deny_unknown_fields, default)]
pub struct KeepAlive {
    /// How long nothing has come when the first probe leaves (TCP_KEEPIDLE).
    pub time: Duration,
    /// How long later the next one does (TCP_KEEPINTVL).
    pub interval: Duration,
    /// After how many without an answer the connection fails (TCP_KEEPCNT).
    pub probes: u32,
}

impl Default for KeepAlive {
    fn default() -> Self {
        let (time, interval) = (Duration::from_secs(7200), Duration::from_secs(75));
        Self { time, interval, probes: 9 }
    }
}
