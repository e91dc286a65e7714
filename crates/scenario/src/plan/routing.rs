//! Routing of a network; routes of a table are read from its file.

use std::collections::BTreeSet;

use skyhop_path::routing::{NextHop, Node, RoutingKind};
use skyhop_units::Quoted;

use crate::ScenarioError;
use crate::csv_table::{Cells, Columns};
use crate::named::NamedScenario;
use crate::plan::failures::Fallible;
use crate::types::{Routing, SatelliteKey};

/// Columns of a routing table.
const COLUMNS: Columns = Columns { required: &["at", "destination", "next"], optional: &[] };

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
        let mut known = BTreeSet::new();
        self.table_rows(("network.routing.file", name), &COLUMNS, |cells| {
            let row = row(cells, network)?;
            if known.insert((row.at, row.destination)) {
                Ok(row)
            } else {
                Err("a second row of this node and destination".to_owned())
            }
        })
    }
}

/// Next hop of a row.
fn row(cells: &Cells<'_>, network: Fallible<'_>) -> Result<NextHop, String> {
    let destination = (network.site)(cells.get(1)?)?;
    let at = node(cells.get(0)?, network)?;
    let next = match (at, node(cells.get(2)?, network)?) {
        (_, Node::Satellite(next)) => next,
        (Node::Satellite(last), Node::Site(index)) if index == destination => last,
        (_, Node::Site(_)) => {
            let what = "is a site; expected a satellite, or at a satellite the destination";
            return Err(format!("next {} {what}", Quoted(cells.get(2)?)));
        }
    };
    if at == Node::Satellite(next) && node(cells.get(2)?, network)? == at {
        return Err(format!("satellite {next} to itself; expected another node"));
    }
    if at == Node::Site(destination) {
        return Err(format!("{} to itself; expected another destination", Quoted(cells.get(0)?)));
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
