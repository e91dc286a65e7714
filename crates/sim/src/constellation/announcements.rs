//! Announcements to the flows of a network, each of which hears about its own route.

use std::collections::{BTreeMap, BTreeSet};

use skyhop_app::{AppKind as _, Side};
use skyhop_engine::{finds_none, no_announcements, uses_announcements};
use skyhop_experiment::{Experiment, FlowPlan, NetworkPlan, RouteSignal, seed_for};
use skyhop_model::cc_label;
use skyhop_path::network::RoutePair;
use skyhop_path::routing::way_of;
use skyhop_path::{PathError, PathEvent};
use skyhop_record::{EventRow, NO_LINK};
use skyhop_signal::blind::Estimate;
use skyhop_signal::{Timing, path};
use skyhop_units::{Duration, Instant};

use crate::flow::{Flow, Kind};
use crate::order::seeded_in_order;
use crate::signal::Signal;

/// Events of the routes of flows that listen to announcements, by pair of sites and way; none unless a plan announces
/// them.
#[derive(Default)]
pub(crate) struct RouteEvents(BTreeMap<RoutePair, Vec<PathEvent>>);

impl RouteEvents {
    /// Compute the events of a plan's routes on so many threads.
    pub(crate) fn new(
        experiment: &Experiment,
        plan: &NetworkPlan,
        threads: usize,
    ) -> Result<Self, PathError> {
        if plan.announced.is_none() {
            return Ok(Self::default());
        }
        let flows = seeded_in_order(experiment.seed, &experiment.flows);
        let listening = (0..).zip(flows).filter(|(_, (flow, _))| uses_announcements(flow));
        let pairs: BTreeSet<RoutePair> =
            listening.map(|(index, (flow, _))| pair_of(plan, index, flow)).collect();
        let pairs: Vec<RoutePair> = pairs.into_iter().collect();
        let events = plan.request.route_events(&pairs, threads)?;
        Ok(Self(pairs.into_iter().zip(events).collect()))
    }

    /// Announcements of the routes of all pairs, and the rows of their events.
    fn sources(&self, experiment: &Experiment, plan: &NetworkPlan) -> Vec<(RoutePair, Source)> {
        let Some(signal) = &plan.announced else { return Vec::new() };
        let end = Instant::START + experiment.duration;
        let source = |(number, (pair, events)): (usize, (&RoutePair, &Vec<PathEvent>))| {
            let timing = timing_of(signal, (number, pair), experiment, plan);
            let of_access = pair.sites.iter().filter_map(|site| signal.of_access.get(site));
            let mut events: Vec<&PathEvent> =
                events.iter().chain(of_access.flatten()).filter(|event| event.at < end).collect();
            events.sort_by_key(|event| event.at);
            let announced = timing.announce(path::of_events(events.iter().copied()), end);
            let rows = events.iter().rev().map(|event| EventRow::of_path(event, NO_LINK));
            let signal = Signal::unplanned(&announced, end);
            (*pair, Source { signal, rows: rows.collect(), flows: Vec::new() })
        };
        self.0.iter().enumerate().map(source).collect()
    }
}

/// Sites and way of a flow, whose number in the order of all flows is `index`.
fn pair_of(plan: &NetworkPlan, index: u32, flow: &FlowPlan) -> RoutePair {
    let ways = plan.request.routing.ways();
    RoutePair { sites: flow.sites.unwrap_or_default(), way: way_of(index, ways) }
}

/// Timing of a pair's announcements. The first pair has the seed of a path, and each other one a seed of its own.
fn timing_of(
    signal: &RouteSignal,
    (number, pair): (usize, &RoutePair),
    experiment: &Experiment,
    plan: &NetworkPlan,
) -> Timing {
    if number == 0 {
        return signal.timing;
    }
    let [client, server] = pair.sites.map(|site| &plan.request.sites[site as usize].name);
    let label = format!("signal {client} - {server} {}", pair.way);
    Timing { seed: seed_for(experiment.seed, &label), ..signal.timing }
}

/// Source of announcements, and the flows that hear them.
struct Source {
    signal: Signal,
    /// Rows of the announced events, in reverse order of time.
    rows: Vec<EventRow>,
    /// Flows that hear the announcements, by their numbers in the order of all flows.
    flows: Vec<u32>,
}

impl Source {
    /// Source without events of its own, which some flows hear.
    fn heard_by(signal: Signal, flows: Vec<u32>) -> Self {
        Self { signal, rows: Vec::new(), flows }
    }

    fn next(&self) -> Option<Instant> {
        let row = self.rows.last().map(|row| Instant::from_nanos(row.t_ns as u64));
        self.signal.next().into_iter().chain(row).min()
    }
}

/// All announcements of a run over a network.
#[derive(Default)]
pub(super) struct Announcements {
    sources: Vec<Source>,
    /// Source to which the packets of each flow to its client and to its server are evidence of handovers; empty unless
    /// sources estimate handovers.
    evidence: Vec<[Option<u32>; 2]>,
    /// Warning about congestion controls without announcements.
    pub(super) warning: Option<String>,
}

impl Announcements {
    /// Prepare the announcements of a run with these flows.
    pub(super) fn new(
        experiment: &Experiment,
        plan: &NetworkPlan,
        flows: &[Flow],
        routes: &RouteEvents,
    ) -> Self {
        if experiment.blind.is_some() {
            return Self::by_estimates(experiment, flows);
        }
        if plan.announced.is_some() {
            return Self::of_routes(experiment, plan, flows, routes);
        }
        if experiment.announcements.is_empty() {
            return Self::default();
        }
        let tcp = (0..).zip(flows).filter(|(_, flow)| matches!(flow.kind, Kind::Tcp(_)));
        let all = Source::heard_by(Signal::new(experiment), tcp.map(|(index, _)| index).collect());
        Self { sources: vec![all], ..Self::default() }
    }

    /// Announcements of the handovers of each flow's own route.
    fn of_routes(
        experiment: &Experiment,
        plan: &NetworkPlan,
        flows: &[Flow],
        routes: &RouteEvents,
    ) -> Self {
        let (pairs, mut sources): (Vec<RoutePair>, Vec<Source>) =
            routes.sources(experiment, plan).into_iter().unzip();
        let mut in_vain = BTreeSet::new();
        let mut told = BTreeSet::new();
        for (index, flow) in listening(flows) {
            let Ok(place) = pairs.binary_search(&pair_of(plan, index, &flow.plan)) else {
                continue;
            };
            sources[place].flows.push(index);
            let names = if sources[place].next().is_some() { &mut told } else { &mut in_vain };
            names.insert(cc_label(flow.plan.cc().unwrap_or_default()));
        }
        in_vain.retain(|name| !told.contains(name));
        let warning =
            (!in_vain.is_empty()).then(|| no_announcements(&in_vain, &finds_none("path")));
        Self { sources, warning, ..Self::default() }
    }

    /// Announcements of the handovers that the site of each sender estimates from the packets of the other site.
    fn by_estimates(experiment: &Experiment, flows: &[Flow]) -> Self {
        let mut places: BTreeMap<[u32; 2], u32> = BTreeMap::new();
        let mut sources: Vec<Source> = Vec::new();
        for (index, flow) in listening(flows) {
            let place =
                *places.entry(towards(&flow.plan, sender(&flow.plan))).or_insert_with(|| {
                    sources.push(Source::heard_by(Signal::new(experiment), Vec::new()));
                    sources.len() as u32 - 1
                });
            sources[place as usize].flows.push(index);
        }
        let to = |flow: &Flow, side| places.get(&towards(&flow.plan, side)).copied();
        let evidence =
            flows.iter().map(|flow| [Side::Client, Side::Server].map(|side| to(flow, side)));
        Self { evidence: evidence.collect(), sources, warning: None }
    }

    /// Number of sources of announcements.
    pub(super) fn len(&self) -> usize {
        self.sources.len()
    }

    /// Time at which a source has to be visited next.
    pub(super) fn next(&self, source: usize) -> Option<Instant> {
        self.sources[source].next()
    }

    /// Pass the announcements of a source that are due now to its flows, and add the rows of events.
    pub(super) fn visit(
        &mut self,
        source: usize,
        now: Instant,
        flows: &mut [Flow],
        rows: &mut Vec<EventRow>,
    ) {
        let Source { signal, rows: of_routes, flows: hearing } = &mut self.sources[source];
        let is_due = |row: &EventRow| row.t_ns <= now.as_nanos() as i64;
        while let Some(row) = of_routes.pop_if(|row| is_due(row)) {
            add_rows(&row, hearing, flows, rows);
        }
        while let Some((handover, row)) = signal.pop(now) {
            if let Some(row) = row {
                add_rows(&EventRow { link: NO_LINK, ..row }, hearing, flows, rows);
            }
            for flow in hearing.iter() {
                if let Kind::Tcp(tcp) = &mut flows[*flow as usize].kind {
                    tcp.announce(handover);
                }
            }
        }
    }

    /// Note that a packet of a flow has arrived at the site of an end, so long after it was sent.
    #[inline]
    pub(super) fn arrived(&mut self, flow: u32, to: Side, at: Instant, delay: Duration) {
        let Some(sources) = self.evidence.get(flow as usize) else { return };
        if let Some(source) = sources[to as usize] {
            self.sources[source as usize].signal.arrived(at, delay);
        }
    }

    /// The clearest estimate of the handover grid at the end of the run, if sources estimate it.
    pub(super) fn estimate(&self) -> Option<Estimate> {
        let estimates = self.sources.iter().filter_map(|source| source.signal.estimate());
        estimates.max_by(Estimate::by_clarity)
    }
}

/// Flows whose congestion controls use announcements, with their numbers in the order of all flows.
fn listening(flows: &[Flow]) -> impl Iterator<Item = (u32, &Flow)> {
    (0..).zip(flows).filter(|(_, flow)| uses_announcements(&flow.plan))
}

/// End of a flow that sends most.
fn sender(flow: &FlowPlan) -> Side {
    flow.traffic.app().sends()
}

/// Site of an end of a flow, and the site from which its packets come.
fn towards(flow: &FlowPlan, side: Side) -> [u32; 2] {
    let sites = flow.sites.unwrap_or_default();
    [sites[side as usize], sites[side.other() as usize]]
}

/// Add a row for each flow that hears about an event before it ends.
fn add_rows(row: &EventRow, hearing: &[u32], flows: &[Flow], rows: &mut Vec<EventRow>) {
    let plans = hearing.iter().map(|flow| &flows[*flow as usize].plan);
    let running = plans.filter(|plan| (plan.stop.as_nanos() as i64) > row.t_ns);
    rows.extend(running.map(|plan| EventRow { flow: Some(plan.id as i32), ..row.clone() }));
}
