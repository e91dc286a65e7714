//! The kernel's structs for Rust ([`bindings`](crate::bindings)), with the corresponding helpers of Linux.
//!
//! Names, types and meaning are Linux's. Counts are in packets, sequence numbers are in bytes and wrap, and
//! every field with a unit states it in its name or in its comment.

use std::mem;
use std::ops::{Deref, DerefMut};

use skyhop_model::{CongestionState, MSS, PhaseKind};

use crate::bindings::{
    self, InetConnectionSock, MinMaxSample, SK_PACING_NONE, Sock, TCP_INFINITE_SSTHRESH,
    TCP_INIT_CWND, TcpSock,
};

/// Action of a module about a handover, with its period (`struct skyhop_phase`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phase {
    /// Start of the phase, in nanoseconds on the clock of `tcp_mstamp`.
    pub begin_ns: u64,
    /// End of the phase, in nanoseconds on the clock of `tcp_mstamp`.
    pub end_ns: u64,
    /// Kind of the action.
    pub kind: PhaseKind,
}

const _: () = {
    assert!(PhaseKind::Hold as u32 == bindings::SKYHOP_HOLD);
    assert!(PhaseKind::Drain as u32 == bindings::SKYHOP_DRAIN);
    assert!(PhaseKind::ProbeRtt as u32 == bindings::SKYHOP_PROBE_RTT);
    assert!(PhaseKind::Fallback as u32 == bindings::SKYHOP_FALLBACK);
    assert!(CongestionState::Open as u32 == bindings::TCP_CA_Open);
    assert!(CongestionState::Disorder as u32 == bindings::TCP_CA_Disorder);
    assert!(CongestionState::Cwr as u32 == bindings::TCP_CA_CWR);
    assert!(CongestionState::Recovery as u32 == bindings::TCP_CA_Recovery);
    assert!(CongestionState::Loss as u32 == bindings::TCP_CA_Loss);
};

impl bindings::Phase {
    /// Convert to the Rust type; `None` if the kind is from another version.
    pub fn to_phase(self) -> Option<Phase> {
        let kind = *PhaseKind::ALL.get(usize::try_from(self.kind).ok()?)?;
        Some(Phase { begin_ns: self.begin_ns, end_ns: self.end_ns, kind })
    }
}

/// Tick count of Linux's coarse clock at `tcp_mstamp_us`, with `hz` ticks per second.
pub fn jiffies(tcp_mstamp_us: u64, hz: u32) -> u32 {
    // The tick count wraps, like Linux's tcp_jiffies32.
    (tcp_mstamp_us * u64::from(hz) / 1_000_000) as u32
}

impl Default for TcpSock {
    /// Socket of a new connection as Linux's `tcp_init_sock` leaves it: cwnd 10, no threshold, no limit on
    /// pacing.
    fn default() -> TcpSock {
        // SAFETY: the struct consists of integers only, for which all zeros are a valid value.
        let mut tp: TcpSock = unsafe { mem::zeroed() };
        *tp.sk_mut() = Sock {
            sk_pacing_rate: u64::MAX,
            sk_max_pacing_rate: u64::MAX,
            sk_pacing_status: SK_PACING_NONE,
            sk_gso_max_size: 65_536,
            sk_sndbuf: 16_384,
            sk_pacing_shift: 10,
        };
        tp.mss_cache = MSS;
        tp.snd_cwnd = TCP_INIT_CWND;
        tp.snd_cwnd_clamp = u32::MAX;
        tp.snd_ssthresh = TCP_INFINITE_SSTHRESH;
        tp.rtt_min.s = [MinMaxSample { t: 0, v: u32::MAX }; 3];
        tp.app_limited = u32::MAX;
        tp.reordering = 3;
        tp
    }
}

impl TcpSock {
    /// Embedded `struct sock`, as `tcp_sock` starts with it.
    pub fn sk(&self) -> &Sock {
        &self.inet_conn.icsk_inet.sk
    }

    /// Embedded `struct sock`, mutable, as `tcp_sock` starts with it.
    pub fn sk_mut(&mut self) -> &mut Sock {
        &mut self.inet_conn.icsk_inet.sk
    }

    /// Congestion state of the connection (`icsk_ca_state`).
    pub fn ca_state(&self) -> CongestionState {
        CongestionState::from_linux(self.inet_conn.icsk_ca_state)
    }

    /// Set `icsk_ca_state` alone; call [`CongestionControl::set_state`](crate::CongestionControl::set_state)
    /// first, as Linux does.
    pub fn set_ca_state(&mut self, state: CongestionState) {
        self.inet_conn.icsk_ca_state = state as u8;
    }

    /// Whether the last window was fully used (`is_cwnd_limited`).
    pub fn is_cwnd_limited(&self) -> bool {
        self.is_cwnd_limited != 0
    }

    /// Set whether the last window was fully used (`is_cwnd_limited`).
    pub fn set_cwnd_limited(&mut self, limited: bool) {
        self.is_cwnd_limited = limited.into();
    }

    /// Packets sent and believed neither delivered nor lost: RFC 6675's pipe (`tcp_packets_in_flight`).
    pub fn packets_in_flight(&self) -> u32 {
        self.packets_out - (self.sacked_out + self.lost_out) + self.retrans_out
    }

    /// Whether the window is below the threshold (`tcp_in_slow_start`).
    pub fn in_slow_start(&self) -> bool {
        self.snd_cwnd < self.snd_ssthresh
    }

    /// Windowed minimum RTT in µs (`tcp_min_rtt`); `u32::MAX` before the first sample.
    pub fn min_rtt_us(&self) -> u32 {
        self.rtt_min.s[0].v
    }
}

impl Deref for TcpSock {
    type Target = InetConnectionSock;

    fn deref(&self) -> &InetConnectionSock {
        &self.inet_conn
    }
}

impl DerefMut for TcpSock {
    fn deref_mut(&mut self) -> &mut InetConnectionSock {
        &mut self.inet_conn
    }
}
