//! What the connections of a registered module say that they do about handovers.

use libbpf_rs::MapHandle;

use super::registration::{not_loaded, pin_of};
use super::ring::Ring;
use crate::Told;
use crate::error::{Context, KernelError};

/// Reads what the connections of a module tell. There may be one reader of a module at a time.
#[derive(Debug)]
pub struct PhaseReader(Ring<Told>);

impl PhaseReader {
    pub(super) fn new(map: &MapHandle) -> Result<Self, KernelError> {
        Ring::new(map, Told::parse).map(Self)
    }

    /// What was told since the last call, in the order in which it was told.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn read(&self) -> Result<Vec<Told>, KernelError> {
        self.0.read()
    }
}

/// What the connections of a module tell that [`load`](crate::load) loaded, by any of its names.
///
/// # Errors
/// [`KernelError::NotLoaded`], or the caller may not.
pub fn pinned_phases(name: &str) -> Result<PhaseReader, KernelError> {
    let pin = pin_of(name).ok_or_else(|| not_loaded(name))?;
    let map = MapHandle::from_pinned_path(pin.phases())
        .context(&format!("cannot open what {} reports", pin.kernel_name))?;
    PhaseReader::new(&map)
}
