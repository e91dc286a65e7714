//! Where the pieces of a run go.

use std::collections::BTreeMap;
use std::convert::Infallible;

use serde::{Deserialize, Serialize};
use skyhop_model::{AppTable, PATH_LINK};

use crate::{AppRow, EventRow, FileError, FlowSample, LinkSample, ProbeRow, Summary};

/// A piece of what a run leaves behind, in the order in which it comes to be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Piece {
    /// The first: what is known before the run begins.
    Begin(Begin),
    /// Rows of flows.parquet, ordered by time, then flow.
    Flows(Vec<FlowSample>),
    /// Rows of link.parquet, ordered by time, then link, then direction.
    Link(Vec<LinkSample>),
    /// Rows of events.parquet, ordered by time.
    Events(Vec<EventRow>),
    /// Rows of probes.parquet, ordered by sequence number within each probe.
    Probes(Vec<ProbeRow>),
    /// Rows of an application's table, in the order in which they ended.
    App(AppTable, Vec<AppRow>),
    /// Near the end: run.json.
    Run(serde_json::Value),
    /// The last: summary.json.
    Summary(Box<Summary>),
}

/// What is known of a run before it begins.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begin {
    /// [`SCHEMA_VERSION`](crate::SCHEMA_VERSION).
    pub schema: u32,
    /// Which engine runs it.
    pub engine: String,
    /// The links' names, by their number in rows.
    pub links: Vec<String>,
}

/// Takes the pieces of a run as they come.
pub trait Sink {
    /// Takes the next piece.
    ///
    /// # Errors
    /// It cannot be written or passed on.
    fn take(&mut self, piece: Piece) -> Result<(), FileError>;
}

/// Of a run its summary alone, for those who want no more: rows are forgotten as they come.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SummaryOnly {
    /// summary.json; `None` until the run has ended.
    pub summary: Option<Box<Summary>>,
}

impl Sink for SummaryOnly {
    fn take(&mut self, piece: Piece) -> Result<(), FileError> {
        if let Piece::Summary(summary) = piece {
            self.summary = Some(summary);
        }
        Ok(())
    }
}

/// A run in memory, for tests and for short ones.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RunData {
    /// What was known before it began.
    pub begin: Begin,
    /// Rows of flows.parquet.
    pub flows: Vec<FlowSample>,
    /// Rows of link.parquet.
    pub link: Vec<LinkSample>,
    /// Rows of events.parquet.
    pub events: Vec<EventRow>,
    /// Rows of probes.parquet, ordered by probe, then sequence number.
    pub probes: Vec<ProbeRow>,
    /// Rows of the applications' tables.
    pub apps: BTreeMap<AppTable, Vec<AppRow>>,
    /// run.json.
    pub run: serde_json::Value,
    /// summary.json.
    pub summary: Summary,
}

impl RunData {
    /// The name of a link by its number.
    pub fn link_name(&self, link: u16) -> &str {
        self.begin.links.get(usize::from(link)).map_or(PATH_LINK, String::as_str)
    }

    fn add(&mut self, piece: Piece) -> Result<(), Infallible> {
        match piece {
            Piece::Begin(begin) => self.begin = begin,
            Piece::Flows(rows) => self.flows.extend(rows),
            Piece::Link(rows) => self.link.extend(rows),
            Piece::Events(rows) => self.events.extend(rows),
            Piece::Probes(rows) => {
                self.probes.extend(rows);
                self.probes.sort_by_key(|row| (row.probe, row.seq));
            }
            Piece::App(table, rows) => self.apps.entry(table).or_default().extend(rows),
            Piece::Run(run) => self.run = run,
            Piece::Summary(summary) => self.summary = *summary,
        }
        Ok(())
    }
}

impl Sink for RunData {
    fn take(&mut self, piece: Piece) -> Result<(), FileError> {
        match self.add(piece) {
            Ok(()) => Ok(()),
        }
    }
}
