//! Tests of the card of Astraea against its agent's published rules, restated step by step in its own units.

use std::path::Path;

use skyhop_cc::{Decider as _, Report};
use skyhop_needs::onnx::{Layer, network};
use skyhop_policy::{Card, Observer, Policy, PolicyDecider};

use crate::draws::{Draws, reports};

fn card() -> Card {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/policies/astraea.toml");
    Card::parse(&std::fs::read_to_string(file).unwrap()).unwrap()
}

/// State that its agent keeps per connection: bytes per second and microseconds.
#[derive(Default)]
struct Agent {
    max_tput: f64,
    min_rtt: f64,
    lost: u32,
    steps: Vec<f64>,
}

impl Agent {
    fn observe(&mut self, report: &Report) -> Vec<f64> {
        let samples = f64::from(report.rate_samples.max(1));
        let avg_thr = report.rate_sum as f64 / samples * 1e6 / 16_777_216.0 * f64::from(report.mss);
        let avg_urtt = report.rtt_sum_us as f64 / f64::from(report.rtt_samples.max(1));
        self.max_tput = self.max_tput.max(avg_thr);
        if report.rtt_samples > 0 && (self.min_rtt == 0.0 || avg_urtt < self.min_rtt) {
            self.min_rtt = avg_urtt;
        }
        let loss = f64::from(report.lost - self.lost) * f64::from(report.mss) / 0.02;
        self.lost = report.lost;
        let over = |a: f64, b: f64| if b == 0.0 { 0.0 } else { a / b };
        let cwnd = f64::from(report.cwnd);
        let bounded = |value: f64| value.min(2.0);
        let features = [
            if avg_thr == 0.0 { 0.5 } else { over(avg_thr, self.max_tput) },
            if avg_urtt == 0.0 { 2.0 } else { bounded(over(avg_urtt, self.min_rtt)) },
            if report.srtt_us == 0 {
                2.0
            } else {
                bounded(over(report.srtt_us.into(), self.min_rtt))
            },
            bounded(over(cwnd * 1460.0 * 8.0 / 10.0, self.min_rtt / 1e6 * self.max_tput)),
            self.max_tput / 1e7,
            self.min_rtt / 5e5,
            over(loss, self.max_tput),
            f64::from(report.packets_out) / cwnd,
            bounded(over(report.pacing_rate as f64, self.max_tput)),
            f64::from(report.retrans_out) / cwnd,
        ];
        self.steps.extend(features);
        let begin = self.steps.len().saturating_sub(50);
        let mut seen = vec![0.0; 50 - (self.steps.len() - begin)];
        seen.extend(&self.steps[begin..]);
        seen
    }

    fn act(output: f64, cwnd: u32) -> u32 {
        let cwnd = f64::from(cwnd);
        let next = if output >= 0.0 {
            (cwnd * (1.0 + 0.025 * output)).ceil()
        } else {
            (cwnd / (1.0 - 0.025 * output)).floor()
        };
        next.max(4.0) as u32
    }
}

#[test]
fn it_sees_what_its_authors_agent_sees() {
    for seed in 1..20 {
        let (card, mut agent) = (card(), Agent::default());
        let mut observer = Observer::new(&card);
        for (step, report) in reports(seed).iter().enumerate() {
            let expected = agent.observe(report);
            let seen = observer.observe(report, 0.0);
            for (place, (seen, expected)) in seen.iter().zip(&expected).enumerate() {
                let difference = (f64::from(*seen) - expected).abs();
                assert!(
                    difference < 1e-5 * expected.abs().max(1.0),
                    "{seed}, {step}, {place}: {seen} {expected}"
                );
            }
        }
    }
}

#[test]
fn it_does_what_its_authors_agent_does_with_random_weights() {
    let mut draws = Draws(3);
    let mut weights = |count: usize| -> Vec<f32> {
        (0..count).map(|_| draws.below(2001) as f32 / 1e4 - 0.1).collect()
    };
    let (first, first_bias) = (weights(50 * 16), weights(16));
    let (second, second_bias) = (weights(16), weights(1));
    let layers = [
        Layer::Dense(first.clone(), first_bias.clone()),
        Layer::Operator("Tanh"),
        Layer::Dense(second.clone(), second_bias.clone()),
        Layer::Operator("Tanh"),
    ];
    let policy = Policy::with_network(card(), &network(50, &layers)).unwrap();
    let (mut decider, mut agent) = (PolicyDecider::new(&policy), Agent::default());
    for report in reports(7) {
        let seen = agent.observe(&report);
        let hidden: Vec<f64> = (0..16)
            .map(|unit| {
                let sum = seen.iter().enumerate().map(|(i, x)| x * f64::from(first[16 * i + unit]));
                (sum.sum::<f64>() + f64::from(first_bias[unit])).tanh()
            })
            .collect();
        let sum: f64 = hidden.iter().zip(&second).map(|(x, w)| x * f64::from(*w)).sum();
        let output = (sum + f64::from(second_bias[0])).tanh();
        let decision = decider.decide(&report).unwrap();
        assert!((decider.output() - output).abs() < 1e-5, "{} {output}", decider.output());
        assert_eq!(decision.cwnd, Agent::act(decider.output(), report.cwnd));
    }
}
