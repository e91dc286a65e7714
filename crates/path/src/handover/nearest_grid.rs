//! The nearest satellite, at the moments of a UTC grid.

use super::on_grid::OnGrid;
use crate::request::UtcGrid;

/// The smallest delay.
pub(super) fn policy(grid: UtcGrid) -> OnGrid {
    OnGrid::new(grid, |_, _, link| -link.delay_s)
}
