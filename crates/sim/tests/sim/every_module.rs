//! Tests of every congestion control in `cc/` over links. Tests of modules alone, and of their compilation for the
//! kernel, are in crates/cc/tests/every_module.rs.

use crate::scenario::{fixed, simulate};
use proptest::prelude::*;
use skyhop_cc::Module;
use skyhop_record::RunData;

fn every_module() -> impl Iterator<Item = &'static str> {
    Module::all().iter().map(Module::name)
}

fn windows_are_within_limits(cc: &str, data: &RunData) -> bool {
    // The receive buffer of 64 MB holds fewer segments than this limit, beyond which no window grows. But one ACK
    // adds up to 2^rho packets to Hybla's window, which ends at its own clamp, and vivudt's window is meant not to
    // limit.
    let most = match cc {
        "hybla" => 65_536,
        "vivudt" => 100_001,
        _ => 50_000,
    };
    data.flows.iter().all(|row| (1..most).contains(&row.cwnd_packets))
}

#[test]
fn it_fills_a_clean_link_and_no_more() {
    for cc in every_module() {
        // The queue holds one BDP.
        let data = simulate(&fixed(20, 50, 125_000, 20, &format!("[[flow]]\ncc = \"{cc}\"")));
        let goodput_bps = data.summary.flows[0].goodput_bps;
        // A packet has a payload of 1448 in 1514 bytes on the wire.
        let most_bps = 20e6 * 1448.0 / 1514.0;
        assert!(goodput_bps as f64 > 0.8 * most_bps, "{cc}: {goodput_bps}");
        assert!((goodput_bps as f64) < 1.001 * most_bps, "{cc}: {goodput_bps}");
        assert!(data.summary.link.utilisation <= 1.001, "{cc}");
        assert!(windows_are_within_limits(cc, &data), "{cc}");
    }
}

#[test]
fn it_recovers_after_an_outage_of_three_seconds() {
    for cc in every_module() {
        let outage = "[[change]]\nat = \"10 s\"\noutage = \"3 s\"\n";
        let flow = format!("{outage}[[flow]]\ncc = \"{cc}\"");
        let data = simulate(&fixed(20, 50, 125_000, 40, &flow));
        assert!(windows_are_within_limits(cc, &data), "{cc}");
        // The window recovers within ten seconds.
        let late: Vec<i64> = data
            .flows
            .iter()
            .filter(|row| row.t_ns > 23_000_000_000)
            .map(|row| row.goodput_bps)
            .collect();
        let mean_bps = late.iter().sum::<i64>() as f64 / late.len() as f64;
        assert!(mean_bps > 0.7 * 20e6, "{cc}: {mean_bps} bit/s after the outage");
    }
}

#[test]
fn two_of_it_both_make_progress() {
    for cc in every_module() {
        let flows = format!("[[flow]]\ncc = \"{cc}\"\n[[flow]]\ncc = \"{cc}\"\nstart = \"3 s\"");
        let data = simulate(&fixed(50, 40, 250_000, 60, &flows));
        for flow in &data.summary.flows {
            assert!(flow.goodput_bps > 5_000_000, "{cc}: {:?}", data.summary.flows);
        }
    }
}

/// Determinism, with announced handovers and random choices.
#[test]
fn it_does_the_same_each_time() {
    for cc in every_module() {
        let changes = "[signal]\nsource = \"path\"\nlead = \"0.3 s\"\nerror = \"report-timing\"\n\
                       [[change]]\nat = \"2 s\"\nrtt = \"45 ms\"\noutage = \"80 ms\"\n\
                       [[change]]\nat = \"5 s\"\nloss = \"1 %\"\n";
        let text =
            fixed(20, 30, 75_000, 8, &format!("{changes}[[flow]]\ncc = \"{cc}\"\ncount = 2"));
        let (one, other) = (simulate(&text), simulate(&text));
        assert!(one.flows.len() > 100);
        assert_eq!(one, other, "{cc}");
    }
}

#[derive(Debug, Clone)]
struct Moment {
    at_ms: u64,
    what: String,
}

fn moments() -> impl Strategy<Value = Vec<Moment>> {
    let what = prop_oneof![
        (5_u32..200).prop_map(|rtt| format!("rtt = \"{rtt} ms\"")),
        (1_u32..60).prop_map(|rate| format!("rate = \"{rate} Mbit/s\"")),
        (0_u32..4).prop_map(|loss| format!("loss = \"{loss} %\"")),
        (1_u32..1_500).prop_map(|outage| format!("outage = \"{outage} ms\"")),
    ];
    let moment = (1_u64..4_900, what).prop_map(|(at_ms, what)| Moment { at_ms, what });
    prop::collection::vec(moment, 0..6)
}

fn signals() -> impl Strategy<Value = String> {
    let source = prop::sample::select(vec![
        "source = \"none\"",
        "source = \"path\"",
        "source = \"path\"\nerror = \"report-timing\"",
        "source = \"schedule\"\nperiod = \"0.7 s\"",
    ]);
    (source, 0_u32..1_500).prop_map(|(source, lead)| format!("{source}\nlead = \"{lead} ms\""))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(skyhop_needs::cases(24)))]

    /// Robustness against any path and any announcements.
    #[test]
    fn it_survives_random_scenarios(
        (rate, rtt, queue) in (1_u32..50, 2_u32..150, 3_000_u32..400_000),
        moments in moments(),
        signal in signals(),
        hold in any::<bool>(),
    ) {
        let changes: String = moments
            .iter()
            .map(|m| format!("[[change]]\nat = \"{} ms\"\n{}\n", m.at_ms, m.what))
            .collect();
        for cc in every_module() {
            let rest = format!("[signal]\n{signal}\n{changes}[[flow]]\ncc = \"{cc}\"\ncount = 2");
            let mut text = fixed(rate, rtt, queue, 5, &rest);
            if hold {
                text = text.replacen("[path]", "[path]\nduring_outage = \"hold\"", 1);
            }
            let data = simulate(&text);
            prop_assert!(windows_are_within_limits(cc, &data), "{cc}: {text}");
            prop_assert!(data.summary.flows.iter().all(|flow| flow.sent_packets > 0), "{cc}: {text}");
        }
    }
}
