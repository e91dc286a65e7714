//! Scenarios that the real Linux stack went through (tests/linux, its README): every one whose
//! congestion controls and queue are part of skyhop.

use std::fmt::Write as _;
use std::ops::ControlFlow;

use skyhop_needs::linux::{Scenario, scenarios};
use skyhop_record::FlowSummary;
use skyhop_scenario::parse_scenario;
use skyhop_sim::Simulator;

/// Of goodput, relative.
const GOODPUT: f64 = 0.03;
/// With outages.
const GOODPUT_WITH_OUTAGES: f64 = 0.05;
/// With random loss, of the mean over this many seeds.
const GOODPUT_WITH_LOSS: f64 = 0.15;
const SEEDS: u64 = 20;
/// Of the mean srtt, relative.
const SRTT: f64 = 0.10;
/// Of retransmits: a factor of two and these.
const RETRANSMITS: f64 = 20.0;
/// Of a flow's share of the goodput of all, absolute.
const SHARE: f64 = 0.10;
/// The mean share over so many starts of the second flow, this far apart: which flow a full queue
/// hits depends on where in the other's cycle it starts (Floyd and Jacobson, "On traffic phase
/// effects in packet-switched gateways", 1992), and Linux was asked once.
const STARTS: u32 = 20;
const STARTS_APART_MS: u32 = 7;

/// The scenarios of these kinds.
fn rows(kinds: &[&str]) -> Vec<Scenario> {
    let of_kind = |name: &str| kinds.iter().any(|kind| name.starts_with(kind));
    let mut rows = scenarios();
    rows.retain(|row| of_kind(&row.name) && is_possible(row));
    assert!(!rows.is_empty(), "no scenario of Linux's is one of {kinds:?}");
    rows
}

/// Whether its congestion controls and its queue are part of skyhop.
fn is_possible(row: &Scenario) -> bool {
    let is_here = |cc: &str| skyhop_cc::Module::find(cc).is_ok();
    row.aqm.is_none() && row.flows.iter().all(|flow| is_here(&flow.cc))
}

/// Every 15 s: 100 ms without the path, then the other of two RTTs.
fn handovers() -> String {
    (1..7).fold(String::new(), |mut text, k| {
        let (at_s, rtt_ms) = (15 * k, if k % 2 == 1 { 60 } else { 40 });
        let change = format!("at = \"{at_s} s\"\noutage = \"100 ms\"\nrtt = \"{rtt_ms} ms\"");
        writeln!(text, "[[change]]\n{change}").unwrap();
        text
    })
}

/// Our flows; those beyond the first start at `later`.
fn simulate(row: &Scenario, seed: u64, later: &str) -> Vec<FlowSummary> {
    let Scenario { rate_kbps, queue_bytes, loss_percent, .. } = row;
    let (rtt_us, duration_s) = (2 * row.one_way_us, row.flows[0].seconds);
    let mut text = format!(
        "[path]\nkind = \"fixed\"\nrtt = \"{rtt_us} us\"\n\
         [link]\nrate = \"{rate_kbps} kbit/s\"\nqueue = \"{queue_bytes} B\"\n\
         loss = \"{loss_percent} %\"\n\
         [run]\nduration = \"{duration_s} s\"\nseed = {seed}\n"
    );
    if row.name.starts_with("handover-") {
        text += &handovers();
    }
    for (index, flow) in row.flows.iter().enumerate() {
        let start = if index == 0 { "0 s" } else { later };
        write!(text, "[[flow]]\ncc = \"{}\"\nstart = \"{start}\"\n", flow.cc).unwrap();
    }
    let no_places = |name: &str| Err(format!("no place {name}"));
    let experiment = parse_scenario(&text, "oracle.toml", &[])
        .unwrap()
        .experiment(&no_places, &mut |_, _| ControlFlow::Continue(()))
        .unwrap();
    let run = skyhop_engine::run_in_memory(&Simulator, &experiment);
    run.unwrap().summary.flows
}

/// Compares means over runs of the first flow with Linux's; says what is out of tolerance.
fn compare(row: &Scenario, runs: &[FlowSummary], tolerance: f64) -> Option<String> {
    let linux = &row.flows[0];
    let mean =
        |value: fn(&FlowSummary) -> f64| runs.iter().map(value).sum::<f64>() / runs.len() as f64;
    let goodput = mean(|flow| flow.goodput_bps as f64) / linux.goodput_bps;
    let srtt = mean(|flow| flow.srtt_mean_us.unwrap_or(0) as f64) / linux.srtt_mean_us;
    let retransmits = mean(|flow| flow.retransmits as f64);
    let line = format!(
        "{}: goodput x{goodput:.3}, srtt x{srtt:.3}, retransmits {retransmits} for {}",
        row.name, linux.retransmits
    );
    println!("{line}");
    let within = (goodput - 1.0).abs() <= tolerance
        && (srtt - 1.0).abs() <= SRTT
        && retransmits <= 2.0 * linux.retransmits + RETRANSMITS
        && linux.retransmits <= 2.0 * retransmits + RETRANSMITS;
    (!within).then_some(line)
}

#[test]
fn single_flows_do_as_linux_does() {
    let wrong = rows(&["single-", "geo-", "handover-"]).into_iter().filter_map(|row| {
        let outages = row.name.starts_with("handover-");
        let tolerance = if outages { GOODPUT_WITH_OUTAGES } else { GOODPUT };
        compare(&row, &simulate(&row, 1, "0 s"), tolerance)
    });
    assert_eq!(wrong.collect::<Vec<_>>(), Vec::<String>::new());
}

#[test]
fn random_loss_costs_what_it_costs_linux() {
    let wrong = rows(&["loss-"]).into_iter().filter_map(|row| {
        let runs: Vec<FlowSummary> =
            (1..=SEEDS).flat_map(|seed| simulate(&row, seed, "0 s")).collect();
        compare(&row, &runs, GOODPUT_WITH_LOSS)
    });
    assert_eq!(wrong.collect::<Vec<_>>(), Vec::<String>::new());
}

#[test]
fn competing_flows_share_as_on_linux() {
    for row in rows(&["fair-"]) {
        let share = |goodputs: [f64; 2]| goodputs[0] / (goodputs[0] + goodputs[1]);
        let linux = share([row.flows[0].goodput_bps, row.flows[1].goodput_bps]);
        let shares: Vec<f64> = (0..STARTS)
            .map(|k| {
                let start_ms = 20_000 + k * STARTS_APART_MS;
                let flows = simulate(&row, 1, &format!("{start_ms} ms"));
                share([flows[0].goodput_bps as f64, flows[1].goodput_bps as f64])
            })
            .collect();
        let mean = shares.iter().sum::<f64>() / shares.len() as f64;
        println!("{}: {mean:.3} of {shares:.3?} for {linux:.3}", row.name);
        assert!((mean - linux).abs() <= SHARE, "{}: {mean:.3} for {linux:.3}", row.name);
    }
}
