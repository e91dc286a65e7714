//! Tests of the card of Orca against its agent's published rules, restated in its own units: bytes per second,
//! microseconds.

use std::path::Path;

use skyhop_cc::Report;
use skyhop_policy::{Actor, Card, Observer};

use crate::draws::{Draws, reports};

fn card() -> Card {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/policies/orca.toml");
    Card::parse(&std::fs::read_to_string(file).unwrap()).unwrap()
}

const FEATURES: usize = 7;
const STEPS: usize = 10;

/// State that its agent keeps per connection.
#[derive(Default)]
struct Agent {
    max_bw: f64,
    min_rtt: f64,
    lost: u32,
    steps: Vec<f64>,
}

impl Agent {
    fn observe(&mut self, report: &Report) -> Vec<f64> {
        let over = |a: f64, b: f64| if b == 0.0 { 0.0 } else { a / b };
        let mss = f64::from(report.mss);
        let thr = report.rate_sum as f64 / f64::from(report.rate_samples.max(1)) * 1e6
            / 16_777_216.0
            * mss;
        self.max_bw = self.max_bw.max(thr);
        if report.rtt_samples > 0 {
            let least = f64::from(report.rtt_least_us);
            self.min_rtt = if self.min_rtt == 0.0 { least } else { self.min_rtt.min(least) };
        }
        let loss_rate = f64::from(report.lost - self.lost) * mss / 0.02;
        self.lost = report.lost;
        let srtt = f64::from(report.srtt_us);
        let ratio = over(self.min_rtt, srtt);
        self.steps.extend([
            over(thr, self.max_bw),
            over(report.pacing_rate as f64, self.max_bw).min(10.0),
            over(5.0 * loss_rate, self.max_bw),
            f64::from(report.rtt_samples) / f64::from(report.cwnd),
            0.02,
            ratio,
            if 1.25 * self.min_rtt < srtt || ratio == 0.0 { 1.25 * ratio } else { 1.0 },
        ]);
        let begin = self.steps.len().saturating_sub(FEATURES * STEPS);
        let mut seen = vec![0.0; FEATURES * STEPS - (self.steps.len() - begin)];
        seen.extend(&self.steps[begin..]);
        seen
    }

    /// Window of the server, which receives hundredths of the factor and counts whole packets.
    fn act(output: f64, cwnd: u32) -> u32 {
        let alpha = (4_f64.powf(output) * 100.0) as u32;
        (cwnd * alpha / 100).max(4)
    }
}

#[test]
fn it_sees_what_its_authors_agent_sees() {
    for seed in 1..20 {
        let (mut agent, mut observer) = (Agent::default(), Observer::new(&card()));
        for (step, report) in reports(seed).iter().enumerate() {
            let (seen, expected) = (observer.observe(report, 0.0).to_vec(), agent.observe(report));
            assert_eq!(seen.len(), expected.len());
            for (place, (seen, expected)) in seen.iter().zip(&expected).enumerate() {
                let difference = (f64::from(*seen) - expected).abs();
                let bound = 1e-5 * expected.abs().max(1.0);
                assert!(difference < bound, "{seed}, {step}, {place}: {seen} {expected}");
            }
        }
    }
}

#[test]
fn it_does_what_its_authors_server_does() {
    let (mut actor, mut draws) = (Actor::new(&card().action), Draws(5));
    for _ in 0..5_000 {
        let output = f64::from(draws.below(20_001)) / 10_000.0 - 1.0;
        let report = Report { cwnd: 4 + draws.below(5_000), ..Report::default() };
        assert_eq!(actor.act(output, &report).cwnd, Agent::act(output, report.cwnd), "{output}");
    }
}
