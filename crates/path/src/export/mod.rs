//! Exporters of paths for other tools: one file per format.

mod csv;
mod mahimahi;
mod netem;
mod state;

pub use csv::write_csv;
pub use mahimahi::{MahimahiError, write_mahimahi};
pub use netem::write_netem;
