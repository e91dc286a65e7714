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

impl Profile {
    /// How it differs from those after it, in one line.
    pub const fn summary(self) -> &'static str {
        match self {
            Self::Linux4_15 => {
                "as linux-5.4; receive buffers grow in steps from 87380 B, duplicate ACKs are not merged, BBR allows nothing \
                 for aggregated ones"
            }
            Self::Linux5_4 => {
                "as linux-6.12; half of a buffer is window, pushed segments wait for a second one, the window grows in \
                 recovery only as retransmissions arrive, timers wait two ticks longer, SYNs back off from the first on, HyStart looks at 8 RTTs of a round"
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

/// How large a socket's buffer is at first, and may become: the second and third number of sysctl tcp_rmem or tcp_wmem.
/// Memory, of which Linux counts what packets take of it, not their payload.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(deny_unknown_fields)]
#[schemars(transform = in_parts)]
pub struct BufferSizes {
    /// At first.
    pub initial: Bytes,
    /// At most.
    pub max: Bytes,
}

/// A table of sizes may hold one of them alone.
fn in_parts(schema: &mut schemars::Schema) {
    schema.remove("required");
}

impl BufferSizes {
    /// What a sending socket has where nothing is said: Linux's own at first, and at most what does not limit.
    pub const WMEM: Self = Self { initial: Bytes::new(16_384), max: Bytes::new(128 << 20) };
    /// The same of a receiving one.
    pub const RMEM: Self = Self { initial: Bytes::new(131_072), max: Bytes::new(128 << 20) };

    /// The same under this Linux.
    pub fn rmem(profile: Profile) -> Self {
        match profile {
            // net/ipv4/tcp.c, `tcp_init`; 128 KiB since 4.20 (a337531b942b).
            Profile::Linux4_15 => Self { initial: Bytes::new(87_380), ..Self::RMEM },
            _ => Self::RMEM,
        }
    }
}

/// What a file gives of [`BufferSizes`].
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
#[serde(deny_unknown_fields)]
pub struct BufferKeys {
    /// At first.
    pub initial: Option<Bytes>,
    /// At most.
    pub max: Option<Bytes>,
}

impl BufferKeys {
    /// These, and those of `others` that are not among them.
    pub fn or(self, others: Self) -> Self {
        Self { initial: self.initial.or(others.initial), max: self.max.or(others.max) }
    }

    /// What they stand for beside `others`.
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
