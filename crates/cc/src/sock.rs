//! The kernel's structs as `cc/skyhop_cc.h` declares them for the host: same fields, same order, same
//! layout (a test compares every offset with the C compiler's). Names, types and meaning are Linux's.
//!
//! Counts are packets, sequence numbers are bytes and wrap, and every field that has a unit carries
//! it in its name or in its comment.

use std::ops::{Deref, DerefMut};

use skyhop_model::{CongestionState, MSS, PhaseKind};

/// A windowed minimum or maximum: the three best samples.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MinMax {
    /// The best sample first.
    pub s: [MinMaxSample; 3],
}

/// One sample of a [`MinMax`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MinMaxSample {
    /// When it was taken, in the unit of its user.
    pub t: u32,
    /// Its value.
    pub v: u32,
}

/// `struct sock`: what every socket has.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sock {
    /// How fast pacing sends, bytes per second; `u64::MAX`: not limited.
    pub sk_pacing_rate: u64,
    /// The most that `sk_pacing_rate` may be, bytes per second; `u64::MAX`: no bound.
    pub sk_max_pacing_rate: u64,
    /// Who paces: [`SK_PACING_NONE`], [`SK_PACING_NEEDED`] or [`SK_PACING_FQ`].
    pub sk_pacing_status: u32,
    /// The most bytes that one burst may hold.
    pub sk_gso_max_size: u32,
    /// Send buffer, bytes.
    pub sk_sndbuf: i32,
    /// A burst is about `sk_pacing_rate >> sk_pacing_shift` bytes.
    pub sk_pacing_shift: u8,
}

/// `struct inet_sock`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InetSock {
    /// The socket.
    pub sk: Sock,
}

/// `struct inet_connection_sock`: what every connection has.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InetConnectionSock {
    /// The socket.
    pub icsk_inet: InetSock,
    /// Retransmission timeout, jiffies.
    pub icsk_rto: u32,
    /// The C bit fields, lowest bit first: `icsk_ca_state` 5, `icsk_ca_initialized` 1,
    /// `icsk_ca_setsockopt` 1, `icsk_ca_dst_locked` 1. See [`TcpSock::ca_state`].
    icsk_ca_bits: u8,
    /// Timeouts in a row without progress.
    pub icsk_retransmits: u8,
    /// Doublings of the timeout.
    pub icsk_backoff: u8,
    /// An [`Instance`](crate::Instance) passes its own address here during a call; else 0.
    pub(crate) icsk_ca_priv: [u64; 13],
}

/// `struct tcp_sock`. The fields of [`Sock`] and [`InetConnectionSock`] are reached through `inet_conn`,
/// those of [`InetConnectionSock`] also directly (`Deref`), those of [`Sock`] through [`TcpSock::sk`].
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpSock {
    /// The connection.
    pub inet_conn: InetConnectionSock,
    /// The clock, ns, as last looked at.
    pub tcp_clock_cache: u64,
    /// The clock, µs, as last looked at: the modules' "now". To be set before every call of a hook.
    pub tcp_mstamp: u64,
    /// When pacing lets the next packet leave, ns.
    pub tcp_wstamp_ns: u64,
    /// When `delivered` last grew, µs.
    pub delivered_mstamp: u64,
    /// Start of the window of the current rate sample, µs.
    pub first_tx_mstamp: u64,
    /// Bytes cumulatively acknowledged.
    pub bytes_acked: u64,
    /// Bytes sent, retransmissions included.
    pub bytes_sent: u64,
    /// First sequence number not acknowledged.
    pub snd_una: u32,
    /// Next sequence number to be sent.
    pub snd_nxt: u32,
    /// End of what the application has written.
    pub write_seq: u32,
    /// `snd_nxt` when recovery began.
    pub high_seq: u32,
    /// Bytes of payload per packet.
    pub mss_cache: u32,
    /// The peer's window, bytes.
    pub snd_wnd: u32,
    /// Congestion window.
    pub snd_cwnd: u32,
    /// Acknowledged since `snd_cwnd` last grew by one.
    pub snd_cwnd_cnt: u32,
    /// The most that `snd_cwnd` may be.
    pub snd_cwnd_clamp: u32,
    /// When `snd_cwnd` was last touched, jiffies.
    pub snd_cwnd_stamp: u32,
    /// Slow start threshold; [`TCP_INFINITE_SSTHRESH`] at the start.
    pub snd_ssthresh: u32,
    /// `snd_cwnd` just before the last reduction.
    pub prior_cwnd: u32,
    /// `snd_ssthresh` just before the last reduction.
    pub prior_ssthresh: u32,
    /// Smoothed RTT, µs times 8; 0: no sample yet.
    pub srtt_us: u32,
    /// Mean deviation, µs times 4.
    pub mdev_us: u32,
    /// Largest mean deviation of this round, µs times 4.
    pub mdev_max_us: u32,
    /// Smoothed `mdev_max_us`, µs times 4.
    pub rttvar_us: u32,
    /// Windowed minimum of the RTT, µs.
    pub rtt_min: MinMax,
    /// Sent and not cumulatively acknowledged.
    pub packets_out: u32,
    /// Retransmitted and still out.
    pub retrans_out: u32,
    /// Selectively acknowledged.
    pub sacked_out: u32,
    /// Believed lost.
    pub lost_out: u32,
    /// The most that `packets_out` was in the last window.
    pub max_packets_out: u32,
    /// End of the window that `max_packets_out` is about.
    pub cwnd_usage_seq: u32,
    /// Delivered in all, each packet once.
    pub delivered: u32,
    /// Delivered with an ECN mark.
    pub delivered_ce: u32,
    /// Marked lost in all.
    pub lost: u32,
    /// `delivered` at which the application-limited phase ends; 0: not limited.
    pub app_limited: u32,
    /// Packets of the last delivery rate sample.
    pub rate_delivered: u32,
    /// Interval of the last delivery rate sample, µs.
    pub rate_interval_us: u32,
    /// Retransmissions in all.
    pub total_retrans: u32,
    /// Reordering degree.
    pub reordering: u32,
    /// `snd_una` when the reduction that may be undone began; 0: none.
    pub undo_marker: u32,
    /// Retransmissions that may yet prove needless; negative: undo is impossible.
    pub undo_retrans: i32,
    /// When data was last sent, jiffies (see [`jiffies`]).
    pub lsndtime: u32,
    /// The C bit field `is_cwnd_limited` in its lowest bit. See [`TcpSock::is_cwnd_limited`].
    pub tcp_bits: u8,
}

/// `struct ack_sample`: what one ACK says about its round trip.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AckSample {
    /// Packets acknowledged.
    pub pkts_acked: u32,
    /// µs; negative: unknown.
    pub rtt_us: i32,
    /// Packets in flight when the acknowledged one was sent.
    pub in_flight: u32,
}

/// `struct rate_sample`: what one ACK says about the delivery rate
/// (draft-cheng-iccrg-delivery-rate-estimation).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateSample {
    /// Start of the interval, µs.
    pub prior_mstamp: u64,
    /// `delivered` at the start.
    pub prior_delivered: u32,
    /// `delivered_ce` at the start.
    pub prior_delivered_ce: u32,
    /// Packets delivered over the interval; negative: invalid.
    pub delivered: i32,
    /// Of those, with an ECN mark.
    pub delivered_ce: i32,
    /// µs; negative: invalid.
    pub interval_us: i64,
    /// The sender's part of the interval, µs.
    pub snd_interval_us: u32,
    /// The receiver's part of the interval, µs.
    pub rcv_interval_us: u32,
    /// RTT of the last packet (S)ACKed, µs; negative: unknown.
    pub rtt_us: i64,
    /// Packets marked lost on this ACK.
    pub losses: i32,
    /// Packets newly (S)ACKed on this ACK.
    pub acked_sacked: u32,
    /// Packets in flight before this ACK.
    pub prior_in_flight: u32,
    /// End of the last packet (S)ACKed.
    pub last_end_seq: u32,
    /// The interval was application-limited.
    pub is_app_limited: bool,
    /// The packet was a retransmission.
    pub is_retrans: bool,
    /// The ACK was probably delayed.
    pub is_ack_delayed: bool,
}

/// `enum tcp_ca_event`.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaEvent {
    /// First packet sent when none is in flight.
    TxStart = 0,
    /// The window restarts after idle.
    CwndRestart = 1,
    /// A CWR or Recovery episode ended.
    CompleteCwr = 2,
    /// A timeout.
    Loss = 3,
    /// Received without an ECN mark.
    EcnNoCe = 4,
    /// Received with an ECN mark.
    EcnIsCe = 5,
}

/// A handover that has been announced (`struct skyhop_handover`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handover {
    /// When, ns on the clock of `tcp_mstamp`.
    pub at_ns: u64,
    /// How long the link is expected to be down, ns.
    pub outage_ns: u64,
    /// How wrong `at_ns` may be, either way, ns.
    pub error_ns: u64,
    /// 0: a terminal changes its satellite; 1: the route changes between the ends; 2: unknown.
    pub kind: u32,
    /// 0: nothing is announced.
    pub valid: u32,
}

/// What a module does about a handover, and from when to when (`struct skyhop_phase`).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phase {
    /// ns on the clock of `tcp_mstamp`.
    pub begin_ns: u64,
    /// ns on the clock of `tcp_mstamp`.
    pub end_ns: u64,
    /// What.
    pub kind: PhaseKind,
}

/// Nobody paces.
pub const SK_PACING_NONE: u32 = 0;
/// TCP itself has to pace.
pub const SK_PACING_NEEDED: u32 = 1;
/// The qdisc paces.
pub const SK_PACING_FQ: u32 = 2;
/// `snd_ssthresh` before the first loss.
pub const TCP_INFINITE_SSTHRESH: u32 = 0x7fff_ffff;
/// Initial congestion window, packets (RFC 6928).
pub const TCP_INIT_CWND: u32 = 10;

/// Linux's coarse clock at `tcp_mstamp_us` with `hz` ticks per second.
pub fn jiffies(tcp_mstamp_us: u64, hz: u32) -> u32 {
    // A tick count wraps, as Linux's tcp_jiffies32 does.
    (tcp_mstamp_us * u64::from(hz) / 1_000_000) as u32
}

impl Default for TcpSock {
    /// A new connection as Linux's `tcp_init_sock` leaves it: cwnd 10, no threshold, no bound on pacing.
    fn default() -> TcpSock {
        let sk = Sock {
            sk_pacing_rate: u64::MAX,
            sk_max_pacing_rate: u64::MAX,
            sk_pacing_status: SK_PACING_NONE,
            sk_gso_max_size: 65_536,
            sk_sndbuf: 16_384,
            sk_pacing_shift: 10,
        };
        let inet_conn = InetConnectionSock {
            icsk_inet: InetSock { sk },
            icsk_rto: 0,
            icsk_ca_bits: 0,
            icsk_retransmits: 0,
            icsk_backoff: 0,
            icsk_ca_priv: [0; 13],
        };
        TcpSock {
            inet_conn,
            tcp_clock_cache: 0,
            tcp_mstamp: 0,
            tcp_wstamp_ns: 0,
            delivered_mstamp: 0,
            first_tx_mstamp: 0,
            bytes_acked: 0,
            bytes_sent: 0,
            snd_una: 0,
            snd_nxt: 0,
            write_seq: 0,
            high_seq: 0,
            mss_cache: MSS,
            snd_wnd: 0,
            snd_cwnd: TCP_INIT_CWND,
            snd_cwnd_cnt: 0,
            snd_cwnd_clamp: u32::MAX,
            snd_cwnd_stamp: 0,
            snd_ssthresh: TCP_INFINITE_SSTHRESH,
            prior_cwnd: 0,
            prior_ssthresh: 0,
            srtt_us: 0,
            mdev_us: 0,
            mdev_max_us: 0,
            rttvar_us: 0,
            rtt_min: MinMax { s: [MinMaxSample { t: 0, v: u32::MAX }; 3] },
            packets_out: 0,
            retrans_out: 0,
            sacked_out: 0,
            lost_out: 0,
            max_packets_out: 0,
            cwnd_usage_seq: 0,
            delivered: 0,
            delivered_ce: 0,
            lost: 0,
            app_limited: u32::MAX,
            rate_delivered: 0,
            rate_interval_us: 0,
            total_retrans: 0,
            reordering: 3,
            undo_marker: 0,
            undo_retrans: 0,
            lsndtime: 0,
            tcp_bits: 0,
        }
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
        CongestionState::from_linux(self.inet_conn.icsk_ca_bits & 0x1f)
    }

    /// Sets `icsk_ca_state` alone; tell the module with [`Instance::set_state`](crate::Instance::set_state)
    /// first, as Linux does.
    pub fn set_ca_state(&mut self, state: CongestionState) {
        self.inet_conn.icsk_ca_bits = (self.inet_conn.icsk_ca_bits & !0x1f) | state as u8;
    }

    /// `is_cwnd_limited`: the last window was used up.
    pub fn is_cwnd_limited(&self) -> bool {
        self.tcp_bits & 1 == 1
    }

    /// Sets `is_cwnd_limited`.
    pub fn set_cwnd_limited(&mut self, limited: bool) {
        self.tcp_bits = (self.tcp_bits & !1) | u8::from(limited);
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

#[cfg(test)]
#[path = "layout.rs"]
mod layout;
