//! Loads of a network's links as an earlier run recorded them: without routes, so that the ways between links are unknown.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::{Deserialize, Serialize};
use skyhop_units::{Instant, Rate};

use super::loads::record;
use super::{Leg, Loads};

/// Bits that a link carried during a sample of a run, which ends at `until`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LegBits {
    /// Begin of the sample.
    pub from: Instant,
    /// End of the sample.
    pub until: Instant,
    /// Link, in one direction.
    pub leg: Leg,
    /// Bits on the wire.
    pub bits: u64,
}

impl Loads {
    /// Compute the loads that samples of a run show; each link carries at most what `room` says. Samples of the run begin
    /// and end at the same times for all links.
    ///
    /// A run does not tell over which laser a link's load comes. The load of a link is divided between the lasers to its
    /// satellite in proportion to their loads, except the laser from where it leads; what is missing has come from sites.
    pub fn recorded(samples: &[LegBits], room: &dyn Fn(Leg) -> Rate) -> Self {
        let mut loads = Self::default();
        let mut by_time: BTreeMap<Instant, (Instant, BTreeMap<Leg, f64>)> = BTreeMap::new();
        for sample in samples {
            let (until, legs) = by_time.entry(sample.from).or_default();
            *until = sample.until;
            let lasts_s = sample.until.saturating_since(sample.from).as_secs_f64();
            let room_bits = room(sample.leg).bits_per_second() as f64 * lasts_s;
            let carried_bits = (sample.bits as f64).min(room_bits);
            loads.demanded_bits += sample.bits as f64;
            loads.carried_bits += carried_bits;
            *legs.entry(sample.leg).or_default() += carried_bits / lasts_s;
        }
        loads.routed_bits = loads.demanded_bits;
        let mut ended = Instant::START;
        for (from, (until, legs)) in by_time {
            if from > ended {
                loads.record_all(ended, &BTreeMap::new());
            }
            loads.record_all(from, &legs);
            ended = until;
        }
        loads.record_all(ended, &BTreeMap::new());
        loads
    }

    /// Record the loads of all links from a time on, in bit/s.
    fn record_all(&mut self, from: Instant, legs: &BTreeMap<Leg, f64>) {
        let known: BTreeSet<Leg> = self.legs.keys().chain(legs.keys()).copied().collect();
        for leg in known {
            let load_bps = legs.get(&leg).copied().unwrap_or(0.0);
            record(self.legs.entry(leg).or_default(), from, load_bps);
        }
        let over = divided(legs);
        let known: BTreeSet<[Leg; 2]> = self.over.keys().chain(over.keys()).copied().collect();
        for pair in known {
            let load_bps = over.get(&pair).copied().unwrap_or(0.0);
            record(self.over.entry(pair).or_default(), from, load_bps);
        }
    }
}

/// Loads of links in bit/s by link and the laser over which they come.
fn divided(legs: &BTreeMap<Leg, f64>) -> BTreeMap<[Leg; 2], f64> {
    let mut incoming: HashMap<u32, Vec<(u32, f64)>> = HashMap::new();
    let mut outgoing_bps: HashMap<u32, f64> = HashMap::new();
    for (leg, load_bps) in legs {
        if let Leg::Laser(from, to) = *leg {
            incoming.entry(to).or_default().push((from, *load_bps));
        }
        if let Some(satellite) = leg.satellite() {
            *outgoing_bps.entry(satellite).or_default() += load_bps;
        }
    }
    let mut over = BTreeMap::new();
    for (leg, load_bps) in legs {
        let Some(satellite) = leg.satellite() else { continue };
        let Some(lasers) = incoming.get(&satellite) else { continue };
        let in_bps: f64 = lasers.iter().map(|(_, load_bps)| load_bps).sum();
        let of_sites_bps = (outgoing_bps[&satellite] - in_bps).max(0.0);
        let leads_to = if let Leg::Laser(_, to) = *leg { Some(to) } else { None };
        let others = || lasers.iter().filter(|(from, _)| Some(*from) != leads_to);
        let all_bps = of_sites_bps + others().map(|(_, load_bps)| load_bps).sum::<f64>();
        for (from, of_laser_bps) in others().filter(|(_, of_laser_bps)| *of_laser_bps > 0.0) {
            let share = of_laser_bps / all_bps.max(*load_bps);
            over.insert([*leg, Leg::Laser(*from, satellite)], load_bps * share);
        }
    }
    over
}
