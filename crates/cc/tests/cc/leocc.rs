//! LeoCC: times of its reconfigurations and their effects, on a path of 10 packets per ms and 40 ms.

use crate::path::{Moment, Sender};
use skyhop_cc::{CongestionControl, Handover, Instance, Module};
use skyhop_model::PhaseKind;

const TX_US: u64 = 100;
const RTT_US: u64 = 40_000;
const BDP: u32 = (RTT_US / TX_US) as u32;
const SECOND: u64 = 1_000_000;
/// Time of the path's clock at the start of the connection.
const START: u64 = SECOND;
const ANNOUNCED: (&str, &str) = ("source", "announced");

fn sender(params: &[(&str, &str)]) -> Sender {
    Sender::new(Instance::new(Module::find("leocc").unwrap(), params).unwrap(), TX_US, RTT_US)
}

/// Times of a window of about half a BDP: (from, until), in ms since the start.
fn halves(trace: &[Moment]) -> Vec<(u64, u64)> {
    let mut spans: Vec<(u64, u64)> = Vec::new();
    for moment in
        trace.iter().filter(|moment| moment.cwnd <= BDP / 2 + 20 && moment.at_us > 3 * SECOND)
    {
        let at_ms = (moment.at_us - START) / 1000;
        match spans.last_mut() {
            Some((_, until)) if at_ms < *until + 100 => *until = at_ms,
            _ => spans.push((at_ms, at_ms)),
        }
    }
    spans
}

/// PROBE_RTT begins 100 ms before 12 s, 27 s, ... after the start, and lasts 200 ms plus the time until so
/// little is in flight.
#[test]
fn by_its_own_schedule_it_looks_every_15_seconds() {
    let spans = halves(&sender(&[]).run_until(START + 44 * SECOND));
    assert_eq!(spans.len(), 3, "{spans:?}");
    for ((from, until), due) in spans.into_iter().zip([11_900, 26_900, 41_900]) {
        assert!((due..due + 60).contains(&from), "{from} for {due}");
        assert!((200..400).contains(&(until - from)), "{from} to {until}");
    }
}

#[test]
fn the_schedule_is_what_the_parameters_say() {
    let params = [("offset", "15 s"), ("period", "5 s"), ("guard_before", "0.2 s")];
    let spans = halves(&sender(&params).run_until(START + 22 * SECOND));
    assert_eq!(spans.len(), 2, "{spans:?}");
    assert!(
        spans.iter().zip([14_800, 19_800]).all(|((from, _), due)| from.abs_diff(due) < 60),
        "{spans:?}"
    );
}

/// PROBE_RTT comes once for each announcement; without one only when the minimum RTT is 20 s old.
#[test]
fn announced_it_looks_then_and_only_then() {
    let mut sender = sender(&[ANNOUNCED]);
    let mut trace = sender.run_until(START + 4 * SECOND);
    let at_ns = (START + 6 * SECOND) * 1000;
    sender.cc.announce(Handover { at_ns, valid: 1, ..Handover::default() });
    trace.extend(sender.run_until(START + 18 * SECOND));
    let spans = halves(&trace);
    assert_eq!(spans.len(), 1, "{spans:?}");
    assert!((5_900..5_960).contains(&spans[0].0), "{spans:?}");
    let phases = sender.cc.take_phases();
    assert_eq!(phases.len(), 1);
    assert_eq!(phases[0].kind, PhaseKind::ProbeRtt);
    assert!((phases[0].begin_ns / 1_000_000).abs_diff(6_900) < 60, "{phases:?}");
}

/// Announcements for the distant past or for a time that never comes have no effect.
#[test]
fn what_was_announced_long_ago_or_for_ever_does_no_harm() {
    for at_ns in [1, u64::MAX] {
        let mut sender = sender(&[ANNOUNCED, ("min_rtt_window", "1 s"), ("probe_rtt_time", "0")]);
        sender.run_until(START + 4 * SECOND);
        sender.cc.announce(Handover { at_ns, valid: 1, ..Handover::default() });
        let trace = sender.run_until(START + 8 * SECOND);
        assert_eq!(halves(&trace), [], "{at_ns}");
    }
}

/// LeoCC adapts to the new path at once, whether it is shorter, longer, or has another rate.
#[test]
fn it_takes_the_new_path_as_it_is() {
    for (rtt_us, tx_us) in [(20_000, 100), (80_000, 100), (40_000, 50), (40_000, 200)] {
        let mut sender = sender(&[]);
        sender.run_until(START + 11_950_000);
        (sender.rtt_us, sender.tx_us) = (rtt_us, tx_us);
        sender.run_until(START + 15 * SECOND);
        let before = sender.tp.delivered;
        let trace = sender.run_until(START + 17 * SECOND);
        let share = f64::from(sender.tp.delivered - before) * tx_us as f64 / 2e6;
        assert!(share > 0.95, "{rtt_us} us, {tx_us} us per packet: {share}");
        // No standing queue: at most two BDPs are in flight, and less on average.
        let mean_us =
            trace.iter().map(|moment| u64::from(moment.rtt_us)).sum::<u64>() / trace.len() as u64;
        assert!(mean_us < rtt_us * 3 / 2, "{rtt_us} us, {tx_us} us per packet: {mean_us}");
    }
}
