//! What Linux says of a TCP sender.

use skyhop_units::{Bytes, Duration};

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

words! {
    /// Which Linux a host's TCP is. They differ in rules, each named where it stands (crates/tcp/src/rules.rs), and in what
    /// the congestion controls of that time do.
    #[derive(Default)]
    #[repr(u8)]
    Profile ["TCP profile"] {
        /// January 2018.
        Linux4_15 = "linux-4.15",
        /// November 2019.
        Linux5_4 = "linux-5.4",
        /// November 2024.
        Linux6_12 = "linux-6.12",
        /// November 2025.
        #[default]
        Linux6_18 = "linux-6.18",
    }
}

/// How large a socket's buffer is at first, and may become: the second and third number of sysctl tcp_rmem or tcp_wmem.
/// Memory, of which Linux counts what packets take of it, not their payload.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(deny_unknown_fields)]
pub struct BufferSizes {
    /// At first.
    pub initial: Bytes,
    /// At most.
    pub max: Bytes,
}

impl BufferSizes {
    /// What a receiving socket has where nothing is said: Linux's own at first, and at most what does not limit.
    pub const RMEM: Self = Self { initial: Bytes::new(131_072), max: Bytes::new(128 << 20) };
    /// The same of a sending one.
    pub const WMEM: Self = Self { initial: Bytes::new(16_384), max: Bytes::new(128 << 20) };
}
