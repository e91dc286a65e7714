//! External policies: they decide for connections whose congestion control only reports and obeys
//! (`cc/policy.c`).

use std::collections::VecDeque;
use std::fmt;

use skyhop_units::Duration;

use crate::bindings::{Decision, Report};

/// Counters of a policy's outputs: decisions made, and outputs that were corrected or ignored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OutputCounts {
    /// Number of decisions made, clamped ones included.
    pub decisions: u64,
    /// Number of outputs that were NaN or infinite, which led to no decision.
    pub not_a_number: u64,
    /// Number of outputs outside the card's bounds, which were clamped to them.
    pub clamped: u64,
}

impl OutputCounts {
    /// Count one output and clamp it to the bounds; return `None` if it is not a finite number.
    pub fn accept(&mut self, output_value: f64, [least, most]: [f64; 2]) -> Option<f64> {
        if !output_value.is_finite() {
            self.not_a_number += 1;
            return None;
        }
        let output = output_value.clamp(least, most);
        self.clamped += u64::from(output != output_value);
        self.decisions += 1;
        Some(output)
    }

    /// Sum of the counters of two policies.
    pub fn plus(self, other: Self) -> Self {
        Self {
            decisions: self.decisions + other.decisions,
            not_a_number: self.not_a_number + other.not_a_number,
            clamped: self.clamped + other.clamped,
        }
    }

    /// Return a warning for the user if any output was corrected or ignored. `owner` names the flow or
    /// connection.
    pub fn warning(&self, owner: &str) -> Option<String> {
        let Self { decisions, not_a_number, clamped } = self;
        (not_a_number + clamped > 0).then(|| {
            format!(
                "{owner}: of {} outputs {not_a_number} were not numbers and were ignored, and {clamped} lay outside \
                 the card's bounds and were clamped to them",
                decisions + not_a_number
            )
        })
    }
}

/// Policy that decides for one connection. It gets each report once, in the order of the reports.
pub trait Decider: fmt::Debug + Send {
    /// Decide about a report; return `None` for no decision.
    fn decide(&mut self, report: &Report) -> Option<Decision>;

    /// Return a decision about an earlier report for which [`Self::decide`] had no answer yet, with that
    /// report's time. Each decision is returned once.
    fn late_decision(&mut self) -> Option<Decision> {
        None
    }

    /// Counters of the outputs so far.
    fn outputs(&self) -> OutputCounts {
        OutputCounts::default()
    }
}

/// Decider whose decisions reach the connection after a delay.
pub(crate) struct DelayedDecider {
    decider: Box<dyn Decider>,
    delay_ns: u64,
    /// Decisions under way, with their arrival times in nanoseconds, in order.
    in_transit: VecDeque<(u64, Decision)>,
    newest: Decision,
}

impl DelayedDecider {
    pub(crate) fn new(decider: Box<dyn Decider>, delay: Duration) -> Self {
        Self {
            decider,
            delay_ns: delay.as_nanos(),
            in_transit: VecDeque::new(),
            newest: Decision::default(),
        }
    }

    /// Pass on a report; the decision about it arrives later, even with a delay of zero.
    pub(crate) fn report(&mut self, report: &Report) {
        if let Some(decision) = self.decider.decide(report) {
            self.send(Decision { report_ns: report.at_ns, ..decision });
        }
    }

    fn send(&mut self, decision: Decision) {
        let arrival_ns = decision.report_ns.saturating_add(self.delay_ns);
        self.in_transit.push_back((arrival_ns, decision));
    }

    pub(crate) fn outputs(&self) -> OutputCounts {
        self.decider.outputs()
    }

    /// Return the newest decision that has arrived by `now_ns`.
    pub(crate) fn newest(&mut self, now_ns: u64) -> Decision {
        if let Some(decision) = self.decider.late_decision() {
            self.send(decision);
        }
        while let Some((_, decision)) = self.in_transit.front().filter(|(at, _)| *at <= now_ns) {
            self.newest = *decision;
            self.in_transit.pop_front();
        }
        self.newest
    }
}

impl fmt::Debug for DelayedDecider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DelayedDecider").field("decider", &self.decider).finish_non_exhaustive()
    }
}
