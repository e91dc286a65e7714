use std::ffi::{c_int, c_void};
use std::fmt;
use std::ptr;

use skyhop_model::CongestionState;
use skyhop_units::Duration;

use crate::bindings::{
    self, AckSample, CaEvent, Handover, RateSample, Sock, TcpCongestionOps, TcpSock,
};
use crate::congestion_control::CongestionControl;
use crate::decider::{Decider, Deciding, Outputs};
use crate::error::CcError;
use crate::module::Module;
use crate::registry::Setup;
use crate::sock::Phase;

/// A module at work for one connection. Instances share nothing.
pub struct Instance {
    module: &'static Module,
    ops: TcpCongestionOps,
    params: Vec<u64>,
    /// The algorithm's own struct; u64 for its alignment.
    state: Vec<u64>,
    host: Box<bindings::Host>,
    /// What the algorithm told of and nobody has asked for yet.
    phases: Vec<Phase>,
    /// Who decides for it, where somebody does.
    deciding: Option<Deciding>,
}

// SAFETY: the pointers in `host` are set from the fields beside it before every call and not used between.
unsafe impl Send for Instance {}

impl Instance {
    /// A connection's algorithm with its parameters: name and text, as in the scenario. What is not named
    /// has its default. The clock ticks 1000 times a second, the seed is 0, no handover is announced.
    ///
    /// # Errors
    /// [`CcError::UnknownParam`], [`CcError::BadValue`], [`CcError::Twice`], or [`CcError::MissingHook`] where
    /// the algorithm itself is not whole.
    pub fn new(module: &'static Module, params: &[(&str, &str)]) -> Result<Instance, CcError> {
        let ops = module.whole_ops()?;
        let params = module.values(params)?;
        let state = vec![0; module.state_bytes().div_ceil(size_of::<u64>())];
        let host = Box::new(bindings::Host {
            state: ptr::null_mut(),
            params: ptr::null(),
            random: 0,
            handover: Handover::default(),
            tell: Some(tell),
            phases: ptr::null_mut(),
            report: Some(report),
            decider: ptr::null_mut(),
            decision: bindings::Decision::default(),
            hz: 1000,
        });
        Ok(Instance { module, ops, params, state, host, phases: Vec::new(), deciding: None })
    }

    /// The same with all that a connection's controller is made with.
    ///
    /// # Errors
    /// As [`Instance::new`].
    pub fn with_setup(module: &'static Module, setup: &Setup<'_>) -> Result<Instance, CcError> {
        Ok(Instance::new(module, setup.params)?.with_hz(setup.hz).with_seed(setup.seed))
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

    /// Who decides for the algorithm, where that is one that others decide for; a decision is there `delay` after the
    /// report that it answers.
    pub fn decided_by(mut self, decider: Box<dyn Decider>, delay: Duration) -> Instance {
        self.deciding = Some(Deciding::new(decider, delay));
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

    /// Calls a hook with this instance's state behind the connection. That makes the hooks' `unsafe` sound:
    /// they get a whole `struct tcp_sock`, which starts with its `struct sock`, that is theirs alone for the call,
    /// and a host struct whose pointers are valid for as long.
    fn call<R>(&mut self, tp: &mut TcpSock, hook: impl FnOnce(*mut Sock) -> R) -> R {
        self.host.state = self.state.as_mut_ptr().cast();
        self.host.params = self.params.as_ptr();
        self.host.phases = (&raw mut self.phases).cast();
        if let Some(deciding) = &mut self.deciding {
            self.host.decision = deciding.newest(tp.tcp_mstamp * 1000);
            self.host.decider = (&raw mut *deciding).cast();
        }
        tp.inet_conn.icsk_ca_priv[0] = (&raw mut *self.host).expose_provenance() as u64;
        let answer = hook((&raw mut *tp).cast());
        // An address differs from run to run: it must not stay in what may be compared or printed.
        tp.inet_conn.icsk_ca_priv[0] = 0;
        debug_assert!(tp.snd_cwnd > 0, "{} set cwnd to 0", self.module.name());
        answer
    }
}

/// `tell` of the host struct.
unsafe extern "C" fn tell(phases: *mut c_void, phase: *const bindings::Phase) {
    // SAFETY: `call` has set the first to the instance's list, and the header passes a phase on its stack.
    let (phases, phase) = unsafe { (&mut *phases.cast::<Vec<Phase>>(), *phase) };
    phases.extend(phase.known());
}

/// `report` of the host struct.
unsafe extern "C" fn report(decider: *mut c_void, report: *const bindings::Report) {
    // SAFETY: `call` has set the first to the instance's, and the header passes a report on its stack.
    unsafe { (*decider.cast::<Deciding>()).report(&*report) }
}

/// A hook that the algorithm leaves out does nothing, or says `None`.
impl CongestionControl for Instance {
    fn init(&mut self, tp: &mut TcpSock) {
        if let Some(hook) = self.ops.init {
            // SAFETY: see `call`.
            self.call(tp, |sk| unsafe { hook(sk) });
        }
    }

    fn release(&mut self, tp: &mut TcpSock) {
        if let Some(hook) = self.ops.release {
            // SAFETY: see `call`.
            self.call(tp, |sk| unsafe { hook(sk) });
        }
    }

    fn has_cong_control(&self) -> bool {
        self.ops.cong_control.is_some()
    }

    fn needs_ecn(&self) -> bool {
        self.module.needs_ecn()
    }

    fn cong_control(&mut self, tp: &mut TcpSock, ack: u32, flag: u32, sample: &RateSample) {
        if let Some(hook) = self.ops.cong_control {
            // SAFETY: see `call`; `sample` outlives the call.
            self.call(tp, |sk| unsafe { hook(sk, ack, flag as c_int, sample) });
        }
    }

    fn cong_avoid(&mut self, tp: &mut TcpSock, ack: u32, acked: u32) {
        if let Some(hook) = self.ops.cong_avoid {
            // SAFETY: see `call`.
            self.call(tp, |sk| unsafe { hook(sk, ack, acked) });
        }
    }

    fn ssthresh(&mut self, tp: &mut TcpSock) -> u32 {
        let hook = self.ops.ssthresh;
        // SAFETY: see `call`. `new` has checked that the hook is there.
        self.call(tp, |sk| hook.map_or(2, |hook| unsafe { hook(sk) }))
    }

    fn undo_cwnd(&mut self, tp: &mut TcpSock) -> u32 {
        let hook = self.ops.undo_cwnd;
        // SAFETY: see `call`. `new` has checked that the hook is there.
        self.call(tp, |sk| hook.map_or(2, |hook| unsafe { hook(sk) }))
    }

    fn set_state(&mut self, tp: &mut TcpSock, state: CongestionState) {
        if let Some(hook) = self.ops.set_state {
            // SAFETY: see `call`.
            self.call(tp, |sk| unsafe { hook(sk, state as u8) });
        }
    }

    fn cwnd_event(&mut self, tp: &mut TcpSock, event: CaEvent) {
        if let Some(hook) = self.ops.cwnd_event {
            // SAFETY: see `call`.
            self.call(tp, |sk| unsafe { hook(sk, event) });
        }
    }

    fn in_ack_event(&mut self, tp: &mut TcpSock, flags: u32) {
        if let Some(hook) = self.ops.in_ack_event {
            // SAFETY: see `call`.
            self.call(tp, |sk| unsafe { hook(sk, flags) });
        }
    }

    fn pkts_acked(&mut self, tp: &mut TcpSock, sample: &AckSample) {
        if let Some(hook) = self.ops.pkts_acked {
            // SAFETY: see `call`; `sample` outlives the call.
            self.call(tp, |sk| unsafe { hook(sk, sample) });
        }
    }

    fn min_tso_segs(&mut self, tp: &mut TcpSock) -> Option<u32> {
        let hook = self.ops.min_tso_segs?;
        // SAFETY: see `call`.
        Some(self.call(tp, |sk| unsafe { hook(sk) }))
    }

    fn sndbuf_expand(&mut self, tp: &mut TcpSock) -> Option<u32> {
        let hook = self.ops.sndbuf_expand?;
        // SAFETY: see `call`.
        Some(self.call(tp, |sk| unsafe { hook(sk) }))
    }

    fn announce(&mut self, handover: Handover) {
        self.host.handover = handover;
    }

    fn has_phases(&self) -> bool {
        !self.phases.is_empty()
    }

    fn take_phases(&mut self) -> Vec<Phase> {
        std::mem::take(&mut self.phases)
    }

    fn outputs(&self) -> Outputs {
        self.deciding.as_ref().map(Deciding::outputs).unwrap_or_default()
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
