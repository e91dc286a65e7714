//! Queue of packet arrivals, from the pump to the blind handover estimator.

use std::sync::{Mutex, PoisonError};

use skyhop_units::{Duration, Instant};

/// Arrivals not yet read by the estimator. Both sides hold the lock for a short time only.
#[derive(Debug, Default)]
pub(crate) struct Arrivals(Mutex<Vec<Arrival>>);

/// Arrival of a packet: the pump has written the packet to the receiving end's device.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrival {
    pub(crate) at: Instant,
    /// One-way delay: time since the packet was read from the sending end's device.
    pub(crate) delay: Duration,
}

impl Arrivals {
    /// Move all of `arrivals` into the queue.
    pub(crate) fn append(&self, arrivals: &mut Vec<Arrival>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).append(arrivals);
    }

    /// Drain the queue: arrivals since the last call, in order.
    pub(crate) fn drain(&self) -> Vec<Arrival> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
