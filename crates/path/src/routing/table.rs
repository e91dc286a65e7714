//! Routing by a table that never changes.

use serde::{Deserialize, Serialize};
use skyhop_units::Duration;

use super::{NetworkView, RoutesTo, Routing};
use crate::request::PathError;

/// Node of a network at which a row of a table holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Node {
    /// Satellite with this number.
    Satellite(u32),
    /// Site with this index.
    Site(u32),
}

/// Row of a table: the next hop of packets at a node to a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct NextHop {
    /// Node where the packets are.
    pub at: Node,
    /// Index of the site to which they go.
    pub destination: u32,
    /// Satellite to which they go next; at the satellite that sends them to the destination, this satellite itself.
    pub next: u32,
}

/// Routes of a table to every destination.
pub(crate) struct Table {
    /// Rows for each destination.
    rows: Vec<Rows>,
}

/// Rows of a table for one destination.
struct Rows {
    /// Next node of each satellite.
    next: Vec<Option<u32>>,
    /// Satellite to which each site sends.
    up: Vec<Option<u32>>,
}

impl Table {
    /// Prepare the routes of a network with so many satellites and sites.
    pub(crate) fn new(
        rows: &[NextHop],
        destinations: &[u32],
        [satellites, sites]: [usize; 2],
    ) -> Self {
        let empty = || Rows { next: vec![None; satellites], up: vec![None; sites] };
        let mut all: Vec<Rows> = destinations.iter().map(|_| empty()).collect();
        for row in rows {
            let Ok(place) = destinations.binary_search(&row.destination) else { continue };
            match row.at {
                Node::Satellite(number) => all[place].next[number as usize] = Some(row.next),
                Node::Site(index) => all[place].up[index as usize] = Some(row.next),
            }
        }
        Self { rows: all }
    }
}

impl Routing for Table {
    fn routes(&mut self, view: &NetworkView<'_>) -> Option<Vec<RoutesTo>> {
        let with_delays = |(destination, rows): (&u32, &Rows)| {
            let up = |(site, first): (usize, &Option<u32>)| {
                let first = (*first)?;
                let delay_s = view.delay_s(&rows.next, [site, *destination as usize], first)?;
                Some((first, Duration::from_secs_f64(delay_s)))
            };
            RoutesTo::listed(rows.next.clone(), (0..).zip(&rows.up).map(up).collect())
        };
        Some(view.destinations.iter().zip(&self.rows).map(with_delays).collect())
    }

    fn uses_existing_hops(&self) -> bool {
        false
    }
}

/// Check that a network with so many satellites and sites has the nodes of a table, and that no route has a loop.
pub(crate) fn check(rows: &[NextHop], [satellites, sites]: [usize; 2]) -> Result<(), PathError> {
    let wrong = |what: String, expected| Err(PathError::Option { what, expected });
    for row in rows {
        let at = match row.at {
            Node::Satellite(number) => (number as usize) < satellites,
            Node::Site(index) => (index as usize) < sites,
        };
        if !at || row.next as usize >= satellites || row.destination as usize >= sites {
            return wrong(format!("the table has the row {row:?}"), "nodes of the network");
        }
    }
    let mut destinations: Vec<u32> = rows.iter().map(|row| row.destination).collect();
    destinations.sort_unstable();
    destinations.dedup();
    let table = Table::new(rows, &destinations, [satellites, sites]);
    for (destination, of_one) in destinations.iter().zip(&table.rows) {
        if let Some(satellite) = on_loop(&of_one.next) {
            let what = format!(
                "the table's routes to site {destination} have a loop over satellite {satellite}"
            );
            return wrong(what, "routes that end");
        }
    }
    Ok(())
}

/// A satellite on a loop; `None` if every route ends.
fn on_loop(next: &[Option<u32>]) -> Option<u32> {
    const UNKNOWN: u32 = u32::MAX;
    // Number of the walk that reached each satellite first.
    let mut walks = vec![UNKNOWN; next.len()];
    for walk in 0..next.len() as u32 {
        let mut satellite = walk;
        while walks[satellite as usize] == UNKNOWN {
            walks[satellite as usize] = walk;
            match next[satellite as usize] {
                Some(following) if following != satellite => satellite = following,
                _ => break,
            }
        }
        let ends = next[satellite as usize].is_none_or(|following| following == satellite);
        if !ends && walks[satellite as usize] == walk {
            return Some(satellite);
        }
    }
    None
}
