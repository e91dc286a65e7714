//! Log of the routes between sites: a row for each change.

use std::collections::BTreeSet;

use skyhop_path::network::NetworkStep;
use skyhop_record::RouteRow;

/// Routes of the pairs of sites between which packets go, in both directions.
pub(crate) struct RouteLog {
    /// Destinations in ascending order, and the number of ways to each.
    destinations: Vec<u32>,
    ways: u32,
    /// Last row of each pair and way.
    last: Vec<RouteRow>,
    /// Rows since they were last taken.
    rows: Vec<RouteRow>,
    /// Whether a step has been logged.
    has_begun: bool,
}

impl RouteLog {
    /// Prepare the log of routes between the sites of flows.
    pub(crate) fn new(pairs: &[[u32; 2]], destinations: &[u32], ways: u32) -> Self {
        let both = pairs.iter().flat_map(|&[client, server]| [(client, server), (server, client)]);
        let pairs: BTreeSet<(u32, u32)> = both.collect();
        let row = |(from, to): (u32, u32)| {
            (0..ways).map(move |way| RouteRow { from, to, way, ..RouteRow::default() })
        };
        Self {
            destinations: destinations.to_vec(),
            ways,
            last: pairs.into_iter().flat_map(row).collect(),
            rows: Vec::new(),
            has_begun: false,
        }
    }

    /// Add rows for the routes that differ from those of the step before; for the first step, for all.
    pub(crate) fn add(&mut self, step: &NetworkStep) {
        for last in &mut self.last {
            let Ok(place) = self.destinations.binary_search(&last.to) else { continue };
            let routes = &step.routes[place * self.ways as usize + last.way as usize];
            let mut hops = last.satellites.iter();
            let is_same = self.has_begun
                && routes.satellites(last.from).all(|node| hops.next() == Some(&node))
                && hops.next().is_none();
            if is_same {
                continue;
            }
            last.t_ns = step.from.as_nanos() as i64;
            last.satellites = routes.satellites(last.from).collect();
            let delay = routes.up(last.from).map(|(_, delay)| delay);
            last.delay_ns = delay.map(|delay| delay.as_nanos() as i64);
            self.rows.push(last.clone());
        }
        self.has_begun = true;
    }

    /// Take the rows since the last call, ordered by time.
    pub(crate) fn take(&mut self) -> Vec<RouteRow> {
        std::mem::take(&mut self.rows)
    }
}
