//! Single flows compared with the real stack (tests/linux). The fuller comparison is part of the simulator's
//! tests.

use skyhop_cc::{Instance, Module};
use skyhop_model::Profile;
use skyhop_needs::linux::{Scenario, retransmits, scenarios};
use skyhop_tcp::{HostConfig, Receiver, ReceiverConfig, SenderConfig};
use skyhop_units::{Duration, Instant, Rate};

use crate::path::{Fate, Path, ms};
use crate::trouble::Trouble;

/// Relative tolerance of the goodput.
const GOODPUT: f64 = 0.02;
/// Relative tolerance of the mean srtt.
const SRTT: f64 = 0.03;
/// Relative tolerance of the mean srtt with random loss.
const SRTT_WITH_LOSS: f64 = 0.05;
/// Tolerance of the retransmissions: relative and absolute.
const RETRANSMITS: (f64, f64) = (0.25, 20.0);
/// Number of random draws, whose mean counts.
const SEEDS: u64 = 20;

/// Version and ticks per second of the Linux kernel measured.
const PROFILE: Profile = Profile::Linux6_12;
const HZ: u32 = 100;

struct Setup {
    rate_kbps: u64,
    queue_bytes: u64,
    one_way: Duration,
    seconds: f64,
    handovers: bool,
    loss: Loss,
}

enum Loss {
    None,
    /// Each data packet is lost with this probability.
    Random {
        probability: f64,
        seed: u64,
    },
    /// The first data packet after each of these times is lost, as on Linux.
    At(Vec<Duration>),
}

struct Outcome {
    goodput_bps: f64,
    srtt_mean_us: f64,
    cwnd_mean: f64,
    retransmits: f64,
}

#[test]
fn single_flows_behave_as_on_linux() {
    let kinds = ["single-", "geo-", "handover-"];
    let wrong = of_kinds(&kinds).into_iter().filter_map(|(scenario, module)| {
        compare(&scenario, &run(module, setup(&scenario, Loss::None)), SRTT)
    });
    assert_eq!(wrong.collect::<Vec<_>>(), Vec::<String>::new());
}

/// Random losses at the times at which Linux retransmitted, to a tenth of a second. Where within a tenth is not
/// known, nor which of several losses in one tenth cost one reduction together; hence the mean.
#[test]
fn what_linux_lost_at_random_costs_as_much() {
    let wrong = of_kinds(&["loss-cubic-"]).into_iter().filter_map(|(scenario, module)| {
        let losses = |seed| Loss::At(losses_of(&scenario, seed));
        compare(&scenario, &mean_of(module, &scenario, losses), SRTT_WITH_LOSS)
    });
    assert_eq!(wrong.collect::<Vec<_>>(), Vec::<String>::new());
}

#[test]
fn bbr_at_random_loss_behaves_as_on_linux() {
    let wrong = of_kinds(&["loss-bbr-"]).into_iter().filter_map(|(scenario, module)| {
        let probability = scenario.loss_percent / 100.0;
        let losses = |seed| Loss::Random { probability, seed };
        compare(&scenario, &mean_of(module, &scenario, losses), SRTT_WITH_LOSS)
    });
    assert_eq!(wrong.collect::<Vec<_>>(), Vec::<String>::new());
}

/// Select the scenarios of these kinds whose congestion controls are Linux's own.
fn of_kinds(kinds: &[&str]) -> Vec<(Scenario, &'static Module)> {
    let is_of_kind = |name: &str| kinds.iter().any(|kind| name.starts_with(kind));
    let known = scenarios().into_iter().filter(|scenario| is_of_kind(&scenario.name));
    let found: Vec<_> = known
        .filter(|scenario| scenario.is_linux_own())
        .filter_map(|scenario| Module::find(&scenario.flows[0].cc).ok().map(|cc| (scenario, cc)))
        .collect();
    assert!(!found.is_empty(), "no scenario of Linux's is one of {kinds:?}");
    found
}

fn setup(scenario: &Scenario, loss: Loss) -> Setup {
    Setup {
        rate_kbps: scenario.rate_kbps,
        queue_bytes: scenario.queue_bytes,
        one_way: Duration::from_micros(scenario.one_way_us),
        seconds: scenario.flows[0].seconds,
        handovers: scenario.name.starts_with("handover-"),
        loss,
    }
}

/// Draw the times of losses: a round trip before each retransmission, which was at some time in its tenth of a
/// second.
fn losses_of(scenario: &Scenario, seed: u64) -> Vec<Duration> {
    let mut dice = Trouble::of_loss(0, seed);
    let round_trip = Duration::from_micros(2 * scenario.one_way_us);
    let mut losses = Vec::new();
    for (tenth, count) in (0_u64..).zip(retransmits(&scenario.name, 0)) {
        for _ in 0..count {
            let again = ms(100 * tenth) + dice.time_within(ms(100));
            losses.push(again.saturating_sub(round_trip));
        }
    }
    losses.sort();
    losses
}

/// Describe the results out of tolerance; `None` if all are within.
fn compare(scenario: &Scenario, ours: &Outcome, srtt_tolerance: f64) -> Option<String> {
    let (name, linux) = (&scenario.name, &scenario.flows[0]);
    let goodput = ours.goodput_bps / linux.goodput_bps;
    let srtt = ours.srtt_mean_us / linux.srtt_mean_us;
    let line = format!(
        "{name}: goodput x{goodput:.4}, srtt x{srtt:.4}, cwnd {:.0} for {:.0}, retransmits {} for {}",
        ours.cwnd_mean, linux.cwnd_mean_packets, ours.retransmits, linux.retransmits
    );
    println!("{line}");
    let (part, few) = RETRANSMITS;
    let within = (goodput - 1.0).abs() <= GOODPUT
        && (srtt - 1.0).abs() <= srtt_tolerance
        && (ours.retransmits - linux.retransmits).abs() <= part * linux.retransmits + few;
    (!within).then_some(line)
}

fn run(module: &'static Module, setup: Setup) -> Outcome {
    let cc = Instance::new(module, &[]).expect("a whole module").with_hz(HZ);
    let jiffy = Duration::from_secs(1) / u64::from(HZ);
    let host = HostConfig { profile: PROFILE, jiffy, ..HostConfig::default() };
    let config = SenderConfig { host, ..SenderConfig::default() };
    let mut path = Path::with_config(config, cc, setup.one_way);
    let config = ReceiverConfig { host, ..ReceiverConfig::default() };
    path.receiver = Receiver::new(config);
    let rate = Rate::from_bits_per_second(setup.rate_kbps * 1000);
    path.bottleneck = Some((rate, setup.queue_bytes));
    let start = Instant::START + setup.one_way * 2;
    if setup.handovers {
        path.one_way = Box::new(move |now| one_way_with_handovers(now.saturating_since(start)));
        path.judge_segment = Box::new(move |now, _| fate_at(now.saturating_since(start)));
        path.judge_ack = Box::new(move |now, _| fate_at(now.saturating_since(start)));
    }
    match setup.loss {
        Loss::None => {}
        Loss::Random { probability, seed } => {
            let mut dice = Trouble::of_loss((probability * 1e6) as u64, seed);
            path.judge_segment = Box::new(move |_, _| dice.fate());
        }
        Loss::At(times) => {
            let mut times = times.into_iter().map(move |time| start + time).peekable();
            path.judge_segment = Box::new(move |now, segment| {
                let is_due = !segment.retransmission && times.next_if(|at| *at <= now).is_some();
                if is_due { Fate::Lost } else { Fate::Arrives }
            });
        }
    }
    path.sender.write_without_end();
    path.run_for(setup.one_way * 2);
    sampled(path, start, setup.seconds)
}

/// Run on for `seconds` and take samples every tenth of a second.
fn sampled(mut path: Path<Instance>, start: Instant, seconds: f64) -> Outcome {
    let (mut srtt, mut cwnd) = (0.0, 0.0);
    let samples = (seconds * 10.0) as u32;
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

/// One-way delay at a time: every 15 s there is an outage of 100 ms, then the other of two paths.
fn one_way_with_handovers(t: Duration) -> Duration {
    let handovers = t.as_nanos() / ms(15_000).as_nanos();
    if in_outage(t) || handovers.is_multiple_of(2) { ms(20) } else { ms(30) }
}

fn in_outage(t: Duration) -> bool {
    t >= ms(15_000) && t.as_nanos() % ms(15_000).as_nanos() < ms(100).as_nanos()
}

fn fate_at(t: Duration) -> Fate {
    if in_outage(t) { Fate::Lost } else { Fate::Arrives }
}

/// Mean of the outcomes over all seeds.
fn mean_of(module: &'static Module, scenario: &Scenario, loss: impl Fn(u64) -> Loss) -> Outcome {
    let runs = (1..=SEEDS).map(|seed| run(module, setup(scenario, loss(seed))));
    let outcomes: Vec<Outcome> = runs.collect();
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
