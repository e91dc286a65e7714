//! Background of a network: the loads of its links, and the bytes of these loads over time.

use std::collections::BTreeMap;

use skyhop_experiment::{BackgroundPlan, NetworkLink, NetworkPlan};
use skyhop_link::{Background, BackgroundMeter, LinkConfig, LinkStats, Piece};
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
        let loads = plan.request.loads(&background.demands, links, threads)?;
        let warning = warning(&loads);
        let of_leg = |(leg, pieces)| (leg, of_link(background, pieces));
        Ok(Self { legs: loads.legs.into_iter().map(of_leg).collect(), warning })
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

fn of_link(background: &BackgroundPlan, pieces: Vec<(Instant, Rate)>) -> Background {
    let piece = |(from, value)| Piece { from, value };
    Background {
        load: pieces.into_iter().map(piece).collect(),
        packet: background.packet,
        burst: background.burst,
    }
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
