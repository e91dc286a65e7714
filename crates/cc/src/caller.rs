//! Hooks that an engine calls, so that a module that relies on others is refused.

use crate::bindings::{TCP_CONG_NEEDS_ECN, TcpCongestionOps};
use crate::error::CcError;
use crate::module::Module;

/// Capabilities of an engine's TCP towards congestion controls.
#[derive(Debug, Clone, Copy)]
pub struct Caller {
    /// Name of the engine in messages.
    pub name: &'static str,
    /// Hooks that the engine calls when Linux calls them, by their names in `tcp_congestion_ops`.
    pub calls: &'static [&'static str],
    /// Whether the engine negotiates ECN and reports marks.
    pub has_ecn: bool,
}

impl Caller {
    /// Hooks that Linux's TCP calls in a BPF module: all but `get_info`.
    pub const LINUX_CALLS: &'static [&'static str] = &[
        "ssthresh",
        "cong_avoid",
        "set_state",
        "cwnd_event",
        "in_ack_event",
        "pkts_acked",
        "min_tso_segs",
        "cong_control",
        "undo_cwnd",
        "sndbuf_expand",
        "init",
        "release",
    ];

    /// Refuse a module that would behave differently with this engine.
    ///
    /// # Errors
    /// [`CcError::MissingHook`], [`CcError::UncalledHook`], [`CcError::NoEcn`].
    pub fn accept(&self, module: &Module) -> Result<(), CcError> {
        module.checked_ops()?;
        if let Some(hook) = module.hooks().find(|hook| !self.calls.contains(hook)) {
            let (origin, caller) = (module.origin(), self.name);
            return Err(CcError::UncalledHook { origin, hook, caller });
        }
        self.accept_ecn(module.name(), module.needs_ecn())
    }

    pub(crate) fn accept_ecn(&self, name: &str, needs_ecn: bool) -> Result<(), CcError> {
        if needs_ecn && !self.has_ecn {
            return Err(CcError::NoEcn { name: name.to_owned(), caller: self.name });
        }
        Ok(())
    }
}

impl Module {
    /// Names of the hooks that the module's file defines.
    pub fn hooks(&self) -> impl Iterator<Item = &'static str> + use<> {
        hooks(&self.ops()).into_iter().filter(|(_, is_there)| *is_there).map(|(name, _)| name)
    }

    /// Whether the module requires ECN (`TCP_CONG_NEEDS_ECN`).
    pub fn needs_ecn(&self) -> bool {
        self.ops().flags & TCP_CONG_NEEDS_ECN != 0
    }
}

macro_rules! hooks_of {
    ($ops:expr, $($hook:ident),+) => {{
        // The pattern has no `..`: a new hook in the header has to be named here.
        let TcpCongestionOps { $($hook),+, name: _, flags: _ } = $ops;
        [$((stringify!($hook), $hook.is_some())),+]
    }};
}

fn hooks(ops: &TcpCongestionOps) -> [(&'static str, bool); 13] {
    hooks_of!(
        ops,
        ssthresh,
        cong_avoid,
        set_state,
        cwnd_event,
        in_ack_event,
        pkts_acked,
        min_tso_segs,
        cong_control,
        undo_cwnd,
        sndbuf_expand,
        get_info,
        init,
        release
    )
}
