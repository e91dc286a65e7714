//! Network state and goodput of each flow in one interval of an episode.

use skyhop_experiment::{Experiment, FlowPlan};
use skyhop_model::Direction;
use skyhop_policy::{Quantities, Quantity, Question};
use skyhop_units::{Duration, Instant};

/// State of the whole network between two questions to an agent, including what the agent cannot observe.
#[derive(Debug, Clone)]
pub struct Interval<'e> {
    /// Quantities that the agent's connection reported.
    pub reported: Quantities,
    /// End of the interval, since the run's start, s.
    pub at_s: f64,
    /// Rate of the narrowest link of the flow's route at the end of the interval, bit/s.
    pub link_bps: f64,
    /// RTT of that route without queues, at the end of the interval, s.
    pub base_rtt_s: f64,
    /// Goodput of the agent's flow over the interval, bit/s.
    pub goodput_bps: f64,
    /// Goodputs of the other agents' flows that were sending, bit/s.
    pub other_agents_bps: &'e [f64],
    /// Goodputs of the flows without an agent that were sending, bit/s.
    pub non_agents_bps: &'e [f64],
    /// Goodputs of the agent's flow in the most recent intervals, this one last, bit/s.
    pub recent_bps: &'e [f64],
}

/// Names of the [`Interval::figures`], each with its unit.
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
    /// Smoothed RTT, s; the RTT without queues before the first sample.
    pub fn rtt_s(&self) -> f64 {
        let srtt_s = self.reported.get(Quantity::Srtt);
        if srtt_s > 0.0 { srtt_s } else { self.base_rtt_s }
    }

    /// Share of the packets that were marked lost in the interval, 0 to 1.
    pub fn loss(&self) -> f64 {
        let [lost, delivered] = [Quantity::Lost, Quantity::Delivered].map(|q| self.reported.get(q));
        if lost > 0.0 { lost / (lost + delivered) } else { 0.0 }
    }

    /// Goodputs of all agents' flows, the rewarded agent's first, bit/s.
    pub fn all_agents_bps(&self) -> impl Iterator<Item = f64> {
        std::iter::once(self.goodput_bps).chain(self.other_agents_bps.iter().copied())
    }

    /// Sum of the goodputs of all flows but the agent's, bit/s.
    pub fn sum_of_others_bps(&self) -> f64 {
        self.other_agents_bps.iter().chain(self.non_agents_bps).sum()
    }

    /// Number of agents whose flows were sending, including this one.
    pub fn agents(&self) -> usize {
        1 + self.other_agents_bps.len()
    }

    /// Number of flows that were sending, including this one.
    pub fn flows(&self) -> usize {
        self.agents() + self.non_agents_bps.len()
    }

    /// Figures for users and logs, in the order of [`FIGURES`].
    pub fn figures(&self) -> [f64; FIGURES.len()] {
        [
            self.at_s,
            self.reported.get(Quantity::Interval),
            self.goodput_bps,
            self.link_bps,
            self.rtt_s(),
            self.base_rtt_s,
            self.reported.get(Quantity::Lost),
            self.sum_of_others_bps(),
            self.reported.get(Quantity::Cwnd),
            self.reported.get(Quantity::HandoverIn),
        ]
    }
}

/// Return the rate of the narrowest link of a flow's route at `at`, bit/s, and its round trip without queues, s.
pub(crate) fn route_rate_and_rtt(
    experiment: &Experiment,
    flow: &FlowPlan,
    at: Instant,
) -> (f64, f64) {
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

/// Quantities that a connection reported in the interval that ends with the question.
pub(crate) fn reported(question: &Question) -> Quantities {
    Quantities::of(&question.report, question.previous.as_ref(), 0.0)
}

/// Time at which the connection asked the question.
pub(crate) fn question_time(question: &Question) -> Instant {
    Instant::START + Duration::from_nanos(question.report.at_ns)
}
