//! Tests of runs that would take days or gigabytes, and of runs with much data at a time.

use std::cell::Cell;

use skyhop_engine::{Control, Engine, Unattended};

use skyhop_model::Counts;
use skyhop_record::{FileError, Piece, RunData, Sink};
use skyhop_sim::Simulator;
use skyhop_units::Duration;

use crate::scenario::{experiment, fixed};

/// Control that interrupts a run at the first poll.
#[derive(Default)]
struct Impatient {
    asked: Cell<u32>,
}

impl Control for Impatient {
    fn progress(&mut self, _elapsed: Duration, _total: Duration) {}

    fn interrupted(&mut self) -> bool {
        self.asked.set(self.asked.get() + 1);
        true
    }

    fn wall_s(&self) -> f64 {
        0.0
    }
}

/// Sink that counts the pieces in which a run's events arrive.
#[derive(Default)]
struct Pieces {
    run: RunData,
    of_events: usize,
    largest: usize,
}

impl Sink for Pieces {
    fn write(&mut self, piece: Piece) -> Result<(), FileError> {
        if let Piece::Events(rows) = &piece {
            self.of_events += 1;
            self.largest = self.largest.max(rows.len());
        }
        self.run.write(piece)
    }
}

const FAST: &str =
    "[path]\nkind = \"fixed\"\nrtt = \"0 ms\"\n[link]\nrate = \"10000 Gbit/s\"\n[[flow]]\n";

fn refusal(text: &str) -> String {
    let refused = Simulator.check(&experiment(text)).unwrap_err();
    format!("{}: {}", refused.key, refused.what)
}

#[test]
fn runs_that_would_take_days_are_refused_unless_forced() {
    let message = refusal(FAST);
    assert!(
        message.starts_with(
            "run.duration: makes up to 49,537,648,612 packets to simulate; at most 10,000,000,000:"
        ),
        "{message}"
    );
    assert!(message.ends_with("or say --force-size (run.force_size = true)"), "{message}");
    let forced = format!("{FAST}[run]\nforce_size = true");
    Simulator.check(&experiment(&forced)).unwrap();
    let (mut run, mut control) = (RunData::default(), Impatient::default());
    let ended = Simulator.run(&experiment(FAST), &mut run, &mut control);
    assert!(ended.unwrap_err().is_input(), "it is not begun either");
}

#[test]
fn packets_in_flight_have_to_fit_into_memory() {
    let message = refusal(
        "[path]\nkind = \"fixed\"\nrtt = \"600 ms\"\n[link]\nrate = \"10000 Gbit/s\"\n\
         [tcp]\nrmem = { max = \"1000 GB\" }\n[[flow]]\n[run]\nduration = \"1 s\"",
    );
    assert!(
        message.starts_with("link.rate: makes up to 198 GB of packets in flight; at most 4 GB:"),
        "{message}"
    );
}

#[test]
fn a_bound_counts_what_flows_can_send() {
    // The link has ten terabits per second, of which these flows use very little.
    for flow in [
        "bytes = \"1 GB\"",
        "kind = \"probe\"",
        "app = { kind = \"constant-rate\", rate = \"10 Mbit/s\" }",
        "start = \"59.99 s\"",
        "stop = \"1 ms\"",
        "extra_rtt = \"50 ms\"",
    ] {
        Simulator
            .check(&experiment(&format!("{FAST}{flow}")))
            .unwrap_or_else(|e| panic!("{flow}: {e:?}"));
    }
}

#[test]
fn a_run_with_rare_samples_can_be_interrupted() {
    let text =
        fixed(10_000, 1, 1_000_000, 3_600, "sample = \"1 h\"\nforce_size = true\n[[flow]]\n");
    let (mut run, mut control) = (RunData::default(), Impatient::default());
    let ended = Simulator.run(&experiment(&text), &mut run, &mut control).unwrap();
    assert!(ended.interrupted);
    assert_eq!(control.asked.get(), 1);
    assert!(run.flows.is_empty() && run.summary.virtual_s < 3_600.0, "{}", run.summary.virtual_s);
}

#[test]
fn a_million_lost_packets_come_in_pieces_and_in_order() {
    let text = format!("{FAST}[run]\nduration = \"8 ms\"\nsample = \"8 ms\"");
    let mut pieces = Pieces::default();
    Simulator.run(&experiment(&text), &mut pieces, &mut Unattended).unwrap();
    let Pieces { run, of_events, largest } = pieces;
    let lost = run.summary.link.drops.total();
    assert!(lost > 500_000, "{lost}");
    assert!(of_events > 1 && (largest as u64) < lost, "{of_events} of {largest} at most");
    assert!(run.events.is_sorted_by_key(|row| row.t_ns));
    assert_eq!(run.events.iter().filter(|row| row.t_ns > 0).count() as u64, lost);
}
