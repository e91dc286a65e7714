//! Chunk sizes that a player's requests ask for. Both ends share them in place of the requests' content.
//!
//! The bytes of a request have no content, and the player's choice depends on arrivals, so that the server
//! cannot derive it from the seed. Both ends are built from one [`Dash`](super::Dash) in one process and
//! share this map. Runs with the same seed make the same requests, so that they may share the map as well.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use skyhop_units::Bytes;

/// Identity of a request: the flow's seed, the connection, and the request's number on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RequestId {
    pub(super) seed: u64,
    pub(super) connection: u32,
    pub(super) number: u32,
}

/// Map from requests to the chunk sizes that they ask for; see the [module](self).
#[derive(Debug, Clone, Default)]
pub(super) struct RequestedSizes(Arc<Mutex<BTreeMap<RequestId, Bytes>>>);

/// Always equal: the map is run-time state, not part of the scenario.
impl PartialEq for RequestedSizes {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl RequestedSizes {
    pub(super) fn insert(&self, id: RequestId, size: Bytes) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(id, size);
    }

    pub(super) fn get(&self, id: RequestId) -> Option<Bytes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&id).copied()
    }
}
