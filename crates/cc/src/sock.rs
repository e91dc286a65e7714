//! The kernel's structs for Rust ([`bindings`](crate::bindings)) with what Linux's helpers do with them.
//!
//! Names, types and meaning are Linux's. Counts are packets, sequence numbers are bytes and wrap, and every field
//! that has a unit carries it in its name or in its comment.

use std::mem;
use std::ops::{Deref, DerefMut};

use skyhop_model::{CongestionState, MSS, PhaseKind};

use crate::bindings::{
    self, InetConnectionSock, MinMaxSample, SK_PACING_NONE, Sock, TCP_INFINITE_SSTHRESH,
    TCP_INIT_CWND, TcpSock,
};

/// What a module does about a handover, and from when to when (`struct skyhop_phase`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phase {
    /// ns on the clock of `tcp_mstamp`.
    pub begin_ns: u64,
    /// ns on the clock of `tcp_mstamp`.
    pub end_ns: u64,
    /// What.
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
    /// The same for Rust; `None` where its kind is of another version.
    pub fn known(self) -> Option<Phase> {
        let kind = *PhaseKind::ALL.get(usize::try_from(self.kind).ok()?)?;
        Some(Phase { begin_ns: self.begin_ns, end_ns: self.end_ns, kind })
    }
}

/// Linux's coarse clock at `tcp_mstamp_us` with `hz` ticks per second.
pub fn jiffies(tcp_mstamp_us: u64, hz: u32) -> u32 {
    // A tick count wraps, as Linux's tcp_jiffies32 does.
    (tcp_mstamp_us * u64::from(hz) / 1_000_000) as u32
}

impl Default for TcpSock {
    /// A new connection as Linux's `tcp_init_sock` leaves it: cwnd 10, no threshold, no bound on pacing.
    fn default() -> TcpSock {
        // SAFETY: it holds whole numbers only, for which all zeros are a value.
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
    /// The innermost struct.
    pub fn sk(&self) -> &Sock {
        &self.inet_conn.icsk_inet.sk
    }

    /// The innermost struct.
    pub fn sk_mut(&mut self) -> &mut Sock {
        &mut self.inet_conn.icsk_inet.sk
    }

    /// `icsk_ca_state`.
    pub fn ca_state(&self) -> CongestionState {
        CongestionState::from_linux(self.inet_conn.icsk_ca_state)
    }

    /// Sets `icsk_ca_state` alone; tell the module with
    /// [`CongestionControl::set_state`](crate::CongestionControl::set_state) first, as Linux does.
    pub fn set_ca_state(&mut self, state: CongestionState) {
        self.inet_conn.icsk_ca_state = state as u8;
    }

    /// `is_cwnd_limited`: the last window was used up.
    pub fn is_cwnd_limited(&self) -> bool {
        self.is_cwnd_limited != 0
    }

    /// Sets `is_cwnd_limited`.
    pub fn set_cwnd_limited(&mut self, limited: bool) {
        self.is_cwnd_limited = limited.into();
    }

    /// `tcp_packets_in_flight`: sent, and believed neither delivered nor lost (RFC 6675's pipe).
    pub fn packets_in_flight(&self) -> u32 {
        self.packets_out - (self.sacked_out + self.lost_out) + self.retrans_out
    }

    /// `tcp_in_slow_start`.
    pub fn in_slow_start(&self) -> bool {
        self.snd_cwnd < self.snd_ssthresh
    }

    /// `tcp_min_rtt`, µs; `u32::MAX`: no sample yet.
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
