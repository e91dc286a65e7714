//! Phases that the connections of a registered module report for handovers.

use libbpf_rs::MapHandle;

use super::registration::{not_loaded, pin_of};
use super::ring::Ring;
use crate::PhaseEvent;
use crate::error::{Context, KernelError};

/// Reader of the phases that a module's connections report. A module may have one reader at a time.
#[derive(Debug)]
pub struct PhaseReader(Ring<PhaseEvent>);

impl PhaseReader {
    pub(super) fn new(map: &MapHandle) -> Result<Self, KernelError> {
        Ring::new(map, PhaseEvent::parse).map(Self)
    }

    /// Return the phases reported since the last call, in order.
    ///
    /// # Errors
    /// The kernel refuses the operation.
    pub fn read(&self) -> Result<Vec<PhaseEvent>, KernelError> {
        self.0.read()
    }
}

/// Open a reader of the phases of a module loaded by [`load`](crate::load); `name` is any of the
/// module's names.
///
/// # Errors
/// [`KernelError::NotLoaded`], or the caller lacks the privileges.
pub fn pinned_phases(name: &str) -> Result<PhaseReader, KernelError> {
    let pin = pin_of(name).ok_or_else(|| not_loaded(name))?;
    let map = MapHandle::from_pinned_path(pin.phases())
        .context(&format!("cannot open the phases of {}", pin.kernel_name))?;
    PhaseReader::new(&map)
}
