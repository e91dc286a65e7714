//! Policy of Hypatia: the satellites of the shortest path, at every step.

use super::{HandoverPolicy, Selection, View};
use crate::route::Router;

/// Policy that changes both ends together, as soon as another pair of satellites makes the whole path shorter
/// (Kassing and others, Exploring the Internet from space with Hypatia, IMC 2020, section 3.1).
#[derive(Debug, Default)]
pub(super) struct Immediate {
    router: Router,
}

impl HandoverPolicy for Immediate {
    fn choose(&mut self, view: &View<'_>) -> Selection {
        match self.router.nearest_pair(view.graph, view.in_view[0], view.in_view[1]) {
            Some(pair) => pair.map(Some),
            // Without a route each end uses its nearest satellite until there is one.
            None => [view.nearest(0), view.nearest(1)],
        }
    }
}
