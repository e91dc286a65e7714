//! Map of announcements for the connections of a registered module.

use std::path::Path;

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use skyhop_cc::{Handover, MapValue};

use crate::Scope;
use crate::entry::offered;
use crate::error::{Context, KernelError};
use crate::pins::{self, Pin};

/// Map in which a module's connections look up the announced handover.
#[derive(Debug)]
pub struct SignalMap {
    map: MapHandle,
}

impl SignalMap {
    pub(super) fn new(map: MapHandle) -> Self {
        Self { map }
    }

    /// Duplicate the handle of the map, for another thread.
    ///
    /// # Errors
    /// The process has too many open descriptors.
    pub fn try_clone(&self) -> Result<Self, KernelError> {
        let map = MapHandle::try_from(&self.map).context("cannot share a map of announcements")?;
        Ok(Self { map })
    }

    pub(super) fn pin(mut self, path: &Path) -> Result<(), libbpf_rs::Error> {
        self.map.pin(path)
    }

    /// Announce `handover` to the connections in `scope`, in place of the previous announcement to that scope.
    ///
    /// The times in `handover` are of `CLOCK_MONOTONIC`.
    ///
    /// # Errors
    /// The map is full (1024 scopes).
    pub fn announce(&self, scope: Scope, handover: &Handover) -> Result<(), KernelError> {
        self.map
            .update(scope.key().as_bytes(), handover.as_bytes(), MapFlags::ANY)
            .context("cannot announce a handover")
    }

    /// Withdraw the announcement in `scope`, if there is one.
    ///
    /// # Errors
    /// The kernel refuses the operation.
    pub fn withdraw(&self, scope: Scope) -> Result<(), KernelError> {
        match self.map.delete(scope.key().as_bytes()) {
            Err(error) if error.kind() == libbpf_rs::ErrorKind::NotFound => Ok(()),
            deleted => deleted.context("cannot withdraw a handover"),
        }
    }
}

/// Maps of announcements of all pinned modules, with the modules' names in the kernel.
///
/// # Errors
/// The caller lacks the privileges.
pub fn pinned_signal_maps() -> Result<Vec<(String, SignalMap)>, KernelError> {
    pins::clean_up(&offered()?);
    let pins = Pin::all().ok_or(KernelError::NotRoot)?;
    pins.into_iter()
        .filter(|pin| pin.signals().exists())
        .filter_map(|pin| {
            let map = match MapHandle::from_pinned_path(pin.signals()) {
                // The module has just been unloaded.
                Err(error) if error.kind() == libbpf_rs::ErrorKind::NotFound => return None,
                Err(error) if error.kind() == libbpf_rs::ErrorKind::PermissionDenied => {
                    return Some(Err(KernelError::NotRoot));
                }
                map => {
                    map.context(&format!("cannot open the announcements of {}", pin.kernel_name))
                }
            };
            Some(map.map(|map| (pin.kernel_name, SignalMap::new(map))))
        })
        .collect()
}
