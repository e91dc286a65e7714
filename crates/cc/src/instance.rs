use skyhop_model::{CongestionState, PhaseKind};
use std::ffi::c_int;
use std::fmt;

use crate::error::CcError;
use crate::ffi;
use crate::module::Module;
use crate::sock::{AckSample, CaEvent, Handover, Phase, RateSample, TcpSock};

/// The congestion control of one connection. Instances share nothing, and nothing but their arguments
/// (time included: [`TcpSock::tcp_mstamp`]) and their seed tells them what to do.
///
/// The hooks are called when Linux calls them, each with the connection as it is at that moment. A hook
/// that the algorithm leaves out does nothing, or says `None`.
pub struct Instance {
    module: &'static Module,
    ops: ffi::Ops,
    params: Vec<u64>,
    /// The algorithm's own struct; u64 for its alignment.
    state: Vec<u64>,
    host: Box<ffi::Host>,
    /// What the algorithm told of and nobody has asked for yet.
    phases: Vec<Phase>,
}

// SAFETY: the pointers in `host` are set from `params` and `state` before every call and not used between.
unsafe impl Send for Instance {}

impl Instance {
    /// A connection's algorithm with its parameters: name and text, as in the scenario. What is not named
    /// has its default. The clock ticks 1000 times a second, the seed is 0, no handover is announced.
    ///
    /// # Errors
    /// [`CcError::UnknownParam`], [`CcError::BadValue`], [`CcError::Twice`], or [`CcError::MissingHook`] where
    /// the algorithm itself is not whole.
    pub fn new(module: &'static Module, params: &[(&str, &str)]) -> Result<Instance, CcError> {
        let ops = whole_ops(module)?;
        let params = module.values(params)?;
        let state = vec![0; module.state_bytes().div_ceil(size_of::<u64>())];
        let host = Box::new(ffi::Host {
            state: std::ptr::null_mut(),
            params: std::ptr::null(),
            random: 0,
            handover: Handover::default(),
            told: [Phase { begin_ns: 0, end_ns: 0, kind: PhaseKind::Hold }; ffi::MOST_TOLD],
            told_len: 0,
            hz: 1000,
        });
        Ok(Instance { module, ops, params, state, host, phases: Vec::new() })
    }

    /// Ticks per second of Linux's coarse clock (CONFIG_HZ: 100, 250 or 1000).
    pub fn with_hz(mut self, hz: u32) -> Instance {
        self.host.hz = hz;
        self
    }

    /// Where the algorithm's random choices start from.
    pub fn with_seed(mut self, seed: u64) -> Instance {
        self.host.random = seed;
        self
    }

    /// The algorithm.
    pub fn module(&self) -> &'static Module {
        self.module
    }

    /// Ticks per second of the coarse clock.
    pub fn hz(&self) -> u32 {
        self.host.hz
    }

    /// The handover that the algorithm may read, until the next call of this.
    pub fn announce(&mut self, handover: Handover) {
        self.host.handover = handover;
    }

    /// The holds and drains that the algorithm told of since the last call of this, in their order.
    pub fn take_phases(&mut self) -> Vec<Phase> {
        std::mem::take(&mut self.phases)
    }

    /// Whether the algorithm sets cwnd and pacing itself ([`Instance::cong_control`]); else Linux's PRR and
    /// [`Instance::cong_avoid`] set cwnd.
    pub fn has_cong_control(&self) -> bool {
        self.ops.cong_control.is_some()
    }

    /// `init`: before the first packet of data.
    pub fn init(&mut self, tp: &mut TcpSock) {
        if let Some(hook) = self.ops.init {
            // SAFETY: see `call`.
            self.call(tp, |sk| unsafe { hook(sk) });
        }
    }

    /// `release`: the connection ends.
    pub fn release(&mut self, tp: &mut TcpSock) {
        if let Some(hook) = self.ops.release {
            // SAFETY: see `call`.
            self.call(tp, |sk| unsafe { hook(sk) });
        }
    }

    /// `ssthresh`: the slow start threshold after a loss, packets.
    pub fn ssthresh(&mut self, tp: &mut TcpSock) -> u32 {
        let hook = self.ops.ssthresh;
        // SAFETY: see `call`. `new` has checked that the hook is there.
        self.call(tp, |sk| hook.map_or(2, |hook| unsafe { hook(sk) }))
    }

    /// `cong_avoid`: `acked` packets were acknowledged, up to sequence number `ack`; sets cwnd.
    pub fn cong_avoid(&mut self, tp: &mut TcpSock, ack: u32, acked: u32) {
        if let Some(hook) = self.ops.cong_avoid {
            // SAFETY: see `call`.
            self.call(tp, |sk| unsafe { hook(sk, ack, acked) });
        }
    }

    /// `cong_control`: an ACK has been worked through; sets cwnd and pacing. `flag` is Linux's FLAG_ set.
    pub fn cong_control(&mut self, tp: &mut TcpSock, ack: u32, flag: c_int, rs: &RateSample) {
        if let Some(hook) = self.ops.cong_control {
            // SAFETY: see `call`; `rs` outlives the call.
            self.call(tp, |sk| unsafe { hook(sk, ack, flag, rs) });
        }
    }

    /// `set_state`: the congestion state is about to become `state`.
    pub fn set_state(&mut self, tp: &mut TcpSock, state: CongestionState) {
        if let Some(hook) = self.ops.set_state {
            // SAFETY: see `call`.
            self.call(tp, |sk| unsafe { hook(sk, state as u8) });
        }
    }

    /// `cwnd_event`.
    pub fn cwnd_event(&mut self, tp: &mut TcpSock, event: CaEvent) {
        if let Some(hook) = self.ops.cwnd_event {
            // SAFETY: see `call`.
            self.call(tp, |sk| unsafe { hook(sk, event as u32) });
        }
    }

    /// `in_ack_event`: an ACK arrives; `flags` are Linux's CA_ACK_ set.
    pub fn in_ack_event(&mut self, tp: &mut TcpSock, flags: u32) {
        if let Some(hook) = self.ops.in_ack_event {
            // SAFETY: see `call`.
            self.call(tp, |sk| unsafe { hook(sk, flags) });
        }
    }

    /// `pkts_acked`: packets left the retransmission queue.
    pub fn pkts_acked(&mut self, tp: &mut TcpSock, sample: &AckSample) {
        if let Some(hook) = self.ops.pkts_acked {
            // SAFETY: see `call`; `sample` outlives the call.
            self.call(tp, |sk| unsafe { hook(sk, sample) });
        }
    }

    /// `undo_cwnd`: the cwnd to return to after a reduction that was not called for, packets.
    pub fn undo_cwnd(&mut self, tp: &mut TcpSock) -> u32 {
        let hook = self.ops.undo_cwnd;
        // SAFETY: see `call`. `new` has checked that the hook is there.
        self.call(tp, |sk| hook.map_or(2, |hook| unsafe { hook(sk) }))
    }

    /// `min_tso_segs`: the least burst, packets; `None`: Linux's own (2).
    pub fn min_tso_segs(&mut self, tp: &mut TcpSock) -> Option<u32> {
        let hook = self.ops.min_tso_segs?;
        // SAFETY: see `call`.
        Some(self.call(tp, |sk| unsafe { hook(sk) }))
    }

    /// `sndbuf_expand`: the send buffer in windows; `None`: Linux's own (2).
    pub fn sndbuf_expand(&mut self, tp: &mut TcpSock) -> Option<u32> {
        let hook = self.ops.sndbuf_expand?;
        // SAFETY: see `call`.
        Some(self.call(tp, |sk| unsafe { hook(sk) }))
    }

    /// Calls a hook with this instance's state behind the connection. That makes the hooks' `unsafe` sound:
    /// they get a whole `struct tcp_sock` that is theirs alone for the call, and a host struct whose pointers
    /// are valid for as long.
    fn call<R>(&mut self, tp: &mut TcpSock, hook: impl FnOnce(*mut TcpSock) -> R) -> R {
        self.host.state = self.state.as_mut_ptr().cast();
        self.host.params = self.params.as_ptr();
        self.host.told_len = 0;
        tp.inet_conn.icsk_ca_priv[0] = (&raw mut *self.host).expose_provenance() as u64;
        let answer = hook(tp);
        self.phases.extend_from_slice(&self.host.told[..self.host.told_len as usize]);
        // An address differs from run to run: it must not stay in what may be compared or printed.
        tp.inet_conn.icsk_ca_priv[0] = 0;
        debug_assert!(tp.snd_cwnd > 0, "{} set cwnd to 0", self.module.name());
        answer
    }
}

impl fmt::Debug for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Instance")
            .field("module", &self.module)
            .field("params", &self.params)
            .field("hz", &self.host.hz)
            .finish_non_exhaustive()
    }
}

/// The module's hooks, once those that Linux requires are known to be there.
fn whole_ops(module: &Module) -> Result<ffi::Ops, CcError> {
    let ops = module.ops();
    let missing = if ops.ssthresh.is_none() {
        "ssthresh"
    } else if ops.undo_cwnd.is_none() {
        "undo_cwnd"
    } else if ops.cong_avoid.is_none() && ops.cong_control.is_none() {
        "cong_avoid or cong_control"
    } else {
        return Ok(ops);
    };
    Err(CcError::MissingHook { module: module.name().to_owned(), hook: missing })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sock::jiffies;

    unsafe extern "C" {
        fn skyhop_host_handover_at_ns(sk: *mut TcpSock) -> u64;
        fn skyhop_host_jiffies(sk: *mut TcpSock) -> u32;
        fn skyhop_host_random(sk: *mut TcpSock, n: u32) -> u32;
    }

    fn reno() -> Instance {
        Instance::new(Module::find("reno").unwrap(), &[]).unwrap()
    }

    #[test]
    fn modules_hear_what_is_announced_to_their_instance_alone() {
        let mut tp = TcpSock::default();
        let (mut one, mut other) = (reno(), reno());
        one.announce(Handover { at_ns: 42, valid: 1, ..Handover::default() });
        let heard = |cc: &mut Instance, tp: &mut TcpSock| {
            // SAFETY: see `call`.
            cc.call(tp, |sk| unsafe { skyhop_host_handover_at_ns(sk) })
        };
        assert_eq!((heard(&mut one, &mut tp), heard(&mut other, &mut tp)), (42, 0));
        one.announce(Handover::default());
        assert_eq!(heard(&mut one, &mut tp), 0);
        assert_eq!(tp, TcpSock::default(), "no trace of the call");
    }

    #[test]
    fn jiffies_are_the_same_on_both_sides() {
        for hz in [100, 250, 1000] {
            for tcp_mstamp in [0, 9_999, 10_000, 123_456_789, 10_000_000_000_000] {
                let mut tp = TcpSock { tcp_mstamp, ..TcpSock::default() };
                // SAFETY: see `call`.
                let ticks =
                    reno().with_hz(hz).call(&mut tp, |sk| unsafe { skyhop_host_jiffies(sk) });
                assert_eq!(ticks, jiffies(tcp_mstamp, hz));
            }
        }
    }

    #[test]
    fn random_choices_come_from_the_seed_and_reach_every_value() {
        let draw = |seed| {
            let (mut cc, mut tp) = (reno().with_seed(seed), TcpSock::default());
            // SAFETY: see `call`.
            (0..700).map(|_| cc.call(&mut tp, |sk| unsafe { skyhop_host_random(sk, 7) })).collect()
        };
        let (one, again, other): (Vec<u32>, Vec<u32>, Vec<u32>) = (draw(1), draw(1), draw(2));
        assert_eq!(one, again);
        assert_ne!(one, other);
        for value in 0..7 {
            let times = one.iter().filter(|drawn| **drawn == value).count();
            assert!((60..140).contains(&times), "{value}: {times} of 700");
        }
    }
}
