//! Policy: the satellite that stays in view longest, chosen at the times of a UTC grid.

use super::on_grid::{OnGrid, time_in_view};
use crate::request::UtcGrid;

/// Create the policy, whose score is the time until a satellite sets.
pub(super) fn policy(grid: UtcGrid) -> OnGrid {
    OnGrid::new(grid, time_in_view)
}
