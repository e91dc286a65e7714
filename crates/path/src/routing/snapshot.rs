//! Routing by snapshots: the shortest routes of one moment hold for some time, though satellites move.

use skyhop_units::{Duration, Instant};

use super::{NetworkView, RoutesTo, Routing, Shortest};

/// Shortest routes that are computed again once they have held for a given time.
pub(crate) struct Snapshot {
    every: Duration,
    shortest: Shortest,
    /// Time from which on the routes hold; `None` before the first ones.
    since: Option<Instant>,
}

impl Snapshot {
    /// Prepare the routing; searches use so many threads.
    pub(crate) fn new(every: Duration, threads: usize) -> Self {
        Self { every, shortest: Shortest::new(threads), since: None }
    }
}

impl Routing for Snapshot {
    fn routes(&mut self, view: &NetworkView<'_>) -> Option<Vec<RoutesTo>> {
        if self.since.is_some_and(|since| view.now - since < self.every) {
            return None;
        }
        self.since = Some(view.now);
        self.shortest.routes(view)
    }
}
