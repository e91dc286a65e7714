//! Whole scenarios in virtual time.

use skyhop_model::{Direction, EventKind, LossReason};
use skyhop_sim::Simulator;

use crate::scenario::{experiment, fixed, simulate};

#[test]
fn the_same_experiment_gives_the_same_results() {
    let text =
        fixed(20, 30, 75_000, 10, "[[flow]]\ncc = \"bbr\"\n[[flow]]\n[[flow]]\nkind = \"probe\"");
    assert_eq!(simulate(&text), simulate(&text));
}

#[test]
fn losses_have_a_row_each_and_add_up() {
    let text = fixed(
        30,
        30,
        60_000,
        5,
        "[[change]]\nat = \"2 s\"\noutage = \"100 ms\"\n[[change]]\nat = \"3 s\"\nloss = \"1 %\"\n\
         [[flow]]",
    );
    let data = simulate(&text);
    let drops = data.summary.link.drops;
    assert!(
        drops[LossReason::Queue] > 0
            && drops[LossReason::Outage] > 0
            && drops[LossReason::Loss] > 0,
        "{drops:?}"
    );
    for (reason, counted) in [
        (LossReason::Queue, drops[LossReason::Queue]),
        (LossReason::Outage, drops[LossReason::Outage]),
        (LossReason::Loss, drops[LossReason::Loss]),
    ] {
        let rows = data.events.iter().filter(|row| row.reason == Some(reason));
        assert_eq!(rows.count() as u64, counted, "{reason:?}");
    }
    let by_samples: u64 = data
        .link
        .iter()
        .map(|row| row.drops[LossReason::Queue] + row.drops[LossReason::Loss])
        .sum();
    assert_eq!(by_samples, drops[LossReason::Queue] + drops[LossReason::Loss]);
    let changes = data.events.iter().filter(|row| row.kind == EventKind::Change);
    assert_eq!(changes.count(), 2);
}

#[test]
fn a_probe_sees_the_path_and_its_outages() {
    let outage = "[[change]]\nat = \"1 s\"\noutage = \"200 ms\"\n";
    let probe = "[[flow]]\nkind = \"probe\"\ninterval = \"10 ms\"";
    let lost = simulate(&fixed(50, 40, 250_000, 3, &format!("{outage}{probe}")));
    // What is sent at 1.00, 1.01, … 1.19 s reaches the outage on the way there; what is sent 20 ms
    // before, on the way back.
    assert_eq!(lost.summary.probes[0].lost, 22);
    let p50_us = lost.summary.probes[0].rtt_p50_us.unwrap();
    assert!((40_000..40_100).contains(&p50_us), "{p50_us}");
    let text = fixed(50, 40, 250_000, 3, &format!("{outage}{probe}"));
    let held = simulate(&text.replace("rtt =", "during_outage = \"hold\"\nrtt ="));
    assert_eq!(held.summary.probes[0].lost, 0);
    // What was held waits for the end of the outage, the first of it longest.
    let longest_ns = held.probes.iter().filter_map(|row| row.rtt_ns).max().unwrap();
    assert!((230_000_000..245_000_000).contains(&longest_ns), "{longest_ns}");
}

#[test]
fn a_finite_transfer_completes_and_says_when() {
    let data = simulate(&fixed(10, 20, 25_000, 20, "[[flow]]\nstart = \"1 s\"\nbytes = \"5 MB\""));
    let flow = &data.summary.flows[0];
    let completion_s = flow.completion_s.unwrap();
    // 5 MB over 10 Mbit/s less headers take 4.2 s, and slow start a little more.
    assert!((4.1..5.5).contains(&completion_s), "{completion_s}");
    assert_eq!(flow.goodput_bps, (40e6 / completion_s).round() as u64);
    assert_eq!(flow.stop_s, 1.0 + completion_s);
}

#[test]
fn flows_may_go_the_other_way_and_stop_early() {
    let data = simulate(&fixed(20, 30, 75_000, 10, "[[flow]]\nfrom = \"to\"\nstop = \"4 s\""));
    let delivered = |direction: Direction| -> i64 {
        data.link.iter().filter(|r| r.direction == direction).map(|r| r.delivered_bytes).sum()
    };
    assert!(delivered(Direction::Back) > 10 * delivered(Direction::Forward));
    assert_eq!(data.summary.flows[0].stop_s, 4.0);
    assert!(data.flows.iter().all(|row| row.t_ns <= 4_000_000_000));
}

#[test]
fn what_cannot_be_simulated_is_named() {
    let refused = |rest: &str| {
        let text = fixed(10, 10, 20_000, 1, rest);
        skyhop_engine::run_in_memory(&Simulator, &experiment(&text)).unwrap_err()
    };
    assert!(refused("").to_string().contains("nothing to run"));
    let message = refused("[[flow]]\ncc = \"psychic\"").to_string();
    assert!(message.starts_with("flow.0.cc: ") && message.contains("cubic"), "{message}");
    let message = refused("[[flow]]\ncubic.nonsense = 3").to_string();
    assert!(message.contains("nonsense"), "{message}");
}

#[test]
fn the_simulator_conforms() {
    let flows = "[[flow]]\n[[flow]]\nkind = \"probe\"\n\
                 [[flow]]\napp = { kind = \"request-response\", response = \"10 kB\" }\n\
                 [[flow]]\napp = { kind = \"on-off\", on = \"100 ms\", off = \"200 ms\" }\n\
                 [[flow]]\napp = { kind = \"constant-rate\", rate = \"64 kbit/s\" }\n";
    let text = fixed(10, 30, 75_000, 4, flows);
    skyhop_engine::conformance::check_engine(&Simulator, &experiment(&text));
}
