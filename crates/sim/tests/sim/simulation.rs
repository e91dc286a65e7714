//! Tests of whole scenarios in virtual time.

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
fn losses_in_bursts_have_a_row_each_and_come_again() {
    let bursts = |keys: &str| format!("loss = {{ kind = \"gilbert-elliott\", {keys} }}\n");
    let there = bursts("good = \"500 ms\", bad = \"20 ms\"");
    let back = bursts("p = \"1 %\", r = \"20 %\"");
    let flow = "[[change]]\nat = \"8 s\"\nloss = \"0 %\"\n[[flow]]";
    let text =
        fixed(30, 30, 60_000, 10, flow).replace("[run]", &format!("{there}back.{back}[run]"));
    let data = simulate(&text);
    assert_eq!(data, simulate(&text));
    let rows = |direction| {
        let lost = data.events.iter().filter(move |row| row.reason == Some(LossReason::Loss));
        lost.filter(move |row| row.direction == Some(direction))
    };
    let [there, back] = [Direction::Forward, Direction::Back].map(|way| rows(way).count() as u64);
    assert_eq!(there + back, data.summary.link.drops[LossReason::Loss]);
    assert!(there > 0 && back > 0, "{there} and {back}");
    // The change ends the bursts of its direction only.
    let late = |direction| rows(direction).filter(|row| row.t_ns > 8_000_000_000).count();
    assert_eq!(late(Direction::Forward), 0);
    assert!(late(Direction::Back) > 0);
}

#[test]
fn a_probe_sees_the_path_and_its_outages() {
    let outage = "[[change]]\nat = \"1 s\"\noutage = \"200 ms\"\n";
    let probe = "[[flow]]\nkind = \"probe\"\ninterval = \"10 ms\"";
    let lost = simulate(&fixed(50, 40, 250_000, 3, &format!("{outage}{probe}")));
    // Probes sent at 1.00, 1.01, … 1.19 s reach the outage on the way there, those sent 20 ms before on the way
    // back.
    assert_eq!(lost.summary.probes[0].lost, 22);
    let p50_us = lost.summary.probes[0].rtt_p50_us.unwrap();
    assert!((40_000..40_100).contains(&p50_us), "{p50_us}");
    let text = fixed(50, 40, 250_000, 3, &format!("{outage}{probe}"));
    let held = simulate(&text.replace("rtt =", "during_outage = \"hold\"\nrtt ="));
    assert_eq!(held.summary.probes[0].lost, 0);
    // Packets that were held wait for the end of the outage, the first one longest.
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
    // There are no samples after the one in which the flow completed.
    let last_s = data.flows.last().unwrap().t_ns as f64 / 1e9;
    assert!((flow.stop_s..flow.stop_s + 0.1).contains(&last_s), "{last_s}");
    let srtts: Vec<i64> = data.flows.iter().filter_map(|row| row.srtt_us).collect();
    let mean_us = srtts.iter().sum::<i64>() as f64 / srtts.len() as f64;
    assert!((flow.srtt_mean_us.unwrap() as f64 - mean_us).abs() < 1.0, "{mean_us}");
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
fn unsupported_keys_are_named() {
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
                 [[flow]]\napp = { kind = \"constant-rate\", rate = \"64 kbit/s\" }\n\
                 [[flow]]\napp = { kind = \"page\", think = \"300 ms\" }\n\
                 [[flow]]\nkind = \"call\"\nvideo = \"200 kbit/s\"\n\
                 [[flow]]\napp = { kind = \"dash\", buffer_cap = \"1 s\" }\n";
    let text = fixed(10, 30, 75_000, 4, flows);
    skyhop_engine::conformance::check_engine(&Simulator, &experiment(&text));
}

/// Round-trip time of the first probe after 1 s, when the path's RTT falls from 100 to 20 ms.
fn rtt_after_a_fall_ms(reorder: bool) -> f64 {
    let text = format!(
        "[path]\nkind = \"fixed\"\nrtt = \"100 ms\"\n[link]\nreorder = {reorder}\n\
         [[change]]\nat = \"1 s\"\nrtt = \"20 ms\"\n[[flow]]\nkind = \"probe\"\ninterval = \"10 ms\"\n\
         [run]\nduration = \"2 s\""
    );
    let run = simulate(&text);
    let after = run.probes.iter().find(|probe| probe.t_ns > 1_000_000_000).unwrap();
    after.rtt_ns.unwrap() as f64 / 1e6
}

#[test]
fn packets_overtake_after_a_fall_of_the_delay_only_where_they_may() {
    let (kept, overtakes) = (rtt_after_a_fall_ms(false), rtt_after_a_fall_ms(true));
    assert!((overtakes - 20.0).abs() < 0.1, "{overtakes}");
    // The probe of 0.99 s reaches the other end at 1.04 s, and this one, sent 20 ms later, not before it.
    assert!((39.9..40.2).contains(&kept), "{kept}");
}

#[test]
fn a_jittering_round_trip_is_what_probes_measure() {
    let text = "[path]\nkind = \"fixed\"\nrtt = \"597 ms\"\n\
                jitter = { below = \"33 ms\", above = \"28 ms\", correlation = \"1 s\" }\n\
                [link]\nreorder = true\n[[flow]]\nkind = \"probe\"\ninterval = \"50 ms\"\n\
                [run]\nduration = \"600 s\"";
    let run = simulate(text);
    let rtts_ms: Vec<f64> =
        run.probes.iter().filter_map(|probe| Some(probe.rtt_ns? as f64 / 1e6)).collect();
    let mean_ms = rtts_ms.iter().sum::<f64>() / rtts_ms.len() as f64;
    assert!(rtts_ms.len() > 11_900 && (mean_ms - 595.3).abs() < 2.0, "{} {mean_ms}", rtts_ms.len());
    assert!(rtts_ms.iter().all(|ms| (563.9..625.1).contains(ms)));
    let distinct = rtts_ms.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!(distinct > 500, "{distinct}");
}
