//! Scenarios that the real Linux stack went through (tests/linux, its README): every one whose
//! congestion controls and queue are part of skyhop. scripts/validate.py makes a page of the same.

use std::fmt::Write as _;

use skyhop_model::AppTable;
use skyhop_needs::linux::{Flow, HZ, PROFILE, Scenario, Short, scenarios, short};
use skyhop_record::{FlowSummary, RunData};

use crate::scenario;

/// Of goodput, relative.
const GOODPUT: f64 = 0.02;
/// Of the mean srtt, relative.
const SRTT: f64 = 0.03;
/// The same with random loss.
const SRTT_WITH_LOSS: f64 = 0.05;
/// Of retransmits and of marks: this part of Linux's, and so many.
const RETRANSMITS: (f64, f64) = (0.25, 20.0);
/// Of a flow's share of the goodput of all, absolute.
const SHARE: f64 = 0.05;
/// Of times of short transfers and answers, relative.
const TIMES: f64 = 0.05;

/// Our draws of random loss.
const SEEDS: u64 = 20;
/// How far apart the second flow's starts are: which flow a full queue hits depends on where in the other's
/// cycle it starts (Floyd and Jacobson, "On traffic phase effects in packet-switched gateways", 1992).
const STARTS_APART_MS: usize = 7;
/// How many Linux was asked for.
const STARTS: usize = 10;

/// The scenarios of these kinds.
fn rows(kinds: &[&str]) -> Vec<Scenario> {
    let of_kind = |name: &str| kinds.iter().any(|kind| name.starts_with(kind));
    let mut rows = scenarios();
    rows.retain(|row| of_kind(&row.name) && row.is_linux_own() && queue_of(row).is_some());
    assert!(!rows.is_empty(), "no scenario of Linux's is one of {kinds:?}");
    rows
}

/// The keys of its queue, where that is part of skyhop.
fn queue_of(row: &Scenario) -> Option<String> {
    match row.aqm.as_deref() {
        None => Some(format!("queue = \"{} B\"", row.queue_bytes)),
        // tc's own limit.
        Some("codel ecn") => {
            Some("queue = \"1000 packets\"\nqdisc = { kind = \"codel\", ecn = true }".to_owned())
        }
        Some(_) => None,
    }
}

/// Path, hosts and time; nothing held the ACKs up.
fn terms(one_way_us: u64, rate_kbps: u64, queue: &str, (loss_percent, ecn): (f64, bool)) -> String {
    format!(
        "[path]\nkind = \"fixed\"\nrtt = \"{} us\"\n\
         [link]\nrate = \"{rate_kbps} kbit/s\"\n{queue}\nloss = \"{loss_percent} %\"\nback.rate = \"10 Gbit/s\"\n\
         [tcp]\nprofile = \"{PROFILE}\"\nhz = {HZ}\necn = {ecn}\n\
         rmem.max = \"64 MiB\"\nwmem.max = \"64 MiB\"\n",
        2 * one_way_us
    )
}

/// Every 15 s: 100 ms without the path, then the other of two RTTs.
fn handovers(row: &Scenario) -> String {
    (1..7).fold(String::new(), |mut text, k| {
        let (at_s, longer_us) = (15 * k, if k % 2 == 1 { 20_000 } else { 0 });
        let rtt_us = 2 * row.one_way_us + longer_us;
        let change = format!("at = \"{at_s} s\"\noutage = \"100 ms\"\nrtt = \"{rtt_us} us\"");
        writeln!(text, "[[change]]\n{change}").unwrap();
        text
    })
}

/// Our flows; those beyond the first start at `later_ms`, where that is given, and else as Linux's.
fn simulate(row: &Scenario, seed: u64, later_ms: Option<usize>) -> Vec<FlowSummary> {
    let queue = queue_of(row).expect("one that we have");
    let mut text = terms(row.one_way_us, row.rate_kbps, &queue, (row.loss_percent, row.ecn));
    let duration_s = row.flows[0].seconds;
    write!(text, "[run]\nduration = \"{duration_s} s\"\nseed = {seed}\n").unwrap();
    if row.name.starts_with("handover-") {
        text += &handovers(row);
    }
    for (index, flow) in row.flows.iter().enumerate() {
        let later_ms = later_ms.filter(|_| index > 0);
        let start_ms = later_ms.map_or(1000.0 * flow.start_s, |ms| ms as f64);
        write!(text, "[[flow]]\ncc = \"{}\"\nstart = \"{start_ms} ms\"\n", flow.cc).unwrap();
    }
    scenario::simulate(&text).summary.flows
}

fn are_near(ours: f64, linux: f64) -> bool {
    let (part, more) = RETRANSMITS;
    (ours - linux).abs() <= part * linux + more
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

#[test]
fn single_flows_do_as_linux_does() {
    let wrong = rows(&["single-", "geo-", "handover-"]).into_iter().filter_map(|row| {
        let (linux, ours) = (&row.flows[0], &simulate(&row, 1, None)[0]);
        let goodput = ours.goodput_bps as f64 / linux.goodput_bps;
        let srtt = ours.srtt_mean_us.unwrap_or(0) as f64 / linux.srtt_mean_us;
        let line = format!(
            "{}: goodput x{goodput:.4}, srtt x{srtt:.4}, retransmits {} for {}",
            row.name, ours.retransmits, linux.retransmits
        );
        println!("{line}");
        let within = (goodput - 1.0).abs() <= GOODPUT
            && (srtt - 1.0).abs() <= SRTT
            && are_near(ours.retransmits as f64, linux.retransmits);
        (!within).then_some(line)
    });
    assert_eq!(wrong.collect::<Vec<_>>(), Vec::<String>::new());
}

/// A run with random loss: logarithms of what part of the segments was sent again, and of goodput.
fn lossy(goodput_bps: f64, retransmits: f64, seconds: f64) -> [f64; 2] {
    let delivered = goodput_bps * seconds / (1448.0 * 8.0);
    [(retransmits / (delivered + retransmits)).ln(), goodput_bps.ln()]
}

/// How much higher the second values of `ours` are than those of `linux` at equal first ones, and the half
/// of its 95 % interval: one slope for both, and an offset between them (analysis of covariance).
fn offset(ours: &[[f64; 2]], linux: &[[f64; 2]]) -> (f64, f64) {
    let means =
        |group: &[[f64; 2]]| [0, 1].map(|k| mean(&group.iter().map(|v| v[k]).collect::<Vec<_>>()));
    let (of_ours, of_linux) = (means(ours), means(linux));
    let around = |group: &[[f64; 2]], mean: [f64; 2]| -> Vec<[f64; 2]> {
        group.iter().map(|value| [value[0] - mean[0], value[1] - mean[1]]).collect()
    };
    let mut centred = around(ours, of_ours);
    centred.extend(around(linux, of_linux));
    let sum = |product: fn(&[f64; 2]) -> f64| centred.iter().map(product).sum::<f64>();
    let (xx, xy, yy) = (sum(|v| v[0] * v[0]), sum(|v| v[0] * v[1]), sum(|v| v[1] * v[1]));
    let slope = xy / xx;
    let apart = of_ours[0] - of_linux[0];
    let variance = (yy - slope * xy) / (centred.len() - 3) as f64;
    let counts = 1.0 / ours.len() as f64 + 1.0 / linux.len() as f64;
    // Student's t of some thirty degrees of freedom.
    let reach = 2.04 * (variance * (counts + apart * apart / xx)).sqrt();
    (of_ours[1] - of_linux[1] - slope * apart, reach)
}

/// At the loss that there was, over all of Linux's draws: the difference may be within the tolerance. What CUBIC's losses
/// cost one by one is held to the tolerance itself in crates/tcp/tests/tcp/oracle.rs.
#[test]
fn random_loss_costs_what_it_costs_linux() {
    let wrong = rows(&["loss-"]).into_iter().filter_map(|row| {
        let runs: Vec<FlowSummary> =
            (1..=SEEDS).flat_map(|seed| simulate(&row, seed, None)).collect();
        let linux: Vec<&Flow> = row.draws.iter().map(|flows| &flows[0]).collect();
        let of_linux: Vec<[f64; 2]> = linux
            .iter()
            .map(|flow| lossy(flow.goodput_bps, flow.retransmits, flow.seconds))
            .collect();
        let ours: Vec<[f64; 2]> = runs
            .iter()
            .map(|run| lossy(run.goodput_bps as f64, run.retransmits as f64, linux[0].seconds))
            .collect();
        let (goodput, reach) = offset(&ours, &of_linux);
        let srtts: Vec<f64> =
            runs.iter().filter_map(|run| Some(run.srtt_mean_us? as f64)).collect();
        let of_linux: Vec<f64> = linux.iter().map(|flow| flow.srtt_mean_us).collect();
        let srtt = mean(&srtts) / mean(&of_linux) - 1.0;
        let again = |counts: Vec<f64>| mean(&counts);
        let again = [
            again(runs.iter().map(|run| run.retransmits as f64).collect()),
            again(linux.iter().map(|flow| flow.retransmits).collect()),
        ];
        let line = format!(
            "{}: goodput {:+.1} % +- {:.1}, srtt {:+.1} %, retransmits {again:.0?}",
            row.name,
            100.0 * goodput,
            100.0 * reach,
            100.0 * srtt
        );
        println!("{line}");
        let within = goodput.abs() - reach <= GOODPUT
            && srtt.abs() <= SRTT_WITH_LOSS
            && are_near(again[0], again[1]);
        (!within).then_some(line)
    });
    assert_eq!(wrong.collect::<Vec<_>>(), Vec::<String>::new());
}

fn share(goodputs: [f64; 2]) -> f64 {
    goodputs[0] / (goodputs[0] + goodputs[1])
}

/// Over all starts of the second flow that Linux was asked for, and the same of ours.
#[test]
fn competing_flows_share_as_on_linux() {
    for row in rows(&["fair-"]) {
        // The last is a run of an earlier set.
        let draws = &row.draws[..row.draws.len() - 1];
        let linux: Vec<f64> =
            draws.iter().map(|flows| share([0, 1].map(|k| flows[k].goodput_bps))).collect();
        let ours: Vec<f64> = (0..STARTS)
            .map(|k| {
                let flows = simulate(&row, 1, Some(20_000 + k * STARTS_APART_MS));
                share([0, 1].map(|k: usize| flows[k].goodput_bps as f64))
            })
            .collect();
        let (ours, linux) = (mean(&ours), mean(&linux));
        println!("{}: {ours:.3} for {linux:.3}", row.name);
        assert!((ours - linux).abs() <= SHARE, "{}: {ours:.3} for {linux:.3}", row.name);
    }
}

/// Means over the starts of the second flow; Linux was asked once.
#[test]
fn marks_do_what_they_do_on_linux() {
    for row in rows(&["aqm-"]) {
        let start_ms = (1000.0 * row.flows[1].start_s) as usize;
        let runs: Vec<Vec<FlowSummary>> =
            (0..STARTS).map(|k| simulate(&row, 1, Some(start_ms + k * STARTS_APART_MS))).collect();
        let mean_of = |value: &dyn Fn(&[FlowSummary]) -> f64| {
            mean(&runs.iter().map(|flows| value(flows)).collect::<Vec<_>>())
        };
        let goodputs = |flows: &[FlowSummary]| [0, 1].map(|k: usize| flows[k].goodput_bps as f64);
        let linux = [0, 1].map(|k| row.flows[k].goodput_bps);
        let all = mean_of(&|flows| goodputs(flows).iter().sum()) / linux.iter().sum::<f64>();
        let shares = [mean_of(&|flows| share(goodputs(flows))), share(linux)];
        let marks = mean_of(&|flows| flows.iter().map(|flow| flow.marks as f64).sum());
        let srtts = [0, 1].map(|k: usize| {
            mean_of(&|flows| flows[k].srtt_mean_us.unwrap_or(0) as f64) / row.flows[k].srtt_mean_us
        });
        let line = format!(
            "{}: x{all:.4}, shares {shares:.3?}, srtts x{srtts:.3?}, {marks} marks for {}",
            row.name, row.ecn_marks
        );
        println!("{line}");
        assert!((all - 1.0).abs() <= GOODPUT, "{line}");
        assert!((shares[0] - shares[1]).abs() <= SHARE, "{line}");
        assert!(srtts.iter().all(|srtt| (srtt - 1.0).abs() <= SRTT), "{line}");
        assert!(are_near(marks, row.ecn_marks), "{line}");
    }
}

fn run_short(terms_of: &Short, flow: &str) -> RunData {
    let queue = format!("queue = \"{} B\"", terms_of.queue_bytes);
    let terms = terms(terms_of.one_way_us, terms_of.rate_kbps, &queue, (0.0, false));
    let run = "[run]\nduration = \"120 s\"";
    scenario::simulate(&format!("{terms}{run}\n[[flow]]\ncc = \"{}\"\n{flow}\n", terms_of.cc))
}

/// What is out of tolerance.
fn late(what: &str, ours_s: f64, linux_s: f64) -> Option<String> {
    let line = format!("{what}: {ours_s:.5} s for {linux_s:.5} s");
    println!("{line}");
    ((ours_s / linux_s - 1.0).abs() > TIMES).then_some(line)
}

#[test]
fn short_transfers_take_as_long_as_on_linux() {
    let short = short().into_iter().find(|short| !short.connections.is_empty()).expect("transfers");
    let mut wrong = Vec::new();
    // Those of a size are alike, but for the first of all.
    for linux in short.connections[1..].chunk_by(|a, b| a.bytes == b.bytes).map(|alike| &alike[0]) {
        let bytes = linux.bytes;
        let sent = run_short(&short, &format!("bytes = \"{bytes} B\""));
        let received_s = sent.summary.flows[0].completion_s.expect("it is over");
        let answered = run_short(
            &short,
            &format!(
                "app = {{ kind = \"request-response\", request = \"{bytes} B\", response = \"1 B\", requests = 1 }}"
            ),
        );
        let row = &answered.apps[&AppTable::Requests][0];
        let seconds = |ns: Option<i64>| ns.expect("it did not fail") as f64 / 1e9;
        wrong.extend(late(
            &format!("{bytes} B connected"),
            seconds(row.connect_ns),
            linux.connect_s,
        ));
        wrong.extend(late(&format!("{bytes} B received"), received_s, linux.received_s));
        wrong.extend(late(&format!("{bytes} B replied"), seconds(row.latency_ns), linux.replied_s));
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn answers_take_as_long_as_on_linux() {
    let is_of_answers = |short: &Short| !short.response_s_by_gap_s.is_empty();
    let short = short().into_iter().find(is_of_answers).expect("answers");
    let mut wrong = Vec::new();
    for (gap_s, linux) in &short.response_s_by_gap_s {
        let requests = linux.len();
        let run = run_short(
            &short,
            &format!(
                "from = \"to\"\napp = {{ kind = \"request-response\", request = \"300 B\", response = \"20 kB\", \
                 think = \"{gap_s} s\", requests = {requests} }}"
            ),
        );
        let rows = &run.apps[&AppTable::Requests];
        let took = |row: &skyhop_record::AppRow| {
            row.latency_ns.map(|ns| (ns - row.connect_ns.unwrap_or(0)) as f64 / 1e9)
        };
        let mut ours: Vec<f64> = rows.iter().filter_map(took).collect();
        let mut linux = linux.clone();
        assert_eq!(ours.len(), linux.len());
        for times in [&mut ours, &mut linux] {
            times.sort_by(f64::total_cmp);
        }
        for percent in [50, 95] {
            let place = percent * (requests - 1) / 100;
            let what = format!("answers {gap_s} s after the last, p{percent}");
            wrong.extend(late(&what, ours[place], linux[place]));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}
