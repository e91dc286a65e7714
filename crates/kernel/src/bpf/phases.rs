//! What the connections of a registered module say that they do about handovers.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use libbpf_rs::{MapHandle, RingBuffer, RingBufferBuilder};
use skyhop_cc::{MapValue, bindings};

use super::registration::{not_loaded, pin_of};
use crate::Told;
use crate::error::{Context, KernelError};

/// Reads what the connections of a module tell. There may be one reader of a module at a time.
pub struct PhaseReader {
    ring: RingBuffer<'static>,
    told: Arc<Mutex<Vec<Told>>>,
}

impl PhaseReader {
    pub(super) fn new(map: &MapHandle) -> Result<Self, KernelError> {
        let action = "cannot read what a module reports";
        let told = Arc::new(Mutex::new(Vec::new()));
        let mut builder = RingBufferBuilder::new();
        let sink = Arc::clone(&told);
        let noted = move |bytes: &[u8]| {
            sink.lock().unwrap_or_else(PoisonError::into_inner).extend(parse(bytes));
            0
        };
        builder.add(map, noted).context(action)?;
        let ring = builder.build().context(action)?;
        Ok(Self { ring, told })
    }

    /// What was told since the last call, in the order in which it was told.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn read(&self) -> Result<Vec<Told>, KernelError> {
        self.ring.consume().context("cannot read what a module reports")?;
        Ok(std::mem::take(&mut *self.told.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl fmt::Debug for PhaseReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PhaseReader").finish_non_exhaustive()
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

/// `struct skyhop_told`; nothing where it is of another version.
fn parse(bytes: &[u8]) -> Option<Told> {
    let told = bindings::Told::from_bytes(bytes)?;
    Some(Told {
        netns_cookie: told.netns_cookie,
        local_port: told.local_port,
        remote_port: u16::from_be(told.remote_port),
        phase: told.phase.known()?,
    })
}
