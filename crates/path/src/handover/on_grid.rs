//! Common part of the policies that choose at the times of a UTC grid.

use skyhop_units::Duration;

use super::{HandoverPolicy, Link, Selection, View};
use crate::request::UtcGrid;

/// Score of an end's link: the link with the highest score is chosen.
pub(super) type Score = fn(&View<'_>, usize, Link) -> f64;

/// Policy that chooses satellites for both ends at each time of the grid, and keeps them in between unless one
/// leaves the view or the path breaks.
#[derive(Debug)]
pub(super) struct OnGrid {
    grid: UtcGrid,
    score: Score,
    selection: Selection,
    /// Index of the grid time at which satellites were last chosen.
    chosen: Option<i64>,
}

impl OnGrid {
    pub(super) fn new(grid: UtcGrid, score: Score) -> Self {
        Self { grid, score, selection: [None; 2], chosen: None }
    }
}

impl HandoverPolicy for OnGrid {
    fn choose(&mut self, view: &View<'_>) -> Selection {
        let index = self.grid.index(view.utc);
        let kept =
            if self.chosen == Some(index) { still_usable(view, self.selection) } else { [None; 2] };
        self.chosen = Some(index);
        self.selection = fill_missing(view, kept, self.score);
        self.selection
    }
}

/// Satellites of a selection that the ends may keep; `None` for the others.
pub(super) fn still_usable(view: &View<'_>, selection: Selection) -> Selection {
    [0, 1].map(|end| selection[end].filter(|link| view.may_keep(end, *link)))
}

/// Complete a selection. An end without a link gets the one with the highest score that has a route to the other
/// end's link. If there is none, both ends get new links.
pub(super) fn fill_missing(view: &View<'_>, kept: Selection, score: Score) -> Selection {
    let best = |end: usize, links: &mut dyn Iterator<Item = Link>| -> Option<Link> {
        let rated = links.map(|link| (score(view, end, link), link));
        // Of equal scores the first wins: the one of the lowest satellite id.
        rated.reduce(|a, b| if b.0 > a.0 { b } else { a }).map(|(_, link)| link)
    };
    let partial = match kept {
        [Some(from), None] => [Some(from), best(1, &mut view.links_to(1, from))],
        [None, Some(to)] => [best(0, &mut view.links_to(0, to)), Some(to)],
        other => other,
    };
    if view.connects(partial) {
        return partial;
    }
    let Some(from) = best(0, &mut view.links_to_any(0)) else {
        // Without a path each end uses its best satellite until there is one.
        return [0, 1].map(|end| best(end, &mut view.in_view[end].iter().copied()));
    };
    [Some(from), best(1, &mut view.links_to(1, from))]
}

/// Score of policies that prefer satellites that stay in view longest: the remaining time in view, s.
pub(super) fn time_in_view(view: &View<'_>, end: usize, link: Link) -> f64 {
    let time: Duration = view.visibility.time_in_view(end, link.satellite);
    time.as_secs_f64()
}
