//! Routing of a network; routes of a table are read from its file.

use std::collections::BTreeSet;
use std::fs;

use csv::{ReaderBuilder, StringRecord, Trim};
use skyhop_model::one_line;
use skyhop_path::routing::{NextHop, Node, RoutingKind};
use skyhop_units::Quoted;

use crate::ScenarioError;
use crate::catalogue::find_file;
use crate::error::unreadable;
use crate::named::NamedScenario;
use crate::plan::failures::Fallible;
use crate::types::{Routing, SatelliteKey};

/// Columns of a routing table.
const COLUMNS: [&str; 3] = ["at", "destination", "next"];

impl NamedScenario {
    /// Routing of a network with these satellites and sites.
    ///
    /// # Errors
    /// The file of a table cannot be read, or names unknown satellites or sites.
    pub(crate) fn routing_kind(
        &self,
        routing: &Routing,
        network: Fallible<'_>,
    ) -> Result<RoutingKind, ScenarioError> {
        match routing {
            Routing::Shortest => Ok(RoutingKind::Shortest),
            Routing::Snapshot(keys) => Ok(RoutingKind::Snapshot(keys.every)),
            Routing::EqualCost(keys) => {
                Ok(RoutingKind::EqualCost { slack: keys.slack, ways: keys.ways })
            }
            Routing::Table(keys) => self.next_hops(&keys.file, network).map(RoutingKind::Table),
        }
    }

    fn next_hops(&self, name: &str, network: Fallible<'_>) -> Result<Vec<NextHop>, ScenarioError> {
        let file = find_file(self.base(), name).ok_or_else(|| {
            self.key_error("network.routing.file", format!("no such file: \"{name}\""))
        })?;
        let text = fs::read_to_string(&file).map_err(|source| unreadable(&file, source))?;
        let wrong = |line: u64, what: String| {
            ScenarioError::key(&file.display().to_string(), format!("line {line}"), what)
        };
        let text = text.trim_start_matches('\u{feff}');
        let mut reader = ReaderBuilder::new()
            .has_headers(false)
            .trim(Trim::All)
            .flexible(true)
            .from_reader(text.as_bytes());
        let (mut rows, mut known, mut columns) = (Vec::new(), BTreeSet::new(), None);
        for record in reader.records() {
            let record = record.map_err(|error| {
                wrong(error.position().map_or(1, csv::Position::line), one_line(&error.to_string()))
            })?;
            let line = record.position().map_or(1, csv::Position::line);
            let Some(columns) = &columns else {
                columns = Some(columns_of(&record).map_err(|what| wrong(line, what))?);
                continue;
            };
            let row = row(&record, columns, network).map_err(|what| wrong(line, what))?;
            if !known.insert((row.at, row.destination)) {
                return Err(wrong(line, "a second row of this node and destination".to_owned()));
            }
            rows.push(row);
        }
        Ok(rows)
    }
}

/// Places of the columns in the first line.
fn columns_of(first: &StringRecord) -> Result<[usize; 3], String> {
    let mut places = [0; 3];
    for (place, column) in places.iter_mut().zip(COLUMNS) {
        let found = first.iter().position(|cell| cell.eq_ignore_ascii_case(column));
        *place = found.ok_or_else(|| {
            format!(
                "no column `{column}`; expected the names of columns at, destination and next, separated by commas"
            )
        })?;
    }
    Ok(places)
}

/// Next hop of a line.
fn row(
    record: &StringRecord,
    columns: &[usize; 3],
    network: Fallible<'_>,
) -> Result<NextHop, String> {
    let cell = |column: usize| {
        record.get(columns[column]).ok_or_else(|| format!("no cell `{}`", COLUMNS[column]))
    };
    let destination = (network.site)(cell(1)?)?;
    let at = node(cell(0)?, network)?;
    let next = match (at, node(cell(2)?, network)?) {
        (_, Node::Satellite(next)) => next,
        (Node::Satellite(last), Node::Site(index)) if index == destination => last,
        (_, Node::Site(_)) => {
            let what = "is a site; expected a satellite, or at a satellite the destination";
            return Err(format!("next {} {what}", Quoted(cell(2)?)));
        }
    };
    if at == Node::Satellite(next) && node(cell(2)?, network)? == at {
        return Err(format!("satellite {next} to itself; expected another node"));
    }
    if at == Node::Site(destination) {
        return Err(format!("{} to itself; expected another destination", Quoted(cell(0)?)));
    }
    Ok(NextHop { at, destination, next })
}

/// Satellite or site that a cell names; a number is a satellite.
fn node(text: &str, network: Fallible<'_>) -> Result<Node, String> {
    if let Ok(number) = text.parse() {
        let key = SatelliteKey::Number(number);
        return network.satellite(&key).map(Node::Satellite);
    }
    let site = (network.site)(text);
    let satellite = || network.satellite(&SatelliteKey::Name(text.to_owned())).map(Node::Satellite);
    site.map(Node::Site).or_else(|what| satellite().map_err(|_| what))
}
