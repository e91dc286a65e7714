//! Single flows against what the real stack did (tests/linux). The fuller comparison belongs to the
//! simulator.

use skyhop_cc::{Instance, Module};
use skyhop_model::Profile;
use skyhop_needs::linux::{Scenario, scenarios};
use skyhop_tcp::{Receiver, ReceiverConfig, SenderConfig};
use skyhop_units::{Duration, Instant, Rate};

use crate::path::{Fate, Path, ms};
use crate::trouble::Trouble;

/// Of goodput, relative; the tolerance for clean paths.
const GOODPUT_TOLERANCE: f64 = 0.03;
/// The same with outages.
const OUTAGE_TOLERANCE: f64 = 0.05;
/// With random loss, of the mean over this many seeds.
const LOSS_TOLERANCE: f64 = 0.15;
const SEEDS: u64 = 20;
/// Of the mean srtt, relative.
const SRTT_TOLERANCE: f64 = 0.10;

/// Of a full packet with its Ethernet header.
const PACKET_BYTES: u64 = 1514;

struct Setup {
    rate_kbps: u64,
    queue_bytes: u64,
    one_way: Duration,
    seconds: f64,
    handovers: bool,
    /// The probability that a data packet is lost.
    loss: f64,
}

struct Outcome {
    goodput_bps: f64,
    srtt_mean_us: f64,
    cwnd_mean: f64,
    retransmits: f64,
}

#[test]
fn single_flows_behave_as_on_linux() {
    let kinds = ["single-", "geo-", "handover-", "loss-"];
    let mut scenarios = scenarios();
    scenarios.retain(|scenario| kinds.iter().any(|kind| scenario.name.starts_with(kind)));
    let wrong: Vec<String> = scenarios.iter().filter_map(compare).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What is out of tolerance; nothing where skyhop does not have the congestion control.
fn compare(scenario: &Scenario) -> Option<String> {
    let (name, linux) = (&scenario.name, &scenario.flows[0]);
    let module = Module::find(&linux.cc).ok()?;
    // A token bucket sends a packet of an idle link at once, and the one that it has begun is still in its queue.
    let packet_us = PACKET_BYTES * 8000 / scenario.rate_kbps;
    let setup = Setup {
        rate_kbps: scenario.rate_kbps,
        queue_bytes: scenario.queue_bytes - PACKET_BYTES,
        one_way: Duration::from_micros(scenario.one_way_us - packet_us / 2),
        seconds: linux.seconds,
        handovers: name.starts_with("handover-"),
        loss: scenario.loss_percent / 100.0,
    };
    let (ours, tolerance) = if setup.loss > 0.0 {
        let outcomes: Vec<Outcome> = (1..=SEEDS).map(|seed| run(module, &setup, seed)).collect();
        (mean(&outcomes), LOSS_TOLERANCE)
    } else {
        (run(module, &setup, 0), if setup.handovers { OUTAGE_TOLERANCE } else { GOODPUT_TOLERANCE })
    };
    let goodput = ours.goodput_bps / linux.goodput_bps;
    let srtt = ours.srtt_mean_us / linux.srtt_mean_us;
    let retransmits = linux.retransmits;
    let line = format!(
        "{name}: goodput x{goodput:.3}, srtt x{srtt:.3}, cwnd {:.0} for {:.0}, retransmits {} for {retransmits}",
        ours.cwnd_mean, linux.cwnd_mean_packets, ours.retransmits
    );
    println!("{line}");
    let within = (goodput - 1.0).abs() <= tolerance
        && (srtt - 1.0).abs() <= SRTT_TOLERANCE
        && ours.retransmits <= 2.0 * retransmits + 20.0
        && retransmits <= 2.0 * ours.retransmits + 20.0;
    (!within).then_some(line)
}

fn run(module: &'static Module, setup: &Setup, seed: u64) -> Outcome {
    // The oracle's kernel ticks a hundred times a second.
    let cc = Instance::new(module, &[]).expect("a whole module").with_hz(100);
    let (profile, jiffy) = (Profile::Linux6_12, ms(10));
    let config = SenderConfig { profile, jiffy, ..SenderConfig::default() };
    let mut path = Path::with_config(config, cc, setup.one_way);
    path.receiver = Receiver::new(ReceiverConfig { profile, jiffy, ..ReceiverConfig::default() });
    let rate = Rate::from_bits_per_second(setup.rate_kbps * 1000);
    path.bottleneck = Some((rate, setup.queue_bytes));
    let start = Instant::START + setup.one_way * 2;
    if setup.handovers {
        path.one_way = Box::new(move |now| one_way_with_handovers(now.saturating_since(start)));
        path.judge_segment = Box::new(move |now, _| fate_at(now.saturating_since(start)));
        path.judge_ack = Box::new(move |now, _| fate_at(now.saturating_since(start)));
    }
    if setup.loss > 0.0 {
        let mut dice = Trouble::of_loss((setup.loss * 1e6) as u64, seed);
        path.judge_segment = Box::new(move |_, _| dice.fate());
    }
    path.sender.write_without_end();
    path.run_for(setup.one_way * 2);
    let (mut srtt, mut cwnd) = (0.0, 0.0);
    let samples = (setup.seconds * 10.0) as u32;
    for _ in 0..samples {
        path.run_for(ms(100));
        let info = path.sender.info();
        srtt += info.srtt.map_or(0.0, |srtt| srtt.as_nanos() as f64 / 1e3);
        cwnd += f64::from(info.cwnd);
        path.forget();
    }
    let bytes = path.receiver.stats().bytes_in_order.as_u64() as f64;
    Outcome {
        goodput_bps: bytes * 8.0 / (path.now - start).as_secs_f64(),
        srtt_mean_us: srtt / f64::from(samples),
        cwnd_mean: cwnd / f64::from(samples),
        retransmits: path.sender.info().retransmits as f64,
    }
}

/// Every 15 s: 100 ms of outage, then the other of two paths.
fn one_way_with_handovers(t: Duration) -> Duration {
    let handovers = t.as_nanos() / ms(15_000).as_nanos();
    if in_outage(t) || handovers % 2 == 0 { ms(20) } else { ms(30) }
}

fn in_outage(t: Duration) -> bool {
    t >= ms(15_000) && t.as_nanos() % ms(15_000).as_nanos() < ms(100).as_nanos()
}

fn fate_at(t: Duration) -> Fate {
    if in_outage(t) { Fate::Lost } else { Fate::Arrives }
}

fn mean(outcomes: &[Outcome]) -> Outcome {
    let of = |value: fn(&Outcome) -> f64| {
        outcomes.iter().map(value).sum::<f64>() / outcomes.len() as f64
    };
    Outcome {
        goodput_bps: of(|outcome| outcome.goodput_bps),
        srtt_mean_us: of(|outcome| outcome.srtt_mean_us),
        cwnd_mean: of(|outcome| outcome.cwnd_mean),
        retransmits: of(|outcome| outcome.retransmits),
    }
}
