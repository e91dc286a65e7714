//! Recording of results: from an engine's measurements to files.
//!
//! An engine passes cumulative counters and events to a [`Recorder`], which turns them into rows, run.json
//! and summary.json and writes these, piece by piece, to a [`Sink`]: a run directory ([`RunWriter`]), a pipe
//! or socket ([`StreamSink`]), or memory ([`RunData`], [`SummaryOnly`]). Pieces are freed once they are
//! written, so that memory does not grow with the run's length.

mod app_detail;
mod capture;
mod counters;
mod directory;
mod planned;
mod recorder;
mod replacing;
mod rows;
mod segments;
mod sink;
mod stream;
mod tables;
mod tally;

pub use app_detail::{AppDetail, CallColumns, CallSummary, VideoSummary};
pub use capture::{Capture, Capturing};
pub use counters::{AckRtts, ConnectionEnd, FlowEnd, FlowState, RunConclusion};
pub use directory::{RunDirectory, RunWriter};
pub use recorder::Recorder;
pub use rows::{
    AppRow, AppSummary, EventRow, FlowSample, FlowSummary, GridSummary, LinkSample, LinkSummary,
    NO_LINK, ProbeRow, ProbeSummary, Quantiles, RouteRow, SCHEMA_VERSION, Summary,
};
pub use sink::{Piece, RunData, RunHeader, Sink, SummaryOnly};
pub use skyhop_files::FileError;
pub use stream::{PieceReader, StreamSink, send};
pub use tables::table_columns;
