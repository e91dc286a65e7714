//! The congestion controls in the kernel that hear announcements.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use skyhop_cc::Handover;
use skyhop_kernel::{KernelError, Scope, SignalMap, netns_cookie, pinned_signal_maps};

use crate::upcoming::Notice;
use skyhop_host::error::{Context, HostError};
use skyhop_host::namespace::NetNamespace;

/// Whose connections receive announcements.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum NamespaceChoice {
    /// Those of the caller's network namespace.
    #[default]
    Own,
    /// Those of the namespace with this handle: `/run/netns/NAME` or `/proc/PID/ns/net`.
    Handle(PathBuf),
}

/// The maps of the loaded modules.
pub(crate) struct Listeners {
    maps: Vec<(String, SignalMap)>,
    names: String,
    scope: Scope,
}

impl Listeners {
    /// Those that are loaded now.
    pub(crate) fn find(
        namespace: &NamespaceChoice,
        destination: Option<(Ipv4Addr, u8)>,
    ) -> Result<Self, HostError> {
        let scope = Scope { netns_cookie: cookie_of(namespace)?, destination };
        let mut listeners = Self { maps: Vec::new(), names: String::new(), scope };
        listeners.refresh()?;
        Ok(listeners)
    }

    /// Looks again; true: others than before are loaded.
    pub(crate) fn refresh(&mut self) -> Result<bool, HostError> {
        self.maps = match pinned_signal_maps() {
            // Who may not load modules may still announce to programs.
            Err(KernelError::NotRoot | KernelError::NoLibbpf) => Vec::new(),
            maps => maps.context("cannot find the loaded modules")?,
        };
        let names: Vec<&str> = self.maps.iter().map(|(name, _)| name.as_str()).collect();
        let names = names.join(", ");
        let changed = names != self.names;
        self.names = names;
        Ok(changed)
    }

    /// Their names, with commas between.
    pub(crate) fn names(&self) -> &str {
        &self.names
    }

    pub(crate) fn announce(&self, notice: &Notice) -> Result<(), HostError> {
        let handover = Handover {
            at_ns: notice.at_ns,
            outage_ns: notice.outage.as_nanos(),
            error_ns: notice.error.as_nanos(),
            kind: notice.kind as u32,
            valid: 1,
        };
        for (_, map) in &self.maps {
            map.announce(self.scope, &handover).context("cannot announce a handover")?;
        }
        Ok(())
    }

    /// Takes back what was announced last.
    pub(crate) fn withdraw(&self) -> Result<(), HostError> {
        for (_, map) in &self.maps {
            map.withdraw(self.scope).context("cannot withdraw an announcement")?;
        }
        Ok(())
    }
}

fn cookie_of(namespace: &NamespaceChoice) -> Result<u64, HostError> {
    let action = "cannot read the cookie of the network namespace";
    match namespace {
        NamespaceChoice::Own => netns_cookie().context(action),
        NamespaceChoice::Handle(path) => {
            let inside = NetNamespace::open(path)?.inside(|| netns_cookie().context(action));
            inside.context(&format!("cannot use the network namespace {}", path.display()))
        }
    }
}
