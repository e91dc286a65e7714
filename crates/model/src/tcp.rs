//! TCP states, profiles and socket settings of Linux.

use skyhop_units::{Bytes, Duration};

words! {
    /// Congestion state of a TCP sender in Linux: `enum tcp_ca_state`.
    #[derive(Default)]
    #[repr(u8)]
    CongestionState ["congestion state"] {
        /// Normal operation, no loss or duplicate acknowledgement.
        #[default]
        Open = "open",
        /// Duplicate acknowledgements have arrived; no segment is known lost.
        Disorder = "disorder",
        /// Congestion window reduced: the window is being reduced without loss.
        Cwr = "cwr",
        /// Fast recovery after a loss.
        Recovery = "recovery",
        /// Recovery after a retransmission timeout.
        Loss = "loss",
    }
}

impl CongestionState {
    /// State of a value of `icsk_ca_state` or `tcpi_ca_state`; unknown values give `Loss`.
    pub fn from_linux(value: u8) -> Self {
        Self::ALL.get(usize::from(value)).copied().unwrap_or(Self::Loss)
    }
}

/// Keepalive settings of a connection. The defaults are Linux's.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(deny_unknown_fields, default)]
pub struct KeepAlive {
    /// Idle time before the first probe (TCP_KEEPIDLE).
    pub time: Duration,
    /// Time between probes (TCP_KEEPINTVL).
    pub interval: Duration,
    /// Number of unanswered probes after which the connection fails (TCP_KEEPCNT).
    pub probes: u32,
}

impl Default for KeepAlive {
    fn default() -> Self {
        let (time, interval) = (Duration::from_secs(7200), Duration::from_secs(75));
        Self { time, interval, probes: 9 }
    }
}

words! {
    /// Release of Linux whose TCP a host has. Profiles differ in rules, each documented in crates/tcp/src/rules.rs,
    /// and in the congestion controls of that release.
    #[derive(Default)]
    #[repr(u8)]
    Profile ["TCP profile"] {
        /// Linux 4.15, January 2018.
        Linux4_15 = "linux-4.15",
        /// Linux 5.4, November 2019.
        Linux5_4 = "linux-5.4",
        /// Linux 6.12, November 2024.
        Linux6_12 = "linux-6.12",
        /// Linux 6.18, November 2025.
        #[default]
        Linux6_18 = "linux-6.18",
    }
}

impl Profile {
    /// One-line description of the differences to the next newer profile.
    pub const fn summary(self) -> &'static str {
        match self {
            Self::Linux4_15 => {
                "as linux-5.4; receive buffers grow in steps from 87380 B, duplicate ACKs are not merged, BBR has no allowance \
                 for aggregated ACKs"
            }
            Self::Linux5_4 => {
                "as linux-6.12; half of a buffer is window, pushed segments wait for a second one, the window grows in \
                 recovery only as retransmissions arrive, timers wait two ticks longer, SYNs back off from the first on, HyStart takes 8 RTT samples per round"
            }
            Self::Linux6_12 => {
                "as linux-6.18; receive buffers grow faster, and bursts wait for an ACK due within half an RTT"
            }
            Self::Linux6_18 => {
                "the latest: receive buffers as tight as the flow needs, bursts wait 1 ms at most"
            }
        }
    }
}

/// Initial and largest size of a socket's buffer: second and third number of sysctl tcp_rmem or tcp_wmem. They limit
/// memory, as Linux accounts it for packets, not payload.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(deny_unknown_fields)]
#[schemars(transform = in_parts)]
pub struct BufferSizes {
    /// Initial size of the buffer.
    pub initial: Bytes,
    /// Largest size that the buffer may grow to.
    pub max: Bytes,
}

/// Schema transform: a table of sizes may give only one of the two keys.
fn in_parts(schema: &mut schemars::Schema) {
    schema.remove("required");
}

impl BufferSizes {
    /// Default of sending sockets: Linux's initial size, and a largest size that does not limit.
    pub const WMEM: Self = Self { initial: Bytes::new(16_384), max: Bytes::new(128 << 20) };
    /// Default of receiving sockets: Linux's initial size, and a largest size that does not limit.
    pub const RMEM: Self = Self { initial: Bytes::new(131_072), max: Bytes::new(128 << 20) };

    /// Default of receiving sockets in the given profile.
    pub fn rmem(profile: Profile) -> Self {
        match profile {
            // net/ipv4/tcp.c, `tcp_init`; 128 KiB since 4.20 (a337531b942b).
            Profile::Linux4_15 => Self { initial: Bytes::new(87_380), ..Self::RMEM },
            _ => Self::RMEM,
        }
    }
}

/// Keys of [`BufferSizes`] in a file, each optional.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    serde::Serialize,
    serde::Deserialize,
    schemars::JsonSchema,
)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub struct BufferKeys {
    /// Initial size of the buffer.
    pub initial: Option<Bytes>,
    /// Largest size that the buffer may grow to.
    pub max: Option<Bytes>,
}

impl BufferKeys {
    /// Return the keys of `self`, completed by the keys that only `others` gives.
    pub fn or(self, others: Self) -> Self {
        Self { initial: self.initial.or(others.initial), max: self.max.or(others.max) }
    }

    /// Return the sizes; a key that is not given gets its size from `others`.
    pub fn values(self, others: BufferSizes) -> BufferSizes {
        let BufferSizes { initial, max } = others;
        BufferSizes { initial: self.initial.unwrap_or(initial), max: self.max.unwrap_or(max) }
    }
}

impl From<BufferSizes> for BufferKeys {
    fn from(BufferSizes { initial, max }: BufferSizes) -> Self {
        Self { initial: Some(initial), max: Some(max) }
    }
}
