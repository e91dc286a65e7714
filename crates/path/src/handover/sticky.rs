//! Policy with as few handovers as possible: a satellite is kept until it sets or the path breaks.

use super::on_grid::{fill_missing, still_usable, time_in_view};
use super::{HandoverPolicy, Selection, View};

/// Policy that keeps satellites; an end that needs one takes the one that stays in view longest.
#[derive(Debug, Default)]
pub(super) struct Sticky {
    selection: Selection,
}

impl HandoverPolicy for Sticky {
    fn choose(&mut self, view: &View<'_>) -> Selection {
        self.selection = fill_missing(view, still_usable(view, self.selection), time_in_view);
        self.selection
    }
}
