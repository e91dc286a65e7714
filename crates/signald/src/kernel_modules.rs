//! Congestion controls in the kernel that receive announcements.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use skyhop_cc::Handover;
use skyhop_kernel::{KernelError, Scope, SignalMap, netns_cookie, pinned_signal_maps};
use tracing::{debug, trace};

use crate::upcoming::Notice;
use skyhop_host::error::{Context, HostError};
use skyhop_host::namespace::NetNamespace;

/// Network namespace whose connections receive announcements.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum NamespaceChoice {
    /// Network namespace of the caller.
    #[default]
    Own,
    /// Namespace with this handle: `/run/netns/NAME` or `/proc/PID/ns/net`.
    Handle(PathBuf),
}

/// BPF maps through which the loaded modules get announcements.
pub(crate) struct KernelModules {
    maps: Vec<(String, SignalMap)>,
    names: String,
    scope: Scope,
}

impl KernelModules {
    /// Find the modules that are loaded at present.
    pub(crate) fn find(
        namespace: &NamespaceChoice,
        destination: Option<(Ipv4Addr, u8)>,
    ) -> Result<Self, HostError> {
        let scope = Scope { netns_cookie: cookie_of(namespace)?, destination };
        let mut modules = Self { maps: Vec::new(), names: String::new(), scope };
        modules.refresh()?;
        Ok(modules)
    }

    /// Search for loaded modules again; return whether they have changed.
    pub(crate) fn refresh(&mut self) -> Result<bool, HostError> {
        self.maps = match pinned_signal_maps() {
            // Without privileges or libbpf, no module gets announcements, but programs still do.
            Err(error @ (KernelError::NotRoot | KernelError::NoLibbpf)) => {
                trace!(%error, "announcements go to the socket only");
                Vec::new()
            }
            maps => maps.context("cannot find the loaded modules")?,
        };
        let names: Vec<&str> = self.maps.iter().map(|(name, _)| name.as_str()).collect();
        let names = names.join(", ");
        let changed = names != self.names;
        if changed {
            debug!(names, "loaded modules changed");
        }
        self.names = names;
        Ok(changed)
    }

    /// Names of the modules, separated by commas.
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

    /// Withdraw the last announcement.
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
