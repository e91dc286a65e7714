//! Tests of the card of Sage against its authors' server, restated in the server's own units: bytes, microseconds,
//! Mbit/s.

use std::path::Path;

use skyhop_cc::{Decider as _, Report};
use skyhop_needs::onnx::{Attribute, File};
use skyhop_policy::{Actor, Card, Observer, Policy, PolicyDecider};

use crate::draws::Draws;

fn text() -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/policies/sage.toml");
    std::fs::read_to_string(file).unwrap()
}

fn card() -> Card {
    Card::parse(&text()).unwrap()
}

const FEATURES: usize = 69;

/// Last `many` values of a list, or all if there are fewer.
fn last(values: &[f64], many: usize) -> &[f64] {
    &values[values.len().saturating_sub(many)..]
}

fn sum(values: &[f64]) -> f64 {
    values.iter().sum()
}

fn mean(values: &[f64]) -> f64 {
    sum(values) / values.len() as f64
}

fn max(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

fn min(values: &[f64]) -> f64 {
    values.iter().copied().fold(1e6, f64::min)
}

/// State that its server keeps per connection, in full from the beginning: windows are cut from it.
#[derive(Default)]
struct Server {
    before: Report,
    took_us: Vec<f64>,
    delivered: Vec<f64>,
    lost: Vec<f64>,
    sent: Vec<f64>,
    unacked: Vec<f64>,
    rates: Vec<f64>,
    sending: Vec<f64>,
    /// Values of rtt, thr, rtt_rate, rtt_var, inflight and lost, each of which the server sees in three windows.
    smoothed: [Vec<f64>; 6],
    cwnd: f64,
    action: f64,
}

impl Server {
    fn new(began_ns: u64) -> Self {
        let before = Report { at_ns: began_ns, ..Report::default() };
        Self { before, cwnd: 10.0, ..Self::default() }
    }

    fn observe(&mut self, report: &Report) -> Vec<f64> {
        let before = std::mem::replace(&mut self.before, *report);
        let mss = f64::from(report.mss);
        let us = (report.at_ns - before.at_ns) as f64 / 1e3;
        let grown = |now: u64, before: u64| (now - before) as f64;
        let sent = grown(report.bytes_sent, before.bytes_sent);
        self.took_us.push(us);
        self.delivered.push(f64::from(report.delivered - before.delivered) * mss);
        self.lost.push(f64::from(report.lost_out.saturating_sub(before.lost_out)) * mss);
        self.sent.push(sent);
        self.unacked.push(f64::from(report.packets_out) * mss);
        let of_100 = |bytes: &[f64]| 8.0 * sum(last(bytes, 100)) / sum(last(&self.took_us, 100));
        let (dr, lost) = (of_100(&self.delivered), of_100(&self.lost));
        let dr_before = self.rates.last().copied().unwrap_or(0.0);
        let best = |rates: &[f64]| match max(last(rates, 200)) {
            0.0 => 1.0,
            best => best,
        };
        let best_before = best(&self.rates);
        self.rates.push(dr);
        let best = best(&self.rates);
        let ratio = f64::from(report.min_rtt_us) / f64::from(report.srtt_us);
        // The kernel computes it in whole bytes per second.
        let delivery_rate = match (report.rate_packets, report.rate_interval_us) {
            (0, _) | (_, 0) => 0.0,
            (packets, us) => (f64::from(packets) * mss * 1e6 / f64::from(us)).floor(),
        };
        self.sending.push((sent / (us / 1e6)).floor());
        let acked = grown(report.bytes_acked, before.bytes_acked) / (us / 1e6);
        let of_sent = sum(last(&self.sent, 100));
        let now = [
            f64::from(report.srtt_us) / 100_000.0,
            delivery_rate / 125_000.0 / 100.0,
            ratio,
            f64::from(report.mdev_us) / 1000.0,
            f64::from(report.packets_out) / 1000.0,
            f64::from(report.lost_out) / 100.0,
        ];
        let mut seen = vec![now[0], now[3], now[1], f64::from(report.state)];
        for (kept, now) in self.smoothed.iter_mut().zip(now) {
            kept.push(now);
            for window in [10, 200, 1000] {
                let window = last(kept, window);
                seen.extend([mean(window), min(window), max(window)]);
            }
        }
        seen.extend([
            us / f64::from(report.min_rtt_us),
            ratio,
            lost / 100.0,
            acked / max(last(&self.sending, 5000)),
            if dr_before > 0.0 { dr / dr_before } else { dr },
            best * f64::from(report.min_rtt_us) / (f64::from(report.cwnd) * mss * 8.0),
            dr / 100.0,
            mean(last(&self.unacked, 100)).floor() / if of_sent > 0.0 { of_sent } else { 1.0 },
            best / best_before,
            best / 100.0,
            self.action,
        ]);
        seen
    }

    /// Window that the server derives from its agent's action.
    fn act(&mut self, output: f64) -> u32 {
        self.action = (output * 1000.0).round() / 1000.0;
        self.cwnd *= self.action.exp2();
        // The server clamps its own window only if the rounded one is outside the bounds.
        self.cwnd = match self.cwnd.ceil() {
            whole if whole < 4.0 => 4.0,
            whole if whole > 20_000.0 => 20_000.0,
            _ => self.cwnd,
        };
        self.cwnd.ceil() as u32
    }
}

const BEGAN_NS: u64 = 3_000_000_000;

/// Reports of a connection, some 10 ms apart. It pauses in the middle, for longer than the server remembers its best
/// rate.
fn reports(seed: u64, many: usize) -> Vec<Report> {
    let mut draws = Draws(seed);
    let mut report = Report { at_ns: BEGAN_NS, began_ns: BEGAN_NS, mss: 1448, ..Report::default() };
    let mut reports = Vec::with_capacity(many);
    for step in 0..many {
        let pauses = (400..720).contains(&step);
        report.at_ns += 1000 * u64::from(10_000 + draws.below(4000));
        report.delivered += if pauses { 0 } else { draws.below(300) };
        report.bytes_acked += u64::from(draws.below(300)) * 1448;
        report.bytes_sent += u64::from(200 + draws.below(300)) * 1448;
        report.lost_out = if draws.below(4) == 0 { draws.below(40) } else { 0 };
        report.packets_out = draws.below(900);
        report.cwnd = 4 + draws.below(900);
        report.srtt_us = 20_000 + draws.below(60_000);
        report.mdev_us = 100 + draws.below(9000);
        report.min_rtt_us = 20_000 - draws.below(100);
        report.rate_packets = if step < 20 { 0 } else { 1 + draws.below(500) };
        report.rate_interval_us = if step < 20 { 0 } else { 5000 + draws.below(60_000) };
        report.state = draws.below(5);
        reports.push(report);
    }
    reports
}

#[test]
fn it_sees_what_its_authors_server_tells_their_agent() {
    let (card, mut draws) = (card(), Draws(17));
    assert_eq!(card.inputs(), FEATURES);
    for seed in 1..6 {
        let (mut server, mut observer) = (Server::new(BEGAN_NS), Observer::new(&card));
        let mut output = 0.0;
        for (step, report) in reports(seed, 1300).iter().enumerate() {
            let (expected, seen) = (server.observe(report), observer.observe(report, output));
            assert_eq!(seen.len(), expected.len());
            for (place, (seen, expected)) in seen.iter().zip(&expected).enumerate() {
                let difference = (f64::from(*seen) - expected).abs();
                let bound = 1e-5 * expected.abs().max(1.0);
                assert!(difference < bound, "{seed}, {step}, {place}: {seen} {expected}");
            }
            output = f64::from(draws.below(40_001)) / 10_000.0 - 2.0;
            server.act(output);
        }
    }
}

#[test]
fn it_does_what_its_authors_server_does() {
    let mut draws = Draws(5);
    for drift in [-0.2, 0.0, 0.2] {
        let (mut server, mut actor) = (Server::new(0), Actor::new(&card().action));
        for step in 0..2000 {
            let output = (f64::from(draws.below(40_001)) / 10_000.0 - 2.0 + drift).clamp(-2.0, 2.0);
            // TCP may have changed the window meanwhile, after a timeout for instance.
            let report = Report { cwnd: 1 + draws.below(90), ..Report::default() };
            let (cwnd, expected) = (actor.act(output, &report).cwnd, server.act(output));
            assert_eq!(cwnd, expected, "{step}: {output}");
        }
    }
}

/// Minimal recurrent network: h' = tanh(a seen + b h), whose output is a fiftieth of the sum, so that the window
/// moves slowly.
#[test]
fn it_does_with_random_weights_what_its_authors_agent_does_with_them() {
    let (units, mut draws) = (8, Draws(3));
    let mut weights = |count: usize| -> Vec<f32> {
        (0..count).map(|_| draws.below(2001) as f32 / 2e4 - 0.05).collect()
    };
    let (of_seen, of_memory) = (weights(FEATURES * units), weights(units * units));
    let mut file = File::default();
    file.input("seen", &[1, FEATURES]);
    file.input("h", &[1, units]);
    file.floats("a", &[FEATURES, units], &of_seen);
    file.floats("b", &[units, units], &of_memory);
    file.node("MatMul", &["h", "b"], &["remembered"], &[]);
    file.node("Gemm", &["seen", "a", "remembered"], &["sum"], &[]);
    file.node("Tanh", &["sum"], &["h_next"], &[]);
    file.floats("c", &[units, 1], &vec![1.0; units]);
    file.node("Gemm", &["h_next", "c"], &["said"], &[("alpha", Attribute::Float(0.02))]);
    file.output("said", &[1, 1]);
    file.output("h_next", &[1, units]);
    let small = Card::parse(&text().replace("size = 1024", "size = 8")).unwrap();
    let policy = Policy::with_network(small, &file.bytes()).unwrap();

    let (mut decider, mut server) = (PolicyDecider::new(&policy), Server::new(BEGAN_NS));
    let (mut h, mut moves) = (vec![0.0; units], 0);
    for report in reports(7, 300) {
        let seen = server.observe(&report);
        let product = |row: &[f64], matrix: &[f32], unit: usize| -> f64 {
            row.iter().enumerate().map(|(i, x)| x * f64::from(matrix[units * i + unit])).sum()
        };
        h = (0..units)
            .map(|unit| (product(&seen, &of_seen, unit) + product(&h, &of_memory, unit)).tanh())
            .collect();
        let output = 0.02 * sum(&h);
        let decision = decider.decide(&report).unwrap();
        assert!((decider.output() - output).abs() < 1e-5, "{} {output}", decider.output());
        assert_eq!(decision.cwnd, server.act(decider.output()));
        moves += usize::from(decision.cwnd > 4 && decision.cwnd < 20_000);
    }
    assert!(moves > 20, "its window is mostly at a bound: {moves}");
}
