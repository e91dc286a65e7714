//! What the tables of some applications have beside what all have, and what is summed up of it.

use arrow_array::{Int32Array, Int64Array};
use serde::{Deserialize, Serialize};
use skyhop_app::{Dash, Detail};
use skyhop_files::Column;
use skyhop_model::AppTable;
use skyhop_video::ChunkRow;

use crate::AppRow;

/// What a row has that is not of every application.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub enum AppDetail {
    /// Nothing.
    #[default]
    None,
    /// Of chunks of films.
    Chunk(ChunkRow),
}

impl AppDetail {
    pub(crate) const fn new(detail: &Detail) -> Self {
        match *detail {
            Detail::None => Self::None,
            Detail::Chunk(row) => Self::Chunk(row),
        }
    }

    fn chunk(&self) -> Option<&ChunkRow> {
        if let Self::Chunk(row) = self { Some(row) } else { None }
    }
}

/// The columns of a table that not all have.
pub(crate) fn detail_columns(table: AppTable, rows: &[AppRow]) -> Vec<Column> {
    match table {
        AppTable::Chunks => chunk_columns(rows),
        AppTable::Requests | AppTable::Bursts | AppTable::Messages => Vec::new(),
    }
}

/// A column of chunks: its name, and where it stands.
type ChunkColumn = (&'static str, fn(&ChunkRow) -> Option<u64>);

fn chunk_columns(rows: &[AppRow]) -> Vec<Column> {
    let chunks = || rows.iter().map(|row| row.detail.chunk());
    let track: Int32Array = chunks().map(|chunk| chunk.map(|chunk| chunk.track as i32)).collect();
    let number: Int32Array = chunks().map(|chunk| chunk.map(|chunk| chunk.chunk as i32)).collect();
    let mut columns = vec![Column::optional("chunk", number), Column::optional("track", track)];
    let others: [ChunkColumn; 9] = [
        ("bitrate_bps", |chunk| Some(chunk.bitrate_bps)),
        ("size_bytes", |chunk| Some(chunk.size_bytes)),
        ("asked_ns", |chunk| Some(chunk.asked_ns)),
        ("arrived_ns", |chunk| Some(chunk.arrived_ns)),
        ("stall_ns", |chunk| Some(chunk.stall_ns)),
        ("buffer_ns", |chunk| Some(chunk.buffer_ns)),
        ("waited_ns", |chunk| Some(chunk.waited_ns)),
        ("abandoned_bytes", |chunk| Some(chunk.abandoned_bytes)),
        ("predicted_bps", |chunk| chunk.predicted_bps),
    ];
    columns.extend(others.into_iter().map(|(name, value)| {
        let of = |chunk: Option<&ChunkRow>| chunk.and_then(value).map(|number| number as i64);
        Column::optional(name, chunks().map(of).collect::<Int64Array>())
    }));
    columns
}

/// Of a film: what its viewer saw of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct VideoSummary {
    /// From the session's beginning until the picture moved.
    pub startup_ns: u64,
    /// How long it stood still after that.
    pub stall_ns: u64,
    /// How often.
    pub stalls: u64,
    /// How often a chunk had another track than the one before.
    pub switches: u64,
    /// The mean of the chunks' bitrates.
    pub mean_bitrate_bps: u64,
    /// What came for nothing.
    pub abandoned_bytes: u64,
    /// What it was worth per chunk to the QoE that the controller wanted.
    pub qoe: Option<f64>,
}

impl VideoSummary {
    pub(crate) fn of(dash: &Dash, rows: &[ChunkRow]) -> Self {
        let (summary, qoe) = dash.summary(rows);
        Self {
            startup_ns: summary.startup_ns,
            stall_ns: summary.stall_ns,
            stalls: summary.stalls,
            switches: summary.switches,
            mean_bitrate_bps: summary.mean_bitrate_bps.round() as u64,
            abandoned_bytes: summary.abandoned_bytes,
            qoe: qoe.filter(|_| !rows.is_empty()),
        }
    }
}
