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
    CongestionState, Direction, Drops, EventRow, FlowSample, FlowSummary, GridSummary, Handovers,
    LinkSample, LinkSummary, LossReason, PATH_LINK, ProbeRow, ProbeSummary, Quantiles, RowKind,
    RunData, Summary,
};
pub use run_directory::RunDirectory;
pub use summarise::{FlowTotals, flow_summary, link_summary, probe_summary};
