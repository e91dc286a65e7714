//! As few handovers as possible: a satellite is kept until it sets or the path breaks.

use super::on_grid::{completed, kept, time_in_view};
use super::{HandoverPolicy, Selection, View};

/// An end that needs a satellite takes the one that stays in view longest.
#[derive(Debug, Default)]
pub(super) struct Sticky {
    selection: Selection,
}

impl HandoverPolicy for Sticky {
    fn choose(&mut self, view: &View<'_>) -> Selection {
        self.selection = completed(view, kept(view, self.selection), time_in_view);
        self.selection
    }
}
