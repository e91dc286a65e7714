//! The C side: `struct skyhop_module` and what it points to, as `cc/skyhop_cc.h` declares them.

use std::ffi::{c_char, c_int, c_void};

use crate::sock::{AckSample, Handover, Phase, RateSample, TcpSock};

type Query = Option<unsafe extern "C" fn(*mut TcpSock) -> u32>;
type Notice = Option<unsafe extern "C" fn(*mut TcpSock)>;

#[repr(C)]
pub struct Module {
    pub about: *const c_char,
    pub ops: *const Ops,
    pub params: *const Param,
    pub params_len: u64,
    pub state_bytes: u64,
}

#[repr(C)]
pub struct Param {
    pub name: *const c_char,
    pub unit: *const c_char,
    pub about: *const c_char,
    pub scale: u64,
    pub initial: u64,
    pub least: u64,
    pub most: u64,
}

/// `struct tcp_congestion_ops`. A `struct sock *` of C is the start of a [`TcpSock`].
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Ops {
    pub ssthresh: Query,
    pub cong_avoid: Option<unsafe extern "C" fn(*mut TcpSock, u32, u32)>,
    pub set_state: Option<unsafe extern "C" fn(*mut TcpSock, u8)>,
    pub cwnd_event: Option<unsafe extern "C" fn(*mut TcpSock, u32)>,
    pub in_ack_event: Option<unsafe extern "C" fn(*mut TcpSock, u32)>,
    pub pkts_acked: Option<unsafe extern "C" fn(*mut TcpSock, *const AckSample)>,
    pub min_tso_segs: Query,
    pub cong_control: Option<unsafe extern "C" fn(*mut TcpSock, u32, c_int, *const RateSample)>,
    pub undo_cwnd: Query,
    pub sndbuf_expand: Query,
    pub name: [c_char; 16],
    pub flags: u32,
    pub init: Notice,
    pub release: Notice,
}

/// `SKYHOP_MOST_TOLD`.
pub const MOST_TOLD: usize = 4;

/// `struct skyhop_host`.
#[repr(C)]
pub struct Host {
    pub state: *mut c_void,
    pub params: *const u64,
    pub random: u64,
    pub handover: Handover,
    pub told: [Phase; MOST_TOLD],
    pub told_len: u32,
    pub hz: u32,
}
