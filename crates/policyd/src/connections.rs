//! Policy state of each connection, and the totals of its decisions.

use std::collections::HashMap;

use hdrhistogram::Histogram;
use skyhop_cc::bindings::SKYHOP_LAST_REPORT;
use skyhop_cc::{Decider as _, Decision, OutputCounts, Report};
use skyhop_host::error::HostError;
use skyhop_policy::{Policy, PolicyDecider};
use tracing::{debug, info};

/// Upper bound of the latency histogram, ns; longer latencies count as this one.
const MAX_LATENCY_NS: u64 = 60_000_000_000;
/// Time without a report after which a connection is removed, because its last report must have been lost, ns.
const SILENCE_LIMIT_NS: u64 = 4 * 3_600_000_000_000;
/// Time between two searches for silent connections, ns.
const SWEEP_INTERVAL_NS: u64 = 600_000_000_000;

/// Histogram of the latencies from a report in the kernel to the decision about it, in ns.
#[derive(Debug)]
pub struct Latencies(Histogram<u64>);

impl Latencies {
    /// Create an empty histogram.
    ///
    /// # Errors
    /// The histogram's memory cannot be allocated.
    pub(crate) fn new() -> Result<Self, HostError> {
        let made = Histogram::new_with_bounds(1, MAX_LATENCY_NS, 3);
        made.map(Self).map_err(|error| HostError::System {
            action: "cannot create a histogram".to_owned(),
            reason: error.to_string(),
        })
    }

    pub(crate) fn record(&mut self, ns: u64) {
        self.0.saturating_record(ns);
    }

    /// Quantile (0 to 1) of the latencies, in microseconds; `None` if there was no decision.
    pub fn quantile_us(&self, quantile: f64) -> Option<f64> {
        (!self.0.is_empty()).then(|| self.0.value_at_quantile(quantile) as f64 / 1e3)
    }
}

/// Totals of a server's decisions, returned when it stops.
#[derive(Debug)]
pub struct DecisionSummary {
    /// Number of connections that sent at least one report other than their last.
    pub connections: u64,
    /// Counters of the policy's outputs, summed over all connections.
    pub outputs: OutputCounts,
    /// Latencies from report to decision.
    pub latencies: Latencies,
    /// Error that ended the server before it was asked to stop; `None` if it was asked.
    pub failure: Option<String>,
}

/// Policy state of all connections, by the id in their reports.
#[derive(Debug)]
pub(crate) struct Connections {
    policy: Policy,
    active: HashMap<u64, Connection>,
    total: u64,
    /// Output counters of connections that have ended.
    ended: OutputCounts,
    last_sweep_ns: u64,
}

/// Policy state of one connection, and the time of its last report (`CLOCK_MONOTONIC`).
#[derive(Debug)]
struct Connection {
    decider: PolicyDecider,
    last_report_ns: u64,
}

/// Result of a report.
#[derive(Debug, PartialEq)]
pub(crate) enum ReportOutcome {
    Decision(Decision),
    NoDecision,
    /// The report was the connection's last one.
    Ended,
}

impl Connections {
    pub(crate) fn new(policy: Policy) -> Self {
        Self {
            policy,
            active: HashMap::new(),
            total: 0,
            ended: OutputCounts::default(),
            last_sweep_ns: 0,
        }
    }

    pub(crate) fn handle_report(&mut self, report: &Report) -> ReportOutcome {
        self.remove_silent(report.at_ns);
        if report.flags & SKYHOP_LAST_REPORT != 0 {
            self.remove(report.id);
            return ReportOutcome::Ended;
        }
        let connection = self.active.entry(report.id).or_insert_with(|| {
            self.total += 1;
            info!(connection = report.id, total = self.total, "connection begins to report");
            Connection { decider: PolicyDecider::new(&self.policy), last_report_ns: 0 }
        });
        connection.last_report_ns = report.at_ns;
        match connection.decider.decide(report) {
            Some(decision) => {
                ReportOutcome::Decision(Decision { report_ns: report.at_ns, ..decision })
            }
            None => ReportOutcome::NoDecision,
        }
    }

    /// Number of connections that have reported, ended ones included.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    pub(crate) fn outputs(&self) -> OutputCounts {
        let outputs = self.active.values().map(|connection| connection.decider.outputs());
        outputs.fold(self.ended, OutputCounts::plus)
    }

    fn remove(&mut self, id: u64) {
        let ended = self.active.remove(&id).map(|connection| connection.decider.outputs());
        debug!(connection = id, outputs = ?ended, "connection ended, or is silent");
        self.ended = self.ended.plus(ended.unwrap_or_default());
    }

    /// Remove connections that have not reported for [`SILENCE_LIMIT_NS`].
    ///
    /// A last report is lost if the ring buffer is full; a service that runs for months must not keep the state of such
    /// connections. A connection that was only idle starts again with a fresh state.
    fn remove_silent(&mut self, now_ns: u64) {
        if now_ns < self.last_sweep_ns.saturating_add(SWEEP_INTERVAL_NS) {
            return;
        }
        self.last_sweep_ns = now_ns;
        let is_silent = |connection: &Connection| {
            now_ns.saturating_sub(connection.last_report_ns) > SILENCE_LIMIT_NS
        };
        let silent = self.active.iter().filter(|(_, connection)| is_silent(connection));
        let silent: Vec<u64> = silent.map(|(id, _)| *id).collect();
        silent.into_iter().for_each(|id| self.remove(id));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use skyhop_policy::{Card, Memory, Model};

    use super::*;

    /// Model whose output is its first observed feature.
    #[derive(Debug)]
    struct Echo;

    impl Model for Echo {
        fn run(&self, observation: &[f32], _: &mut Memory) -> Option<f64> {
            Some(f64::from(observation[0]))
        }
    }

    fn connections() -> Connections {
        let card = Card::parse(
            r#"
            title = "echo"
            [observation]
            steps = 1
            features = [{ of = "cwnd", times = 0.1 }]
            [network]
            file = "none.onnx"
            output = [-1.0, 1.0]
            [action]
            moves = "cwnd"
            shape = "step"
            step = 0.5
            "#,
        );
        Connections::new(Policy::with_model(card.unwrap(), Arc::new(Echo)))
    }

    fn report(id: u64, at_ns: u64, cwnd: u32) -> Report {
        Report { id, at_ns, cwnd, ..Report::default() }
    }

    #[test]
    fn a_decision_answers_its_report_and_each_connection_is_counted_once() {
        let mut connections = connections();
        for (id, at_ns) in [(1, 10), (2, 20), (1, 30)] {
            match connections.handle_report(&report(id, at_ns, 10)) {
                ReportOutcome::Decision(decision) => {
                    assert_eq!((decision.report_ns, decision.cwnd), (at_ns, 15));
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((connections.total(), connections.outputs().decisions), (2, 3));
    }

    #[test]
    fn outputs_of_ended_connections_stay_in_the_total() {
        let mut connections = connections();
        connections.handle_report(&report(1, 10, 40));
        let last = Report { flags: SKYHOP_LAST_REPORT, ..report(1, 20, 40) };
        assert_eq!(connections.handle_report(&last), ReportOutcome::Ended);
        assert!(connections.active.is_empty());
        // 40 packets times 0.1 is 4, which is clamped to the output's bound of 1.
        let expected = OutputCounts { decisions: 1, not_a_number: 0, clamped: 1 };
        assert_eq!(connections.outputs(), expected);
        // The last report of a connection that chose the name and never sent data.
        assert_eq!(connections.handle_report(&Report { id: 2, ..last }), ReportOutcome::Ended);
        assert_eq!(connections.total(), 1);
    }

    #[test]
    fn a_silent_connection_is_removed_and_its_outputs_still_count() {
        let mut connections = connections();
        connections.handle_report(&report(1, SWEEP_INTERVAL_NS, 10));
        connections.handle_report(&report(2, SILENCE_LIMIT_NS, 10));
        assert_eq!(connections.active.len(), 2);
        connections.handle_report(&report(2, SWEEP_INTERVAL_NS + SILENCE_LIMIT_NS + 1, 10));
        assert_eq!(connections.active.keys().collect::<Vec<_>>(), [&2]);
        assert_eq!(connections.outputs().decisions, 3);
    }
}
