//! What a player's requests say: how much is to be sent.
//!
//! Bytes have no content here, and what a player asks for depends on what has come, so that the server cannot draw it. Both ends are
//! made of one [`Dash`](super::Dash) in one process, and this is what they share in place of the content. The same player asks for the
//! same, so that runs of one seed may share it as well.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use skyhop_units::Bytes;

/// Which request: of which flow, by its seed, over which of its connections, and which there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Order {
    pub(super) seed: u64,
    pub(super) connection: u32,
    pub(super) number: u32,
}

/// See the [module](self).
#[derive(Debug, Clone, Default)]
pub(super) struct Orders(Arc<Mutex<BTreeMap<Order, Bytes>>>);

/// They are no part of what a scenario says.
impl PartialEq for Orders {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl Orders {
    pub(super) fn place(&self, order: Order, size: Bytes) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(order, size);
    }

    pub(super) fn of(&self, order: Order) -> Option<Bytes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&order).copied()
    }
}
