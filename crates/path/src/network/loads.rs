//! Loads of a network's links from demands between its sites, over the routes in force.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use skyhop_units::{Instant, Rate};

use super::sharing::{Routed, shares};
use super::{NetworkRequest, NetworkStep, NetworkSteps, Role};
use crate::request::PathError;
use crate::routing::RoutesTo;

/// Traffic that one site has for another one, without packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Demand {
    /// Index of the site that sends.
    pub from: u32,
    /// Index of the site to which the traffic goes, another one.
    pub to: u32,
    /// Rate on the wire.
    pub rate: Rate,
    /// First instant with the demand.
    pub begins: Instant,
    /// First instant without the demand again; [`Instant::NEVER`] if it lasts.
    pub ends: Instant,
}

/// Link of a network in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Leg {
    /// Laser from one satellite to another.
    Laser(u32, u32),
    /// Downlink of a satellite to all sites.
    Down(u32),
    /// Uplink of a site to all satellites.
    Up(u32),
    /// Downlink of a satellite to all gateways.
    GatewayDown(u32),
    /// Downlinks of all satellites to one site.
    OwnDown(u32),
}

impl Leg {
    /// First link in the order of links, which need not exist.
    pub const FIRST: Self = Self::Laser(0, 0);

    /// Satellite that sends over the link; `None` for an uplink, and for downlinks of several satellites.
    pub(super) fn satellite(self) -> Option<u32> {
        match self {
            Self::Laser(satellite, _) | Self::Down(satellite) | Self::GatewayDown(satellite) => {
                Some(satellite)
            }
            Self::Up(_) | Self::OwnDown(_) => None,
        }
    }
}

/// Properties of the links that demands load.
#[derive(Clone, Copy)]
pub struct Links<'l> {
    /// Largest load of a link.
    pub room: &'l dyn Fn(Leg) -> Rate,
    /// Downlink from a satellite to a site.
    pub last: &'l dyn Fn(u32, u32) -> Leg,
}

/// Loads of links over time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Loads {
    /// Load of each link that is ever used, from each time until the next one; the first time is the start.
    pub legs: BTreeMap<Leg, Vec<(Instant, Rate)>>,
    /// Part of the load of the first link that comes over the second one, in the same form.
    pub over: BTreeMap<[Leg; 2], Vec<(Instant, Rate)>>,
    /// Bits that the demands ask for during the run.
    pub demanded_bits: f64,
    /// Bits of these that have a route.
    pub routed_bits: f64,
    /// Bits that the network carries.
    pub carried_bits: f64,
}

impl NetworkRequest {
    /// Compute the loads of all links for the whole run.
    ///
    /// A demand goes over the route in force, in equal parts over all ways if there are several, and has the same rate on
    /// all links of its route. Where demands do not fit, they get max-min fair shares of their rates: what a link has no
    /// room for does not load other links. A demand loads nothing while it has no route.
    ///
    /// # Errors
    /// The errors of [`Self::validate`].
    pub fn loads(
        &self,
        demands: &[Demand],
        links: Links<'_>,
        threads: usize,
    ) -> Result<Loads, PathError> {
        // Points of presence have links only if packets go to them.
        let senders = demands.iter().map(|demand| demand.from);
        let points = senders.filter(|site| *self.role(*site) == Role::PointOfPresence);
        let sites: BTreeSet<u32> = demands.iter().map(|demand| demand.to).chain(points).collect();
        let destinations: Vec<u32> = sites.into_iter().collect();
        let request = Self { destinations, ..self.clone() };
        let end = Instant::START + self.duration;
        let mut loading = Loading::new(&request, demands, links);
        let mut steps = NetworkSteps::new(request.clone(), threads)?;
        let mut from = Instant::START;
        while from < end {
            let step = steps.step();
            let until = step.until.min(end);
            loading.add(&step, until);
            from = until;
        }
        Ok(loading.loads)
    }
}

/// Loads of the steps so far.
struct Loading<'l> {
    request: &'l NetworkRequest,
    demands: &'l [Demand],
    /// Times at which demands begin and end.
    changes: BTreeSet<Instant>,
    links: Links<'l>,
    /// Links by number, in the order of their first use.
    legs: Vec<Leg>,
    numbers: HashMap<Leg, u32>,
    room_bps: Vec<f64>,
    /// Pairs of links that follow each other, by the numbers of the second and the first one, in the order of their first
    /// use.
    pairs: Vec<[u32; 2]>,
    pair_numbers: HashMap<[u32; 2], u32>,
    /// Routes of the last step, and the antenna over which each site that is behind gateways sends to a satellite.
    routes: Arc<[RoutesTo]>,
    antennas: HashMap<(u32, u32), u32>,
    loads: Loads,
}

/// Demands on their routes at one time.
#[derive(Default)]
struct OnRoutes {
    rates_bps: Vec<f64>,
    /// End of each route in `legs`.
    ends: Vec<usize>,
    legs: Vec<u32>,
    /// Sum of the rates of all demands, those without a route included.
    demanded_bps: f64,
}

impl OnRoutes {
    fn routed(&self) -> Vec<Routed<'_>> {
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        let legs = begins.zip(&self.ends).map(|(begin, end)| &self.legs[begin..*end]);
        let rates = self.rates_bps.iter();
        rates.zip(legs).map(|(rate_bps, legs)| Routed { rate_bps: *rate_bps, legs }).collect()
    }
}

impl<'l> Loading<'l> {
    fn new(request: &'l NetworkRequest, demands: &'l [Demand], links: Links<'l>) -> Self {
        Self {
            request,
            demands,
            changes: demands.iter().flat_map(|demand| [demand.begins, demand.ends]).collect(),
            links,
            legs: Vec::new(),
            numbers: HashMap::new(),
            room_bps: Vec::new(),
            pairs: Vec::new(),
            pair_numbers: HashMap::new(),
            routes: Arc::default(),
            antennas: HashMap::new(),
            loads: Loads::default(),
        }
    }

    /// Add a step, which holds until the given time.
    fn add(&mut self, step: &NetworkStep, until: Instant) {
        self.routes = Arc::clone(&step.routes);
        self.antennas.clear();
        for (site, sights) in (0..).zip(&step.sights) {
            let behind = sights.iter().filter(|sight| sight.antenna != site);
            self.antennas.extend(behind.map(|sight| ((site, sight.satellite), sight.antenna)));
        }
        let within = self.changes.range(step.from..until).copied();
        let mut times: Vec<Instant> = std::iter::once(step.from).chain(within).collect();
        times.dedup();
        times.push(until);
        for pair in times.windows(2) {
            self.add_piece(pair[0], pair[1]);
        }
    }

    /// Add the loads of a time in which neither routes nor demands change.
    fn add_piece(&mut self, from: Instant, until: Instant) {
        let on_routes = self.on_routes(from);
        let routed = on_routes.routed();
        let shares = shares(&routed, &self.room_bps);
        let (mut loads_bps, mut over_bps) =
            (vec![0.0; self.legs.len()], vec![0.0; self.pairs.len()]);
        let lasts_s = until.saturating_since(from).as_secs_f64();
        self.loads.demanded_bits += on_routes.demanded_bps * lasts_s;
        for (demand, share) in routed.iter().zip(shares) {
            let rate_bps = share * demand.rate_bps;
            demand.legs.iter().for_each(|leg| loads_bps[*leg as usize] += rate_bps);
            for pair in demand.legs.windows(2) {
                let number = self.pair_number([pair[1], pair[0]]);
                over_bps.resize(self.pairs.len(), 0.0);
                over_bps[number as usize] += rate_bps;
            }
            self.loads.routed_bits += demand.rate_bps * lasts_s;
            self.loads.carried_bits += rate_bps * lasts_s;
        }
        for (leg, load_bps) in self.legs.iter().zip(loads_bps) {
            record(self.loads.legs.entry(*leg).or_default(), from, load_bps);
        }
        for (pair, load_bps) in self.pairs.iter().zip(over_bps) {
            let legs = pair.map(|number| self.legs[number as usize]);
            record(self.loads.over.entry(legs).or_default(), from, load_bps);
        }
    }

    /// Number of a pair of links.
    fn pair_number(&mut self, pair: [u32; 2]) -> u32 {
        *self.pair_numbers.entry(pair).or_insert_with(|| {
            self.pairs.push(pair);
            self.pairs.len() as u32 - 1
        })
    }

    /// Demands at `at` that have routes.
    fn on_routes(&mut self, at: Instant) -> OnRoutes {
        let mut found = OnRoutes::default();
        let routes = Arc::clone(&self.routes);
        let ways = self.request.routing.ways() as usize;
        let demands = self.demands;
        for demand in demands.iter().filter(|demand| (demand.begins..demand.ends).contains(&at)) {
            let rate_bps = demand.rate.bits_per_second() as f64;
            found.demanded_bps += rate_bps;
            let Ok(place) = self.request.destinations.binary_search(&demand.to) else { continue };
            for of_way in &routes[place * ways..(place + 1) * ways] {
                if self.follow(of_way, demand, &mut found.legs).is_some() {
                    found.rates_bps.push(rate_bps / ways as f64);
                    found.ends.push(found.legs.len());
                } else {
                    found.legs.truncate(found.ends.last().copied().unwrap_or(0));
                }
            }
        }
        found
    }

    /// Append the links of a demand's route; `None` if there is none, and then some may have been appended.
    fn follow(&mut self, routes: &RoutesTo, demand: &Demand, legs: &mut Vec<u32>) -> Option<()> {
        let (mut satellite, _) = routes.up(demand.from)?;
        let antenna = self.antennas.get(&(demand.from, satellite)).copied();
        legs.push(self.number(Leg::Up(antenna.unwrap_or(demand.from))));
        // Routes have no loops; the limit holds if one ever has.
        for _ in 0..routes.all_next().len() {
            let next = routes.next(satellite)?;
            if next == satellite {
                let last = (self.links.last)(satellite, demand.to);
                legs.push(self.number(last));
                return Some(());
            }
            legs.push(self.number(Leg::Laser(satellite, next)));
            satellite = next;
        }
        None
    }

    /// Number of a link.
    fn number(&mut self, leg: Leg) -> u32 {
        if let Some(number) = self.numbers.get(&leg) {
            return *number;
        }
        let number = self.legs.len() as u32;
        self.legs.push(leg);
        self.numbers.insert(leg, number);
        self.room_bps.push((self.links.room)(leg).bits_per_second() as f64);
        number
    }
}

/// Append a load from a time on to the pieces of a link, which had none before its first one.
pub(super) fn record(pieces: &mut Vec<(Instant, Rate)>, from: Instant, load_bps: f64) {
    let load = Rate::from_bits_per_second(load_bps.round() as u64);
    if pieces.is_empty() && from > Instant::START {
        pieces.push((Instant::START, Rate::ZERO));
    }
    if pieces.last().is_none_or(|(_, before)| *before != load) {
        pieces.push((from, load));
    }
}
