//! What has arrived at an end of the path, from the link's thread to whoever learns from it.

use std::sync::{Mutex, PoisonError};

use skyhop_units::{Duration, Instant};

/// Arrivals that nobody has looked at yet. Either side holds it for a moment only.
#[derive(Debug, Default)]
pub(crate) struct Arrivals(Mutex<Vec<Arrival>>);

/// A packet that was written into the receiving namespace's device.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrival {
    pub(crate) at: Instant,
    /// How long ago it had been read from the sending one's.
    pub(crate) delay: Duration,
}

impl Arrivals {
    /// Hands over `arrivals`, and leaves them empty.
    pub(crate) fn append(&self, arrivals: &mut Vec<Arrival>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).append(arrivals);
    }

    /// Those that have come since this was last asked, in order.
    pub(crate) fn take(&self) -> Vec<Arrival> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
