//! What there was to share in an interval, and who got what.

use skyhop_experiment::{Experiment, FlowPlan};
use skyhop_model::Direction;
use skyhop_policy::{Quantities, Quantity, Question};
use skyhop_units::{Duration, Instant};

/// The time between two questions to an agent, as who knows the whole network sees it.
#[derive(Debug, Clone)]
pub struct Interval<'e> {
    /// What the connection reported.
    pub reported: Quantities,
    /// When it ended, since the run's start, s.
    pub at_s: f64,
    /// The rate of the narrowest link of the flow's way at its end, bit/s.
    pub link_bps: f64,
    /// The round trip of that way without queues at its end, s.
    pub base_rtt_s: f64,
    /// What arrived of the agent's flow, over the interval, bit/s.
    pub goodput_bps: f64,
    /// What arrived of each of the other agents' flows that were sending.
    pub agents_bps: &'e [f64],
    /// What arrived of each of the remaining flows that were sending.
    pub others_bps: &'e [f64],
    /// What arrived of the agent's flow in the newest intervals, this one the last.
    pub recent_bps: &'e [f64],
}

/// What [`Interval::figures`] are, with their units.
pub const FIGURES: [&str; 10] = [
    "at_s",
    "interval_s",
    "goodput_bps",
    "link_bps",
    "rtt_s",
    "base_rtt_s",
    "lost_packets",
    "others_bps",
    "cwnd_packets",
    "handover_in_s",
];

impl Interval<'_> {
    /// Smoothed round trip, s; that without queues where there is none yet.
    pub fn rtt_s(&self) -> f64 {
        let srtt_s = self.reported.get(Quantity::Srtt);
        if srtt_s > 0.0 { srtt_s } else { self.base_rtt_s }
    }

    /// Which part of what was sent was marked lost, 0 to 1.
    pub fn loss(&self) -> f64 {
        let [lost, delivered] = [Quantity::Lost, Quantity::Delivered].map(|q| self.reported.get(q));
        if lost > 0.0 { lost / (lost + delivered) } else { 0.0 }
    }

    /// What arrived of each agent's flow, its own first, bit/s.
    pub fn all_agents_bps(&self) -> impl Iterator<Item = f64> {
        std::iter::once(self.goodput_bps).chain(self.agents_bps.iter().copied())
    }

    /// What all others got, bit/s.
    pub fn others_bps(&self) -> f64 {
        self.agents_bps.iter().chain(self.others_bps).sum()
    }

    /// How many agents' flows were sending, this one among them.
    pub fn agents(&self) -> usize {
        1 + self.agents_bps.len()
    }

    /// How many flows were sending, this one among them.
    pub fn flows(&self) -> usize {
        self.agents() + self.others_bps.len()
    }

    /// What to know of it, in the order of [`FIGURES`].
    pub fn figures(&self) -> [f64; FIGURES.len()] {
        [
            self.at_s,
            self.reported.get(Quantity::Interval),
            self.goodput_bps,
            self.link_bps,
            self.rtt_s(),
            self.base_rtt_s,
            self.reported.get(Quantity::Lost),
            self.others_bps(),
            self.reported.get(Quantity::Cwnd),
            self.reported.get(Quantity::HandoverIn),
        ]
    }
}

/// The rate of the narrowest link of a flow's way at `at`, bit/s, and its round trip without queues, s.
pub(crate) fn way_at(experiment: &Experiment, flow: &FlowPlan, at: Instant) -> (f64, f64) {
    let (mut narrowest_bps, mut rtt) = (u64::MAX, flow.extra_rtt);
    for link in &flow.route_at(at).links {
        let link = &experiment.links[usize::from(*link)];
        let rate = link.config(flow.sends()).schedule.rate_at(at);
        narrowest_bps = narrowest_bps.min(rate.bits_per_second());
        for direction in Direction::ALL {
            rtt += link.config(*direction).schedule.delay_at(at);
        }
    }
    (narrowest_bps as f64, rtt.as_secs_f64())
}

/// What a connection reported in the interval that ended with a question.
pub(crate) fn reported(question: &Question) -> Quantities {
    Quantities::of(&question.report, question.before.as_ref(), 0.0)
}

/// When a question was asked.
pub(crate) fn asked_at(question: &Question) -> Instant {
    Instant::START + Duration::from_nanos(question.report.at_ns)
}
