//! Background of a network: the loads of its links, and the bytes of these loads over time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use skyhop_experiment::{BackgroundPlan, NetworkLink, NetworkPlan};
use skyhop_link::{Background, BackgroundMeter, Line, LineLoad, LinkConfig, LinkStats, Piece};
use skyhop_net::{Downlink, Layout};
use skyhop_path::PathError;
use skyhop_path::network::{Leg, Links, Loads, Role};
use skyhop_units::{Instant, Rate};

/// Loads of the links of a network; none by default.
#[derive(Default)]
pub(crate) struct Backgrounds {
    legs: BTreeMap<Leg, Background>,
    /// Warning for the reader of the results: what the network does not carry.
    pub(super) warning: Option<String>,
}

impl Backgrounds {
    /// Compute the loads of a plan's background on so many threads; no loads without a background.
    pub(crate) fn new(plan: &NetworkPlan, threads: usize) -> Result<Self, PathError> {
        let Some(background) = &plan.background else { return Ok(Self::default()) };
        let room = |leg: Leg| {
            let rate_bps = rate_of(plan, leg).bits_per_second() as f64;
            Rate::from_bits_per_second((rate_bps * background.most.fraction()) as u64)
        };
        let last = |satellite: u32, site: u32| match plan.request.role(site) {
            Role::Terminal { .. } if plan.downlink_per_site => Leg::OwnDown(site),
            Role::Terminal { .. } => Leg::Down(satellite),
            Role::Gateway | Role::PointOfPresence => Leg::GatewayDown(satellite),
        };
        let links = Links { room: &room, last: &last };
        let loads = if background.recorded.is_empty() {
            plan.request.loads(&background.demands, links, threads)?
        } else {
            Loads::recorded(&background.recorded, &room)
        };
        let warning = warning(&loads);
        let of_leg = |(leg, pieces): (&Leg, &Vec<_>)| {
            let lines = lines(plan, &loads, *leg);
            (*leg, of_link(background, pieces, lines))
        };
        Ok(Self { legs: loads.legs.iter().map(of_leg).collect(), warning })
    }

    /// Add the load of a link to its configuration.
    pub(super) fn load(&mut self, leg: Leg, config: &mut LinkConfig) {
        config.schedule.background = self.legs.remove(&leg).map(Box::new);
    }
}

/// Rate of a link at the start.
fn rate_of(plan: &NetworkPlan, leg: Leg) -> Rate {
    let link = match leg {
        Leg::Laser(from, to) => NetworkLink::Laser(from, to),
        Leg::Down(satellite) => NetworkLink::Down(satellite),
        Leg::Up(site) => NetworkLink::Up(site),
        Leg::GatewayDown(satellite) => NetworkLink::GatewayDown(satellite),
        Leg::OwnDown(site) => NetworkLink::OwnDown(site),
    };
    plan.schedule(link).rate_at(Instant::START)
}

/// Largest number of lines of a link: those that carry most. No line limits what the others carry.
const MOST_LINES: usize = 8;

/// Load of a link with its lines.
fn of_link(
    background: &BackgroundPlan,
    pieces: &[(Instant, Rate)],
    lines: Vec<Line>,
) -> Background {
    let piece = |(from, value): &(Instant, Rate)| Piece { from: *from, value: *value };
    Background {
        load: pieces.iter().map(piece).collect(),
        packet: background.packet,
        burst: background.burst,
        lines,
    }
}

/// Lines over which the load of a link comes.
fn lines(plan: &NetworkPlan, loads: &Loads, leg: Leg) -> Vec<Line> {
    let end = Instant::START + plan.request.duration;
    let before = loads.over.range([leg, Leg::FIRST]..).take_while(|([to, _], _)| *to == leg);
    let line = |([_, over], here): (&[Leg; 2], &Vec<(Instant, Rate)>)| {
        let from = match *over {
            Leg::Laser(from, _) => from,
            Leg::Up(site) => plan.satellites() + site,
            Leg::Down(_) | Leg::GatewayDown(_) | Leg::OwnDown(_) => return None,
        };
        let load = joined(here, &loads.legs[over]);
        Some(Line { from, rate: rate_of(plan, *over), load })
    };
    let mut lines: Vec<Line> = before.filter_map(line).collect();
    lines.sort_by_cached_key(|line| Reverse(carried_bits(&line.load, end)));
    lines.truncate(MOST_LINES);
    lines
}

/// Both loads of a line, over the times at which one of them changes.
fn joined(here: &[(Instant, Rate)], all: &[(Instant, Rate)]) -> Vec<Piece<LineLoad>> {
    let times: BTreeSet<Instant> = here.iter().chain(all).map(|(from, _)| *from).collect();
    let at = |pieces: &[(Instant, Rate)], time: Instant| {
        pieces[pieces.partition_point(|(from, _)| *from <= time) - 1].1
    };
    let piece = |from| Piece { from, value: LineLoad { here: at(here, from), all: at(all, from) } };
    times.into_iter().map(piece).collect()
}

/// Bits that go over a line to a link until the end of the run.
fn carried_bits(load: &[Piece<LineLoad>], end: Instant) -> u64 {
    let ends = load.iter().skip(1).map(|piece| piece.from).chain([end]);
    let bits = |(piece, end): (&Piece<LineLoad>, Instant)| {
        let lasts_s = end.saturating_since(piece.from).as_secs_f64();
        piece.value.here.bits_per_second() as f64 * lasts_s
    };
    load.iter().zip(ends).map(bits).sum::<f64>() as u64
}

/// Share of the demands below which the rest is not worth a warning.
const NEGLIGIBLE: f64 = 1e-3;

/// Warning about demands that the network does not carry.
fn warning(loads: &Loads) -> Option<String> {
    let Loads { demanded_bits, routed_bits, carried_bits, .. } = *loads;
    let missing = demanded_bits - carried_bits;
    (missing > NEGLIGIBLE * demanded_bits).then(|| {
        let share = |bits: f64| 100.0 * bits / demanded_bits;
        format!(
            "the network carries {:.1} % of its background: {:.1} % have no route, and {:.1} % exceed the share \
             network.background.most of a link",
            share(carried_bits),
            share(demanded_bits - routed_bits),
            share(routed_bits - carried_bits)
        )
    })
}

/// Bytes of the loads of all devices of a network.
pub(super) struct Meters(Vec<Option<BackgroundMeter>>);

impl Meters {
    /// Create the meters of all devices, by their numbers.
    pub(super) fn new(layout: &Layout) -> Self {
        let lasers = layout.lasers.iter().map(|laser| &laser.config);
        let [first, others @ ..] = layout.down.as_slice() else { return Self(Vec::new()) };
        let own = layout.downlinks.iter().filter_map(|downlink| match downlink {
            Downlink::Own(config) => Some(&**config),
            Downlink::Shared(_) => None,
        });
        let all = lasers.chain(first).chain(&layout.up).chain(others.iter().flatten()).chain(own);
        let meter = |config: &LinkConfig| {
            config.schedule.background.as_ref().map(|load| BackgroundMeter::new(load))
        };
        Self(all.map(meter).collect())
    }

    /// Add the bytes until `now` to the counters of the devices.
    pub(super) fn add(&mut self, now: Instant, stats: &mut [LinkStats]) {
        for (meter, stats) in self.0.iter_mut().zip(stats) {
            if let Some(meter) = meter {
                stats.background_bytes = meter.bytes_until(now);
            }
        }
    }
}
