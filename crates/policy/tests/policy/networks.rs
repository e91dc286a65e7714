//! Tests of networks: their outputs, and files that are refused.

use skyhop_cc::{Decider as _, OutputCounts, Report};
use skyhop_needs::onnx::{Layer, network};
use skyhop_policy::{Card, Memory, Model as _, Network, Policy, PolicyDecider};

use crate::cards::{CWND, plain};

fn card(steps: usize) -> Card {
    Card::parse(&plain("{ of = \"cwnd\", times = 0.001 }", steps, CWND)).unwrap()
}

#[test]
fn the_output_of_a_network_is_that_of_its_layers() {
    let layers = [
        Layer::Dense(vec![1.0, -1.0, 0.5, 2.0], vec![0.1, -0.2]),
        Layer::Operator("Tanh"),
        Layer::Dense(vec![1.0, 0.5], vec![0.05]),
    ];
    let network = Network::read(&card(2), &network(2, &layers)).unwrap();
    let said = network.run(&[0.3, -0.4], &mut Memory::default()).unwrap();
    let first = (0.3_f32 - 0.4 * 0.5 + 0.1).tanh();
    let second = (-0.3_f32 - 0.4 * 2.0 - 0.2).tanh();
    assert!((said - f64::from(first + 0.5 * second + 0.05)).abs() < 1e-6, "{said}");
}

#[test]
fn invalid_networks_are_refused_in_one_line() {
    let dense = |inputs: usize| [Layer::Dense(vec![0.0; inputs], vec![0.0])];
    for (onnx, expected) in [
        (b"no network".to_vec(), "is not an ONNX network"),
        (Vec::new(), ""),
        (network(2, &[Layer::Operator("Skyhop")]), "Skyhop"),
        (network(3, &dense(3)), "holds 1 x 3 numbers; the card has 2"),
        (network(2, &[Layer::Dense(vec![0.0; 5], vec![0.0])]), ""),
        (network(2, &dense(2))[..40].to_vec(), ""),
    ] {
        let error = Network::read(&card(2), &onnx).unwrap_err().to_string();
        assert!(error.contains(expected) && !error.contains('\n'), "{expected}: {error}");
    }
}

#[test]
fn nan_is_no_decision_and_large_outputs_are_clamped() {
    let report = Report { at_ns: 1, cwnd: 100, ..Report::default() };
    let of = |bias: f32| {
        let layers = [Layer::Dense(vec![0.0], vec![bias])];
        let policy = Policy::with_network(card(1), &network(1, &layers)).unwrap();
        let mut decider = PolicyDecider::new(&policy);
        let cwnd = decider.decide(&report).map(|made| made.cwnd);
        let OutputCounts { decisions, not_a_number, clamped } = decider.outputs();
        (cwnd, decisions, not_a_number, clamped)
    };
    assert_eq!(of(f32::NAN), (None, 0, 1, 0));
    assert_eq!(of(f32::INFINITY), (None, 0, 1, 0));
    assert_eq!(of(1e9), (Some(200), 1, 0, 1));
    assert_eq!(of(-7.0), (Some(50), 1, 0, 1));
    assert_eq!(of(0.5), (Some(141), 1, 0, 0));
}
