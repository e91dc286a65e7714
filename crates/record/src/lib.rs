//! Path files and run directories: the only place that writes results.

mod error;
mod pairs_file;
mod parquet_file;
mod path_file;
mod run;
mod run_directory;
mod summarise;
mod tables;

pub use error::RecordError;
pub use pairs_file::PairsWriter;
pub use parquet_file::replace_file;
pub use path_file::{path_to_parquet, read_path, write_path};
pub use run::{
    EventRow, FlowSample, FlowSummary, GridSummary, LinkSample, LinkSummary, ProbeRow,
    ProbeSummary, Quantiles, RunData, Summary,
};
pub use run_directory::RunDirectory;
pub use summarise::{FlowTotals, flow_summary, link_summary, probe_summary};
