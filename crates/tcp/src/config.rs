//! What a connection's two ends are set to.

use skyhop_model::{BufferSizes, KeepAlive, MSS, Profile};
use skyhop_units::Duration;

/// What the sending and the receiving half of an end share. The defaults are Linux's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostConfig {
    /// Which Linux it is.
    pub profile: Profile,
    /// Payload of a full segment: 1448 bytes at an MTU of 1500 with timestamps.
    pub mss: u32,
    /// What the kernel counts its timers in and rounds them up to: 1/HZ. A module's own clock has to tick as fast.
    pub jiffy: Duration,
    /// Whether the timers of retransmissions and of delayed ACKs fire when the kernel's timer wheel comes to them, late
    /// by up to an eighth (kernel/time/timer.c), rather than on the dot.
    pub timer_wheel: bool,
    /// Whether both ends send timestamps (RFC 7323; sysctl tcp_timestamps).
    pub timestamps: bool,
    /// Whether both report what came out of order (RFC 2018; sysctl tcp_sack).
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

/// The sending end. The defaults are Linux's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SenderConfig {
    /// What it shares with the other half of its end.
    pub host: HostConfig,
    /// Initial window in segments (RFC 6928 2).
    pub initial_cwnd: u32,
    /// How much may have been written and not acknowledged: sysctl tcp_wmem.
    pub wmem: BufferSizes,
    /// Whether segments leave in bursts sized like the kernel's TSO packets (`sk_pacing_shift`,
    /// `min_tso_segs`), for which it waits a little where the window is short of one, rather than
    /// one by one. The kernel builds such packets even where the device cannot split them.
    pub tso: bool,
    /// Whether the window shrinks again when the connection idles (RFC 2861; sysctl
    /// tcp_slow_start_after_idle).
    pub slow_start_after_idle: bool,
    /// Whether short segments never wait for others to be acknowledged: no Nagle's algorithm (TCP_NODELAY).
    pub nodelay: bool,
    /// Whether short segments wait in any case, for 200 ms or a timeout at most (TCP_CORK).
    pub cork: bool,
    /// Whether it stops trying after as many retransmissions as Linux makes (sysctl tcp_retries2 and tcp_syn_retries);
    /// else it goes on for ever.
    pub gives_up: bool,
    /// Whether to ask for ECN (RFC 3168; sysctl tcp_ecn = 1). A congestion control that needs it asks anyway.
    pub ecn: bool,
    /// No paced flow sends faster (SO_MAX_PACING_RATE), in bytes per second.
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

/// The receiving end. The defaults are Linux's, with a buffer that may grow beyond what limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceiverConfig {
    /// What it shares with the other half of its end.
    pub host: HostConfig,
    /// The buffer for what waits for a gap to be filled or for the application: sysctl tcp_rmem.
    pub rmem: BufferSizes,
    /// Whether the buffer grows from its initial size on as the flow needs it (sysctl tcp_moderate_rcvbuf). It does not
    /// where the application has set its size (SO_RCVBUF).
    pub auto_tuning: bool,
    /// Whether the application takes what is in order the moment that it arrives; else it calls
    /// [`Receiver::read`](crate::Receiver::read).
    pub reads_at_once: bool,
    /// Whether duplicate ACKs of a burst are merged (sysctl tcp_comp_sack_nr and
    /// tcp_comp_sack_delay_ns).
    pub sack_compression: bool,
    /// Whether ECN is spoken where the other end asks for it (sysctl tcp_ecn = 2).
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

/// One end of a connection with data both ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EndpointConfig {
    /// What it sends.
    pub sender: SenderConfig,
    /// What it receives.
    pub receiver: ReceiverConfig,
    /// Whether and how it is kept alive (SO_KEEPALIVE).
    pub keepalive: Option<KeepAlive>,
}
