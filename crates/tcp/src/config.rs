//! Configuration of a connection's ends.

use skyhop_model::{BufferSizes, KeepAlive, MSS, Profile};
use skyhop_units::Duration;

/// Settings that the sending and the receiving half of an end share. The defaults are Linux's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostConfig {
    /// Linux release whose rules the host follows.
    pub profile: Profile,
    /// Payload of a full-size segment, in bytes: 1448 at an MTU of 1500 with timestamps.
    pub mss: u32,
    /// Length of a kernel tick (1/HZ), to whose multiples the kernel rounds timers up. The clock of a
    /// congestion-control module must have the same rate.
    pub jiffy: Duration,
    /// Whether retransmission and delayed-ACK timers have the coarse granularity of the kernel's timer wheel,
    /// late by up to an eighth of the wait (kernel/time/timer.c), rather than fire exactly on time.
    pub timer_wheel: bool,
    /// Whether both ends send the timestamps option (RFC 7323; sysctl tcp_timestamps).
    pub timestamps: bool,
    /// Whether both ends send selective acknowledgements (RFC 2018; sysctl tcp_sack).
    pub sack: bool,
}

impl Default for HostConfig {
    fn default() -> Self {
        Self {
            profile: Profile::default(),
            mss: MSS,
            jiffy: Duration::from_millis(1),
            timer_wheel: true,
            timestamps: true,
            sack: true,
        }
    }
}

/// Settings of the sending half. The defaults are Linux's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SenderConfig {
    /// Settings shared with the receiving half of the same end.
    pub host: HostConfig,
    /// Initial congestion window in segments (RFC 6928 2).
    pub initial_cwnd: u32,
    /// Size of the send buffer, which holds the data written and not acknowledged (sysctl tcp_wmem).
    pub wmem: BufferSizes,
    /// Whether segments leave in bursts of the size of the kernel's TSO packets (`sk_pacing_shift`,
    /// `min_tso_segs`), rather than one by one. A burst waits a little while the window is too small for it.
    /// The kernel builds such packets even where the device cannot split them.
    pub tso: bool,
    /// Whether the congestion window shrinks while the connection idles (RFC 2861; sysctl
    /// tcp_slow_start_after_idle).
    pub slow_start_after_idle: bool,
    /// Whether Nagle's algorithm is off, so that short segments do not wait for ACKs (TCP_NODELAY).
    pub nodelay: bool,
    /// Whether short segments are always held back, for at most 200 ms or one timeout (TCP_CORK).
    pub cork: bool,
    /// Whether the sender gives up after as many retransmissions as Linux (sysctl tcp_retries2 and
    /// tcp_syn_retries); else it retries for ever.
    pub gives_up: bool,
    /// Whether the active end requests ECN (RFC 3168; sysctl tcp_ecn = 1). A congestion control that needs ECN
    /// requests it anyway.
    pub ecn: bool,
    /// Upper bound of the pacing rate in bytes per second (SO_MAX_PACING_RATE).
    pub max_pacing_rate: u64,
}

impl Default for SenderConfig {
    fn default() -> Self {
        Self {
            host: HostConfig::default(),
            initial_cwnd: 10,
            wmem: BufferSizes::WMEM,
            tso: true,
            slow_start_after_idle: true,
            nodelay: false,
            cork: false,
            gives_up: false,
            ecn: false,
            max_pacing_rate: u64::MAX,
        }
    }
}

/// Settings of the receiving half. The defaults are Linux's, apart from a receive buffer that may grow so large
/// that it does not limit the flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceiverConfig {
    /// Settings shared with the sending half of the same end.
    pub host: HostConfig,
    /// Size of the receive buffer, for data that waits for a gap to be filled or for the application (sysctl
    /// tcp_rmem).
    pub rmem: BufferSizes,
    /// Whether the buffer grows from its initial size as the flow needs it (sysctl tcp_moderate_rcvbuf). Off
    /// where the application has set the size (SO_RCVBUF).
    pub auto_tuning: bool,
    /// Whether the application reads data as soon as it is in order; else it calls
    /// [`Receiver::read`](crate::Receiver::read).
    pub reads_at_once: bool,
    /// Whether duplicate ACKs of a burst are merged (sysctl tcp_comp_sack_nr and
    /// tcp_comp_sack_delay_ns).
    pub sack_compression: bool,
    /// Whether ECN is accepted when the other end requests it (sysctl tcp_ecn = 2).
    pub ecn: bool,
}

impl Default for ReceiverConfig {
    fn default() -> Self {
        Self {
            host: HostConfig::default(),
            rmem: BufferSizes::RMEM,
            auto_tuning: true,
            reads_at_once: true,
            sack_compression: true,
            ecn: true,
        }
    }
}

/// Settings of one end of a connection with data both ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EndpointConfig {
    /// Settings of the sending half.
    pub sender: SenderConfig,
    /// Settings of the receiving half.
    pub receiver: ReceiverConfig,
    /// Keepalive settings, if the connection has keepalive (SO_KEEPALIVE).
    pub keepalive: Option<KeepAlive>,
}
