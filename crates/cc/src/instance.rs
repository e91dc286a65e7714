use std::ffi::{c_int, c_void};
use std::fmt;
use std::ptr;

use skyhop_model::CongestionState;
use skyhop_units::Duration;

use crate::bindings::{
    self, AckSample, CaEvent, Handover, RateSample, Sock, TcpCongestionOps, TcpSock,
};
use crate::congestion_control::CongestionControl;
use crate::decider::{Decider, DelayedDecider, OutputCounts};
use crate::error::CcError;
use crate::module::Module;
use crate::registry::Setup;
use crate::sock::Phase;

/// Module with its parameters and state for one connection. Instances share nothing.
pub struct Instance {
    module: &'static Module,
    ops: TcpCongestionOps,
    params: Vec<u64>,
    /// Storage of the algorithm's state struct, as u64 for its alignment.
    state: Vec<u64>,
    host: Box<bindings::Host>,
    /// Phases that the algorithm reported and no caller has taken yet.
    phases: Vec<Phase>,
    /// External policy that decides for the algorithm, if any.
    decider: Option<DelayedDecider>,
}

// SAFETY: the pointers in `host` are set from the other fields before every call and not used between calls.
unsafe impl Send for Instance {}

impl Instance {
    /// Return an instance of a module with `params`, pairs of name and text as in the scenario; parameters not
    /// named have their defaults. The clock ticks 1000 times a second, the seed is 0, and no handover is
    /// announced.
    ///
    /// # Errors
    /// [`CcError::UnknownParam`], [`CcError::BadValue`], [`CcError::GivenTwice`], or [`CcError::MissingHook`] if the
    /// module itself lacks a hook.
    pub fn new(module: &'static Module, params: &[(&str, &str)]) -> Result<Instance, CcError> {
        let ops = module.checked_ops()?;
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
        Ok(Instance { module, ops, params, state, host, phases: Vec::new(), decider: None })
    }

    /// Return an instance with all settings of `setup`.
    ///
    /// # Errors
    /// The errors of [`Instance::new`].
    pub fn with_setup(module: &'static Module, setup: &Setup<'_>) -> Result<Instance, CcError> {
        Ok(Instance::new(module, setup.params)?.with_hz(setup.hz).with_seed(setup.seed))
    }

    /// Ticks per second of Linux's coarse clock (CONFIG_HZ: 100, 250 or 1000).
    pub fn with_hz(mut self, hz: u32) -> Instance {
        self.host.hz = hz;
        self
    }

    /// Seed of the algorithm's random numbers.
    pub fn with_seed(mut self, seed: u64) -> Instance {
        self.host.random = seed;
        self
    }

    /// Set the external policy that decides for the algorithm; it has an effect only if the algorithm reports
    /// and obeys (`cc/policy.c`). A decision arrives `delay` after the report that it answers.
    pub fn with_decider(mut self, decider: Box<dyn Decider>, delay: Duration) -> Instance {
        self.decider = Some(DelayedDecider::new(decider, delay));
        self
    }

    /// Module that the instance runs.
    pub fn module(&self) -> &'static Module {
        self.module
    }

    /// Ticks per second of the coarse clock.
    pub fn hz(&self) -> u32 {
        self.host.hz
    }

    /// Call a hook with this instance's state attached to the connection. This makes the hooks' `unsafe` sound:
    /// they get a complete `struct tcp_sock`, which starts with its `struct sock`, with exclusive access during
    /// the call, and a host struct whose pointers are valid during the call.
    fn call<R>(&mut self, tp: &mut TcpSock, hook: impl FnOnce(*mut Sock) -> R) -> R {
        self.host.state = self.state.as_mut_ptr().cast();
        self.host.params = self.params.as_ptr();
        self.host.phases = (&raw mut self.phases).cast();
        if let Some(decider) = &mut self.decider {
            self.host.decision = decider.newest(tp.tcp_mstamp * 1000);
            self.host.decider = (&raw mut *decider).cast();
        }
        tp.inet_conn.icsk_ca_priv[0] = (&raw mut *self.host).expose_provenance() as u64;
        let answer = hook((&raw mut *tp).cast());
        // An address differs from run to run: it must not remain in the socket, which may be compared or
        // printed.
        tp.inet_conn.icsk_ca_priv[0] = 0;
        debug_assert!(tp.snd_cwnd > 0, "{} set cwnd to 0", self.module.name());
        answer
    }
}

/// Callback `tell` of the host struct: stores a phase.
unsafe extern "C" fn tell(phases: *mut c_void, phase: *const bindings::Phase) {
    // SAFETY: `call` has pointed `phases` to the instance's list, and the C caller passes a phase on its stack.
    let (phases, phase) = unsafe { (&mut *phases.cast::<Vec<Phase>>(), *phase) };
    phases.extend(phase.to_phase());
}

/// Callback `report` of the host struct: passes a report to the policy.
unsafe extern "C" fn report(decider: *mut c_void, report: *const bindings::Report) {
    // SAFETY: `call` has pointed `decider` to the instance's, and the C caller passes a report on its stack.
    unsafe { (*decider.cast::<DelayedDecider>()).report(&*report) }
}

/// Hooks that the algorithm does not define do nothing, or return `None`.
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

    fn outputs(&self) -> OutputCounts {
        self.decider.as_ref().map(DelayedDecider::outputs).unwrap_or_default()
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
