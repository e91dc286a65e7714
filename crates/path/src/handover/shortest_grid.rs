//! Policy: the satellites of the shortest path, chosen at the times of a UTC grid.

use skyhop_units::Duration;

use super::on_grid::still_usable;
use super::{HandoverPolicy, Link, Selection, View};
use crate::request::UtcGrid;
use crate::route::Router;

/// Policy that chooses the satellites of both ends together at each time of the grid.
///
/// Choosing both together avoids detours: two satellites overhead, of which one moves north and the other south, are
/// far apart in the grid of links. Candidates are the satellites that stay in view until the next grid time, until
/// which the ends keep the chosen ones. If the path breaks before, the policy chooses again and keeps the satellite
/// of one end if possible.
#[derive(Debug)]
pub(super) struct ShortestGrid {
    grid: UtcGrid,
    router: Router,
    selection: Selection,
    /// Index of the grid time at which satellites were last chosen.
    chosen: Option<i64>,
}

impl ShortestGrid {
    pub(super) fn new(grid: UtcGrid) -> Self {
        Self { grid, router: Router::default(), selection: [None; 2], chosen: None }
    }

    /// Links of the shortest path over the satellites of `kept`; if no path goes over them, links
    /// of the shortest of all paths.
    fn shortest(&mut self, view: &View<'_>, kept: Selection) -> Selection {
        let until_next = self.grid.period - self.grid.since(view.utc);
        let lasting = [0, 1].map(|end| lasting(view, end, until_next));
        let some = |end: usize| kept[end].map_or_else(|| lasting[end].clone(), |link| vec![link]);
        let choices = [[some(0), some(1)], lasting.clone(), view.in_view.map(<[Link]>::to_vec)];
        let pairs =
            choices.iter().find_map(|[from, to]| self.router.nearest_pair(view.graph, from, to));
        // Without a path each end uses its nearest satellite until there is one.
        pairs.map_or_else(|| [0, 1].map(|end| view.nearest(end)), |pair| pair.map(Some))
    }
}

/// Links of an end whose satellites stay in view for `time`; all links if there is no such satellite.
fn lasting(view: &View<'_>, end: usize, time: Duration) -> Vec<Link> {
    let lasts = |link: &Link| view.visibility.time_in_view(end, link.satellite) >= time;
    let lasting: Vec<Link> = view.in_view[end].iter().copied().filter(lasts).collect();
    if lasting.is_empty() { view.in_view[end].to_vec() } else { lasting }
}

impl HandoverPolicy for ShortestGrid {
    fn choose(&mut self, view: &View<'_>) -> Selection {
        let index = self.grid.index(view.utc);
        let kept =
            if self.chosen == Some(index) { still_usable(view, self.selection) } else { [None; 2] };
        self.chosen = Some(index);
        if !view.connects(kept) {
            self.selection = self.shortest(view, kept);
        }
        self.selection
    }
}
