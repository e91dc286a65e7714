//! Policy of LeoEM: the nearest satellite, chosen again every 16 s or when the path breaks.

use skyhop_units::{Duration, Instant};

use super::{HandoverPolicy, Link, Selection, View};

/// Time between two choices: LeoEM counts lines (seconds) from 0 and switches at 15, so that it is 16 s.
const PERIOD: Duration = Duration::from_secs(16);

/// Policy of LeoEM's route stage (SaTCP section III).
///
/// While there is a route between the current satellites, an end switches to its nearest satellite when the end's
/// period is over. When there is none, the policy gives the nearest satellite to `from` alone; if that does not yield
/// a route, to `to` alone, then to both; and if that fails too, it chooses the nearest pair of satellites in view
/// that has a route. The period of an end restarts when it is over, and when the end gets a satellite because a route
/// was missing.
#[derive(Debug, Default)]
pub(super) struct Leoem {
    selection: Selection,
    /// Time at which the current period of each end is over; `from` comes first.
    due: [Instant; 2],
}

impl HandoverPolicy for Leoem {
    fn choose(&mut self, view: &View<'_>) -> Selection {
        let nearest = [view.nearest(0), view.nearest(1)];
        let mut over = self.due.map(|due| due <= view.now);
        let kept = self.still_usable(view);

        let mut selection = if view.connects(kept) {
            [0, 1].map(|end| if over[end] { nearest[end] } else { kept[end] })
        } else {
            let (selection, renewed) = repaired(view, kept, nearest);
            over = [over[0] || renewed[0], over[1] || renewed[1]];
            selection
        };
        if !view.connects(selection)
            && let Some(pair) = nearest_connected_pair(view)
        {
            selection = pair.map(Some);
            over = [true, true];
        }

        for (due, over) in self.due.iter_mut().zip(over) {
            if over {
                *due = view.now + PERIOD;
            }
        }
        self.selection = selection;
        selection
    }
}

impl Leoem {
    /// Current satellites that the ends may keep.
    fn still_usable(&self, view: &View<'_>) -> Selection {
        [0, 1].map(|end| self.selection[end].filter(|link| view.may_keep(end, *link)))
    }
}

/// Try new satellites for `from` alone, for `to` alone and for both, and return the first pair with
/// a route (else the last pair), and for each end whether its satellite is new.
fn repaired(view: &View<'_>, kept: Selection, nearest: Selection) -> (Selection, [bool; 2]) {
    let attempts = [
        ([nearest[0], kept[1]], [true, false]),
        ([kept[0], nearest[1]], [false, true]),
        (nearest, [true, true]),
    ];
    let found = attempts.iter().find(|(pair, _)| view.connects(*pair));
    *found.unwrap_or(&attempts[2])
}

/// Return, of the pairs of satellites with a route, the one with the smallest sum of the ends'
/// delays; of equal ones the first.
fn nearest_connected_pair(view: &View<'_>) -> Option<[Link; 2]> {
    let mut best: Option<[Link; 2]> = None;
    let sum = |pair: &[Link; 2]| pair[0].delay_s + pair[1].delay_s;
    for from in view.in_view[0] {
        for to in view.in_view[1] {
            let pair = [*from, *to];
            if view.connects(pair.map(Some)) && best.is_none_or(|best| sum(&pair) < sum(&best)) {
                best = Some(pair);
            }
        }
    }
    best
}
