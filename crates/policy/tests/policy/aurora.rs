//! Tests of the card of Aurora against its agent's published rules, restated.

use std::path::Path;

use skyhop_cc::Report;
use skyhop_policy::{Actor, Card, Observer};

use crate::draws::{Draws, reports};

fn card() -> Card {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/policies/aurora.toml");
    Card::parse(&std::fs::read_to_string(file).unwrap()).unwrap()
}

/// Monitor interval as its sender reports it: bytes and seconds.
#[derive(Clone, Copy)]
struct Interval {
    bytes_sent: f64,
    bytes_acked: f64,
    rtts: Option<[f64; 3]>,
    length: f64,
}

/// Latency inflation, latency ratio and send ratio of an interval; `min_latency` is the minimum so far.
fn features(interval: &Interval, min_latency: &mut Option<f64>) -> [f64; 3] {
    let Interval { bytes_sent, bytes_acked, rtts, length } = *interval;
    let [first, last, mean] = rtts.unwrap_or_default();
    if mean > 0.0 {
        *min_latency = Some(min_latency.map_or(mean, |least: f64| least.min(mean)));
    }
    let ratio = min_latency.filter(|_| mean > 0.0).map_or(1.0, |least| mean / least);
    let (send_rate, throughput) = (8.0 * bytes_sent / length, 8.0 * bytes_acked / length);
    let send_ratio = if throughput > 0.0 { send_rate / throughput } else { 1.0 };
    [(last - first) / length, ratio, send_ratio]
}

#[test]
fn it_sees_what_its_authors_agent_sees() {
    for seed in 1..20 {
        let (mut observer, mut draws) = (Observer::new(&card()), Draws(seed));
        // The first report shows nothing from before the connection.
        let (mut least, mut history) = (None, vec![0.0; 30]);
        let (mut sent, mut delivered) = (0, 0);
        for mut report in reports(seed) {
            let bytes_sent = u64::from(draws.below(300_000));
            sent += bytes_sent;
            report.bytes_sent = sent;
            let newly = report.delivered - std::mem::replace(&mut delivered, report.delivered);
            let has_samples = report.rtt_samples > 0;
            if has_samples {
                [report.rtt_first_us, report.rtt_last_us] = [20_000, 20_000 + draws.below(9_000)];
            }
            let interval = Interval {
                bytes_sent: bytes_sent as f64,
                bytes_acked: f64::from(newly) * f64::from(report.mss),
                rtts: has_samples.then(|| {
                    let mean = report.rtt_sum_us as f64 / f64::from(report.rtt_samples);
                    [report.rtt_first_us.into(), report.rtt_last_us.into(), mean]
                        .map(|us: f64| us / 1e6)
                }),
                length: 0.02,
            };
            history.extend(features(&interval, &mut least));
            let seen = observer.observe(&report, 0.0).to_vec();
            for (place, (seen, expected)) in
                seen.iter().zip(&history[history.len() - 30..]).enumerate()
            {
                let difference = (f64::from(*seen) - expected).abs();
                let bound = 1e-5 * expected.abs().max(1.0);
                assert!(difference < bound, "{seed}, {place}: {seen} {expected}");
            }
        }
    }
}

/// Rate of its sender in Mbit/s: starts at 2, grows or falls by a share of the output, within 0.25 to 1,000.
#[test]
fn it_does_what_its_authors_sender_does() {
    let (mut actor, mut draws, mut rate) = (Actor::new(&card().action), Draws(5), 2.0_f64);
    for step in 0..5_000 {
        // The outputs lean upwards for long, then downwards, so that both bounds are reached.
        let lean = if step < 2_500 { 20_000 } else { 120_000 };
        let output = (f64::from(draws.below(140_001)) - f64::from(lean)) / 10_000.0;
        let delta = output * 0.025;
        rate = if delta >= 0.0 { rate * (1.0 + delta) } else { rate / (1.0 - delta) };
        rate = rate.clamp(0.25, 1_000.0);
        let report = Report { srtt_us: 50_000, mss: 1_448, cwnd: 10, ..Report::default() };
        let decision = actor.act(output, &report);
        let expected = rate * 1e6 / 8.0;
        assert!((decision.pacing_rate as f64 - expected).abs() <= 1.0 + 1e-9 * expected);
        // A window of twice the rate's packets in flight does not limit.
        let under_way = expected * 0.05 / 1_448.0;
        assert_eq!(decision.cwnd, (2.0 * under_way).ceil().max(4.0) as u32);
    }
}
