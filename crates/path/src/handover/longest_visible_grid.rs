//! The satellite that stays in view longest, at the moments of a UTC grid.

use super::on_grid::{OnGrid, time_in_view};
use crate::request::UtcGrid;

/// The longest time until it sets.
pub(super) fn policy(grid: UtcGrid) -> OnGrid {
    OnGrid::new(grid, time_in_view)
}
