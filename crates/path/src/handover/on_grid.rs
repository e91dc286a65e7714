//! What the policies that follow a grid of UTC have in common.

use skyhop_units::Duration;

use super::{HandoverPolicy, Link, Selection, View};
use crate::request::UtcGrid;

/// How good a link of an end is: the largest is taken.
pub(super) type Merit = fn(&View<'_>, usize, Link) -> f64;

/// Both ends choose at each moment of the grid; in between they keep their satellites, unless one
/// leaves the view or the path breaks.
#[derive(Debug)]
pub(super) struct OnGrid {
    grid: UtcGrid,
    merit: Merit,
    selection: Selection,
    /// The grid's index at the last choice.
    chosen: Option<i64>,
}

impl OnGrid {
    pub(super) fn new(grid: UtcGrid, merit: Merit) -> Self {
        Self { grid, merit, selection: [None; 2], chosen: None }
    }
}

impl HandoverPolicy for OnGrid {
    fn choose(&mut self, view: &View<'_>) -> Selection {
        let index = self.grid.index(view.utc);
        let kept = if self.chosen == Some(index) { kept(view, self.selection) } else { [None; 2] };
        self.chosen = Some(index);
        self.selection = completed(view, kept, self.merit);
        self.selection
    }
}

/// The satellites of a selection that may still be used.
pub(super) fn kept(view: &View<'_>, selection: Selection) -> Selection {
    [0, 1].map(|end| selection[end].filter(|link| view.may_keep(end, *link)))
}

/// A selection whose missing ends are filled with the best links that make a path; if what is there
/// does not allow one, everything is chosen anew.
pub(super) fn completed(view: &View<'_>, kept: Selection, merit: Merit) -> Selection {
    let best = |end: usize, links: &mut dyn Iterator<Item = Link>| -> Option<Link> {
        let rated = links.map(|link| (merit(view, end, link), link));
        // Of equals the first, which is the lowest satellite.
        rated.reduce(|a, b| if b.0 > a.0 { b } else { a }).map(|(_, link)| link)
    };
    let partial = match kept {
        [Some(from), None] => [Some(from), best(1, &mut view.reaching(1, from))],
        [None, Some(to)] => [best(0, &mut view.reaching(0, to)), Some(to)],
        other => other,
    };
    if view.connects(partial) {
        return partial;
    }
    let Some(from) = best(0, &mut view.useful(0)) else {
        // There is no path: each end waits below its best satellite.
        return [0, 1].map(|end| best(end, &mut view.in_view[end].iter().copied()));
    };
    [Some(from), best(1, &mut view.reaching(1, from))]
}

/// How long an end sees a satellite.
pub(super) fn time_in_view(view: &View<'_>, end: usize, link: Link) -> f64 {
    let time: Duration = view.outlook.in_view_for(end, link.satellite);
    time.as_secs_f64()
}
