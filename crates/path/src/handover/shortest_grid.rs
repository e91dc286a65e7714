//! The satellites of the shortest path, at the moments of a UTC grid.

use skyhop_units::Duration;

use super::on_grid::kept;
use super::{HandoverPolicy, Link, Selection, View};
use crate::request::UtcGrid;
use crate::route::Router;

/// Both ends choose together at each moment of the grid, so that neither takes a satellite from which the way to the
/// other is a detour: of two satellites overhead, one that goes north and one that goes south are far apart in the
/// grid of links. They choose among satellites that stay in view until the next moment, and keep them until then; where
/// the path breaks nevertheless, it is chosen anew with as much of it kept as can be.
#[derive(Debug)]
pub(super) struct ShortestGrid {
    grid: UtcGrid,
    router: Router,
    selection: Selection,
    /// The grid's index at the last choice.
    chosen: Option<i64>,
}

impl ShortestGrid {
    pub(super) fn new(grid: UtcGrid) -> Self {
        Self { grid, router: Router::default(), selection: [None; 2], chosen: None }
    }

    /// The links of the shortest path that keeps what is kept; where there is none, of any path.
    fn shortest(&mut self, view: &View<'_>, kept: Selection) -> Selection {
        let until_next = self.grid.period - self.grid.since(view.utc);
        let lasting = [0, 1].map(|end| lasting(view, end, until_next));
        let some = |end: usize| kept[end].map_or_else(|| lasting[end].clone(), |link| vec![link]);
        let choices = [[some(0), some(1)], lasting.clone(), view.in_view.map(<[Link]>::to_vec)];
        let pairs =
            choices.iter().find_map(|[from, to]| self.router.nearest_pair(view.graph, from, to));
        // Where there is no path, each end is ready for when there is one.
        pairs.map_or_else(|| [0, 1].map(|end| view.nearest(end)), |pair| pair.map(Some))
    }
}

/// The links of an end that do not set within `time`; where all do, all of them.
fn lasting(view: &View<'_>, end: usize, time: Duration) -> Vec<Link> {
    let lasts = |link: &Link| view.outlook.in_view_for(end, link.satellite) >= time;
    let lasting: Vec<Link> = view.in_view[end].iter().copied().filter(lasts).collect();
    if lasting.is_empty() { view.in_view[end].to_vec() } else { lasting }
}

impl HandoverPolicy for ShortestGrid {
    fn choose(&mut self, view: &View<'_>) -> Selection {
        let index = self.grid.index(view.utc);
        let kept = if self.chosen == Some(index) { kept(view, self.selection) } else { [None; 2] };
        self.chosen = Some(index);
        if !view.connects(kept) {
            self.selection = self.shortest(view, kept);
        }
        self.selection
    }
}
