//! Tests of flows for which a learned policy decides.

use std::fs;
use std::path::Path;

use skyhop_model::{EventKind, PhaseKind};
use skyhop_needs::onnx::{Layer, network};
use skyhop_record::RunData;
use tempfile::TempDir;

use crate::scenario::{experiment, fixed, simulate};

/// Write a card with a network of one layer, with the given `tcp`, `features` and `action`; return its path.
fn card(
    directory: &Path,
    tcp: &str,
    features: &str,
    weights: &[f32],
    bias: f32,
    action: &str,
) -> String {
    let onnx = network(weights.len(), &[Layer::Dense(weights.to_vec(), vec![bias])]);
    fs::write(directory.join("net.onnx"), onnx).unwrap();
    let file = directory.join("card.toml");
    let text = format!(
        "title = \"test\"\n[tcp]\n{tcp}\n[observation]\nfeatures = [{features}]\n[network]\nfile = \"net.onnx\"\n\
         [action]\n{action}\n"
    );
    fs::write(&file, text).unwrap();
    file.to_string_lossy().into_owned()
}

fn flow(card: &str, more: &str) -> String {
    fixed(
        20,
        50,
        125_000,
        10,
        &format!("[[flow]]\ncc = \"policy\"\n{more}policy.card = \"{card}\"\n"),
    )
}

/// Card that moves the window to 40 packets: the logarithm of the missing factor is close to 1 - cwnd / 40.
fn to_forty(directory: &Path, tcp: &str) -> String {
    let feature = "{ of = \"cwnd\", over = \"one\", times = 0.025 }";
    card(
        directory,
        tcp,
        feature,
        &[-1.0],
        1.0,
        "moves = \"cwnd\"\nshape = \"power\"\nround = \"nearest\"",
    )
}

fn fallbacks(data: &RunData) -> usize {
    let is_fallback = |kind: EventKind| kind == EventKind::Phase(PhaseKind::Fallback);
    data.events.iter().filter(|row| is_fallback(row.kind)).count()
}

#[test]
fn decisions_move_the_window_and_losses_do_not() {
    let directory = TempDir::new().unwrap();
    let card = to_forty(directory.path(), "governs = \"window\"");
    let data = simulate(&flow(&card, "").replace("20 Mbit/s\"", "20 Mbit/s\"\nloss = \"1 %\""));
    let late: Vec<i64> = data.flows.iter().skip(30).map(|row| row.cwnd_packets).collect();
    assert!(late.iter().all(|cwnd| *cwnd == 40), "{late:?}");
    let retransmits: i64 = data.flows.iter().map(|row| row.retransmits).sum();
    assert!(retransmits > 20, "{retransmits}");
    assert_eq!(fallbacks(&data), 0);
}

#[test]
fn without_decisions_the_base_is_cubic_to_the_last_packet() {
    let directory = TempDir::new().unwrap();
    let feature = "{ of = \"cwnd\" }";
    let action = "moves = \"cwnd\"\nshape = \"power\"";
    let silent = card(directory.path(), "patience = \"60 ms\"", feature, &[0.0], f32::NAN, action);
    for queue in [30_000, 125_000, 500_000] {
        let of = |flow: &str| simulate(&fixed(20, 50, queue, 20, flow));
        let policy = of(&format!("[[flow]]\ncc = \"policy\"\npolicy = \"{silent}\"\n"));
        let cubic = of("[[flow]]\ncc = \"cubic\"\n");
        let seen = |data: &RunData| format!("{:?}", data.flows);
        assert_eq!(seen(&policy), seen(&cubic), "a queue of {queue} B");
        assert_eq!(fallbacks(&policy), 1, "it is said once");
        let [warning] = &policy.summary.warnings[..] else {
            panic!("{:?}", policy.summary.warnings)
        };
        assert!(
            warning.starts_with("flow 0: of ") && warning.contains("were not numbers"),
            "{warning}"
        );
    }
}

#[test]
fn a_decision_that_exceeds_the_patience_is_ignored() {
    let directory = TempDir::new().unwrap();
    let card = to_forty(directory.path(), "patience = \"100 ms\"");
    let data = simulate(&flow(&card, "policy.delay = \"10 ms\"\n"));
    assert_eq!(fallbacks(&data), 0);
    assert_eq!(data.flows.last().unwrap().cwnd_packets, 40);
    let late = simulate(&flow(&card, "policy.delay = \"150 ms\"\n"));
    assert!(fallbacks(&late) > 0);
}

#[test]
fn a_factor_moves_the_window_of_the_base() {
    let directory = TempDir::new().unwrap();
    let action = "moves = \"factor\"\nshape = \"power\"\nbase = 4.0";
    let of = |bias: f32| {
        let tcp = "governs = \"base\"\nbegins = \"after-slow-start\"\ninterval = \"100 ms\"";
        let card = card(directory.path(), tcp, "{ of = \"cwnd\" }", &[0.0], bias, action);
        let data = simulate(&flow(&card, ""));
        data.summary.flows[0].goodput_bps
    };
    let (less, plain) = (of(-1.0), of(0.0));
    let cubic = simulate(&fixed(20, 50, 125_000, 10, "[[flow]]\ncc = \"cubic\"\n"));
    assert_eq!(plain, cubic.summary.flows[0].goodput_bps, "a factor of 1 is CUBIC");
    assert!(less < plain * 9 / 10, "{less} {plain}");
}

/// One decision per round trip, at intervals of 50 ms or more.
#[test]
fn reports_come_once_per_round_trip_where_asked() {
    let directory = TempDir::new().unwrap();
    let action = "moves = \"cwnd\"\nshape = \"power\"";
    let card = card(
        directory.path(),
        "every = \"round-trip\"",
        "{ of = \"cwnd\" }",
        &[0.0],
        f32::NAN,
        action,
    );
    let data = simulate(&flow(&card, ""));
    let warnings = data.summary.warnings.join("\n");
    let told: u64 = warnings.split(' ').find_map(|word| word.parse().ok()).unwrap();
    // The flow's number comes first, with a colon; some of the 10 s have longer round trips.
    assert!((100..=200).contains(&told), "{warnings}");
}

#[test]
fn the_same_run_twice_is_the_same() {
    let directory = TempDir::new().unwrap();
    let card = to_forty(directory.path(), "every = \"ack\"");
    let of = || simulate(&flow(&card, "policy.delay = \"3 ms\"\n")).flows;
    assert_eq!(of(), of());
}

#[test]
fn a_card_is_a_congestion_control_by_its_name() {
    let directory = TempDir::new().unwrap();
    let card = to_forty(directory.path(), "");
    let short = experiment(&fixed(20, 50, 125_000, 10, &format!("[[flow]]\ncc = \"{card}\"\n")));
    assert_eq!(short.flows[0].cc(), Some(card.as_str()));
    let long = experiment(&flow(&card, ""));
    assert_eq!(long.flows[0].cc(), Some(card.as_str()));
    assert_eq!(long.cc_files.len(), 2, "the card and its network: {:?}", long.cc_files);
}
