//! Grid of cells on the ground: rows of equal height, and in each row as many equal cells as come closest to squares.

use skyhop_orbit::Geodetic;

use crate::types::GridKeys;

/// Grid of cells, numbered from south to north, and in each row from the longitude -180 deg eastwards.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Grid {
    south_deg: f64,
    height_deg: f64,
    /// Number of the first cell of each row, and at the end the number of all cells.
    firsts: Vec<usize>,
}

impl Grid {
    /// Create the grid of checked keys. The northernmost row may end north of the last limit, but has its centre south
    /// of it.
    pub(crate) fn new(keys: &GridKeys) -> Self {
        let ([south_deg, north_deg], height_deg) = (keys.latitudes, keys.grid.degrees());
        let mut grid = Self { south_deg, height_deg, firsts: vec![0] };
        let mut cells = 0;
        // The tolerance makes rows that fit exactly, such as 0.1 deg in 60 deg, independent of rounding.
        while grid.latitude_deg(grid.rows()) < north_deg - 1e-9 {
            let around_deg = 360.0 * grid.latitude_deg(grid.rows()).to_radians().cos();
            cells += ((around_deg / height_deg).round() as usize).max(1);
            grid.firsts.push(cells);
        }
        grid
    }

    /// Number of all cells.
    pub(crate) fn cells(&self) -> usize {
        self.firsts.last().copied().unwrap_or(0)
    }

    fn rows(&self) -> usize {
        self.firsts.len() - 1
    }

    /// Latitude of the centres of a row, in degrees.
    fn latitude_deg(&self, row: usize) -> f64 {
        self.south_deg + (row as f64 + 0.5) * self.height_deg
    }

    /// Number of cells of a row.
    fn columns(&self, row: usize) -> usize {
        self.firsts[row + 1] - self.firsts[row]
    }

    /// Centres of the cells by number, at the altitude 0.
    pub(crate) fn centres(&self) -> impl Iterator<Item = Geodetic> {
        (0..self.rows()).flat_map(move |row| {
            let width_deg = 360.0 / self.columns(row) as f64;
            (0..self.columns(row)).map(move |column| Geodetic {
                latitude_deg: self.latitude_deg(row),
                longitude_deg: (column as f64 + 0.5) * width_deg - 180.0,
                altitude_m: 0.0,
            })
        })
    }

    /// Number of the cell that contains a position; `None` outside of the grid.
    pub(crate) fn cell_at(&self, position: Geodetic) -> Option<usize> {
        let row = ((position.latitude_deg - self.south_deg) / self.height_deg).floor();
        if !(0.0..self.rows() as f64).contains(&row) {
            return None;
        }
        let row = row as usize;
        let share = (position.longitude_deg + 180.0).rem_euclid(360.0) / 360.0;
        let column = (share * self.columns(row) as f64) as usize;
        Some(self.firsts[row] + column.min(self.columns(row) - 1))
    }
}
