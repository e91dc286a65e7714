//! Policy: the highest satellite, chosen at the times of a UTC grid.

use super::on_grid::OnGrid;
use crate::request::UtcGrid;

/// Create the policy, whose score is the elevation.
pub(super) fn policy(grid: UtcGrid) -> OnGrid {
    OnGrid::new(grid, |_, _, link| link.sin_elevation)
}
