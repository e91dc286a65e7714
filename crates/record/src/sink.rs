//! Sinks: destinations of a run's pieces.

use std::collections::BTreeMap;
use std::convert::Infallible;

use serde::{Deserialize, Serialize};
use skyhop_model::{AppTable, PATH_LINK};
use skyhop_wire::CapturedPacket;

use crate::{AppRow, EventRow, FileError, FlowSample, LinkSample, ProbeRow, RouteRow, Summary};

/// Piece of a run's results. A sink gets the pieces in the order in which the run produces them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Piece {
    /// Header, the first piece: facts known before the run begins.
    Begin(RunHeader),
    /// Rows of flows.parquet, ordered by time, then flow.
    Flows(Vec<FlowSample>),
    /// Rows of link.parquet, ordered by time, then link, then direction.
    Link(Vec<LinkSample>),
    /// Rows of events.parquet, ordered by time.
    Events(Vec<EventRow>),
    /// Rows of probes.parquet, ordered by sequence number within each probe.
    Probes(Vec<ProbeRow>),
    /// Rows of routes.parquet, ordered by time.
    Routes(Vec<RouteRow>),
    /// Packets of the flows that the sink takes packets of, ordered by time.
    Packets(Vec<CapturedPacket>),
    /// Rows of an application's table, in the order in which the transactions ended.
    App(AppTable, Vec<AppRow>),
    /// Content of run.json, the last piece but one.
    Run(serde_json::Value),
    /// Content of summary.json, the last piece.
    Summary(Box<Summary>),
}

/// Facts about a run that are known before it begins.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunHeader {
    /// Version of the results' format, [`SCHEMA_VERSION`](crate::SCHEMA_VERSION).
    pub schema: u32,
    /// Name of the engine.
    pub engine: String,
    /// Names of the links, by their number in rows.
    pub links: Vec<String>,
    /// Names of a network's sites, by their index; empty for runs over paths.
    #[serde(default)]
    pub sites: Vec<String>,
}

/// Destination of a run's pieces: a directory, a stream or memory.
pub trait Sink {
    /// Write the next piece.
    ///
    /// # Errors
    /// The piece cannot be written or sent.
    fn write(&mut self, piece: Piece) -> Result<(), FileError>;

    /// Whether the sink takes the packets of a flow.
    fn takes_packets_of(&self, flow: u32) -> bool {
        let _ = flow;
        false
    }
}

/// Sink that keeps only a run's summary; rows are discarded.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SummaryOnly {
    /// Content of summary.json; `None` until the run has ended.
    pub summary: Option<Box<Summary>>,
}

impl Sink for SummaryOnly {
    fn write(&mut self, piece: Piece) -> Result<(), FileError> {
        if let Piece::Summary(summary) = piece {
            self.summary = Some(summary);
        }
        Ok(())
    }
}

/// Sink that keeps a run in memory, for tests and short runs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RunData {
    /// Header of the run.
    pub begin: RunHeader,
    /// Rows of flows.parquet, by time.
    pub flows: Vec<FlowSample>,
    /// Rows of link.parquet, by time.
    pub link: Vec<LinkSample>,
    /// Rows of events.parquet, by time.
    pub events: Vec<EventRow>,
    /// Rows of probes.parquet, ordered by probe, then sequence number.
    pub probes: Vec<ProbeRow>,
    /// Rows of routes.parquet, by time.
    pub routes: Vec<RouteRow>,
    /// Rows of the applications' tables.
    pub apps: BTreeMap<AppTable, Vec<AppRow>>,
    /// Content of run.json, as JSON.
    pub run: serde_json::Value,
    /// Content of summary.json, parsed.
    pub summary: Summary,
}

impl RunData {
    /// Name of the link with this number.
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
            Piece::Routes(rows) => self.routes.extend(rows),
            Piece::Packets(_) => {}
            Piece::App(table, rows) => self.apps.entry(table).or_default().extend(rows),
            Piece::Run(run) => self.run = run,
            Piece::Summary(summary) => self.summary = *summary,
        }
        Ok(())
    }
}

impl Sink for RunData {
    fn write(&mut self, piece: Piece) -> Result<(), FileError> {
        match self.add(piece) {
            Ok(()) => Ok(()),
        }
    }
}
