//! The policy at work for each connection, and what it came to.

use std::collections::HashMap;

use hdrhistogram::Histogram;
use skyhop_cc::bindings::SKYHOP_LAST_REPORT;
use skyhop_cc::{Decider as _, Decision, Outputs, Report};
use skyhop_host::error::HostError;
use skyhop_policy::{Pilot, Policy};

/// The longest time to a decision that is told from longer ones.
const LONGEST_NS: u64 = 60_000_000_000;
/// A connection whose last report was lost is gone for sure after so long …
const SILENT_NS: u64 = 4 * 3_600_000_000_000;
/// … which is looked at so often.
const SWEEP_NS: u64 = 600_000_000_000;

/// How long it was from reports in the kernel until the decisions about them were there.
#[derive(Debug)]
pub struct Latencies(Histogram<u64>);

impl Latencies {
    /// None so far.
    ///
    /// # Errors
    /// There is no room for it.
    pub(crate) fn new() -> Result<Self, HostError> {
        let made = Histogram::new_with_bounds(1, LONGEST_NS, 3);
        made.map(Self).map_err(|error| HostError::System {
            action: "cannot create a histogram".to_owned(),
            reason: error.to_string(),
        })
    }

    pub(crate) fn note(&mut self, ns: u64) {
        self.0.saturating_record(ns);
    }

    /// A quantile, in microseconds; `None` where nothing was decided.
    pub fn quantile_us(&self, quantile: f64) -> Option<f64> {
        (!self.0.is_empty()).then(|| self.0.value_at_quantile(quantile) as f64 / 1e3)
    }
}

/// What was decided.
#[derive(Debug)]
pub struct Served {
    /// Connections that have reported.
    pub connections: u64,
    /// What the policy has said to them.
    pub outputs: Outputs,
    /// From report to decision.
    pub latencies: Latencies,
    /// Why nothing more is decided, where it was not asked to stop.
    pub failure: Option<String>,
}

/// The policy at work for each connection.
#[derive(Debug)]
pub(crate) struct Pilots {
    policy: Policy,
    of: HashMap<u64, Seat>,
    connections: u64,
    /// What was said to connections that have ended.
    gone: Outputs,
    swept_ns: u64,
}

/// A connection's.
#[derive(Debug)]
struct Seat {
    pilot: Pilot,
    heard_ns: u64,
}

/// What follows from a report.
#[derive(Debug, PartialEq)]
pub(crate) enum Answer {
    Decision(Decision),
    /// Nothing was decided.
    Nothing,
    /// The connection has ended.
    Ended,
}

impl Pilots {
    pub(crate) fn new(policy: Policy) -> Self {
        Self { policy, of: HashMap::new(), connections: 0, gone: Outputs::default(), swept_ns: 0 }
    }

    pub(crate) fn hear(&mut self, report: &Report) -> Answer {
        self.sweep(report.at_ns);
        if report.flags & SKYHOP_LAST_REPORT != 0 {
            self.forget(report.id);
            return Answer::Ended;
        }
        let seat = self.of.entry(report.id).or_insert_with(|| {
            self.connections += 1;
            Seat { pilot: Pilot::new(&self.policy), heard_ns: 0 }
        });
        seat.heard_ns = report.at_ns;
        match seat.pilot.decide(report) {
            Some(decision) => Answer::Decision(Decision { report_ns: report.at_ns, ..decision }),
            None => Answer::Nothing,
        }
    }

    pub(crate) fn connections(&self) -> u64 {
        self.connections
    }

    pub(crate) fn outputs(&self) -> Outputs {
        let outputs = self.of.values().map(|seat| seat.pilot.outputs());
        outputs.fold(self.gone, Outputs::plus)
    }

    fn forget(&mut self, connection: u64) {
        let gone = self.of.remove(&connection).map(|seat| seat.pilot.outputs());
        self.gone = self.gone.plus(gone.unwrap_or_default());
    }

    /// Where the ring was full, a connection's last report was not heard: a service that goes on for months must not keep
    /// its pilot. One that was only idle begins anew.
    fn sweep(&mut self, now_ns: u64) {
        if now_ns < self.swept_ns.saturating_add(SWEEP_NS) {
            return;
        }
        self.swept_ns = now_ns;
        let is_silent = |seat: &Seat| now_ns.saturating_sub(seat.heard_ns) > SILENT_NS;
        let silent = self.of.iter().filter(|(_, seat)| is_silent(seat));
        let silent: Vec<u64> = silent.map(|(connection, _)| *connection).collect();
        silent.into_iter().for_each(|connection| self.forget(connection));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use skyhop_policy::{Card, Memory, Model};

    use super::*;

    /// Says what it sees.
    #[derive(Debug)]
    struct Echo;

    impl Model for Echo {
        fn run(&self, seen: &[f32], _: &mut Memory) -> Option<f64> {
            Some(f64::from(seen[0]))
        }
    }

    fn pilots() -> Pilots {
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
        Pilots::new(Policy::with_model(card.unwrap(), Arc::new(Echo)))
    }

    fn report(id: u64, at_ns: u64, cwnd: u32) -> Report {
        Report { id, at_ns, cwnd, ..Report::default() }
    }

    #[test]
    fn a_decision_answers_its_report_and_each_connection_is_counted_once() {
        let mut pilots = pilots();
        for (id, at_ns) in [(1, 10), (2, 20), (1, 30)] {
            match pilots.hear(&report(id, at_ns, 10)) {
                Answer::Decision(decision) => {
                    assert_eq!((decision.report_ns, decision.cwnd), (at_ns, 15));
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((pilots.connections(), pilots.outputs().decisions), (2, 3));
    }

    #[test]
    fn what_was_said_to_those_that_have_ended_counts_on() {
        let mut pilots = pilots();
        pilots.hear(&report(1, 10, 40));
        let last = Report { flags: SKYHOP_LAST_REPORT, ..report(1, 20, 40) };
        assert_eq!(pilots.hear(&last), Answer::Ended);
        assert!(pilots.of.is_empty());
        // 40 packets are 4 of an output of at most 1.
        let expected = Outputs { decisions: 1, not_a_number: 0, clamped: 1 };
        assert_eq!(pilots.outputs(), expected);
        // One that chose the name and never sent.
        assert_eq!(pilots.hear(&Report { id: 2, ..last }), Answer::Ended);
        assert_eq!(pilots.connections(), 1);
    }

    #[test]
    fn a_connection_whose_end_was_not_heard_is_forgotten_and_what_was_said_to_it_is_not() {
        let mut pilots = pilots();
        pilots.hear(&report(1, SWEEP_NS, 10));
        pilots.hear(&report(2, SILENT_NS, 10));
        assert_eq!(pilots.of.len(), 2);
        pilots.hear(&report(2, SWEEP_NS + SILENT_NS + 1, 10));
        assert_eq!(pilots.of.keys().collect::<Vec<_>>(), [&2]);
        assert_eq!(pilots.outputs().decisions, 3);
    }
}
