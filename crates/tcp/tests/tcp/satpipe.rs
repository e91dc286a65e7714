//! SatPipe over a path that changes: its behaviour during an announced handover, and after it.

use skyhop_cc::{CongestionControl, Handover, Instance, Module, Phase};
use skyhop_model::PhaseKind;
use skyhop_units::{Duration, Instant};

use crate::path::{Fate, Path, ms};

/// Packets of the BDP of 20 Mbit/s and 40 ms, and of the queue.
const QUEUE_PACKETS: u64 = 67;
const LEAST_CWND: u32 = 4;

fn module(name: &str) -> Instance {
    with(name, &[])
}

fn with(name: &str, params: &[(&str, &str)]) -> Instance {
    Instance::new(Module::find(name).expect("a module"), params).expect("a whole module")
}

fn at_ms(at: u64) -> Instant {
    Instant::START + ms(at)
}

/// Path whose one-way delay changes from 20 ms to this at `at`, in the middle of `outage`.
fn path(cc: &str, at: u64, then: u64, outage: std::ops::Range<u64>) -> Path<Instance> {
    path_of(module(cc), at, then, outage)
}

fn path_of(cc: Instance, at: u64, then: u64, outage: std::ops::Range<u64>) -> Path<Instance> {
    let mut path = Path::new(cc, ms(20)).with_bottleneck("20 Mbit/s", QUEUE_PACKETS);
    path.one_way = Box::new(move |now| if now < at_ms(at) { ms(20) } else { ms(then) });
    let (from, until) = (at_ms(outage.start), at_ms(outage.end));
    let fate = move |now| if now >= from && now < until { Fate::Lost } else { Fate::Arrives };
    path.judge_segment = Box::new(move |now, _| fate(now));
    path.judge_ack = Box::new(move |now, _| fate(now));
    path.sender.write_without_end();
    path
}

fn announce(path: &mut Path<Instance>, at: u64) {
    let at_ns = at_ms(at).as_nanos();
    path.sender.congestion_control().announce(Handover { at_ns, valid: 1, ..Handover::default() });
}

fn run_until(path: &mut Path<Instance>, until: u64) {
    path.run_for(at_ms(until) - path.now);
}

/// Congestion windows between two times.
fn windows(path: &Path<Instance>, from: u64, until: u64) -> Vec<u32> {
    let within = |at: &Instant| (at_ms(from)..at_ms(until)).contains(at);
    path.trace.iter().filter(|(at, _)| within(at)).map(|(_, info)| info.cwnd).collect()
}

fn cwnd(path: &Path<Instance>) -> u32 {
    path.sender.info().cwnd
}

fn phases(path: &mut Path<Instance>) -> Vec<Phase> {
    path.sender.congestion_control().take_phases()
}

/// Goodput over the next `seconds`, in bit/s.
fn goodput_bps(path: &mut Path<Instance>, seconds: u64) -> f64 {
    let received = |path: &Path<Instance>| path.receiver.stats().bytes_in_order.as_u64();
    let before = received(path);
    path.run_for(Duration::from_secs(seconds));
    (received(path) - before) as f64 * 8.0 / seconds as f64
}

/// Parameters of SatPipe; begin of the drain, its end and the end of the probe around a handover at 6 s, in ms.
type Setting<'a> = (&'a [(&'a str, &'a str)], [u64; 3]);

#[test]
fn it_drains_within_the_window_and_probes_right_after_it() {
    let before = [("guard_start", "-15 ms")];
    let patch = [("guard_start", "-50"), ("guard_end", "-50"), ("probe_rtt_time", "300 ms")];
    let late = [("guard_start", "2 s"), ("guard_end", "2.1 s")];
    let settings: [Setting<'_>; 4] = [
        (&[], [6_015, 6_100, 6_300]),
        (&before, [5_985, 6_100, 6_300]),
        (&patch, [5_950, 5_950, 6_250]),
        (&late, [8_000, 8_100, 8_300]),
    ];
    for (params, [begin, end, open]) in settings {
        let mut path = path_of(with("satpipe", params), 6_000, 20, 0..0);
        run_until(&mut path, 5_000);
        announce(&mut path, 6_000);
        run_until(&mut path, begin);
        let saved = cwnd(&path);
        assert!(saved > 100, "{params:?}: {saved}");
        run_until(&mut path, 9_000);
        // From an ACK after the interval's begin to 200 ms after its end, plus or minus a round trip.
        let closed = windows(&path, begin + 5, open);
        assert!(closed.iter().all(|cwnd| *cwnd == LEAST_CWND), "{params:?}: {closed:?}");
        let opened = windows(&path, open + 85, open + 200);
        assert!(opened.iter().all(|cwnd| *cwnd >= saved), "{params:?}: {saved}: {opened:?}");
        let mut phases = phases(&mut path);
        let probe = phases.pop().expect("a probe");
        let is_near = |at_ns: u64, at: u64| {
            (0..50_000_000).contains(&(at_ns as i64 - at_ms(at).as_nanos() as i64))
        };
        assert_eq!(probe.kind, PhaseKind::ProbeRtt);
        assert!(is_near(probe.begin_ns, end), "{params:?}: {probe:?}");
        assert!(
            probe.end_ns.abs_diff(at_ms(open).as_nanos()) < 90_000_000,
            "{params:?}: {probe:?}"
        );
        // An interval of no length has no drain.
        match phases[..] {
            [drain] => {
                assert_eq!((drain.kind, drain.end_ns), (PhaseKind::Drain, probe.begin_ns));
                assert!(is_near(drain.begin_ns, begin), "{params:?}: {drain:?}");
            }
            _ => assert!(phases.is_empty() && begin == end, "{params:?}: {phases:?}"),
        }
    }
}

/// Number of times that the window closes, of connections with handovers at 15, 30, ... s.
#[test]
fn there_is_one_probe_in_each_period() {
    let dips = |params: &[(&str, &str)]| {
        let mut path = path_of(with("satpipe", params), 0, 20, 0..0);
        run_until(&mut path, 13_000);
        for handover in 1..=4 {
            announce(&mut path, 15_000 * handover);
            run_until(&mut path, 15_000 * handover + 13_000);
        }
        let is_closed: Vec<bool> =
            windows(&path, 13_000, 73_000).iter().map(|cwnd| *cwnd == LEAST_CWND).collect();
        is_closed.windows(2).filter(|pair| !pair[0] && pair[1]).count()
    };
    assert_eq!(dips(&[]), 4);
    // A minimum that lives for 10 s expires between two handovers, too.
    assert_eq!(dips(&[("min_rtt_window", "10 s")]), 8);
}

/// The window in PROBE_BW is two BDPs, which shows BBR's estimate of min_rtt.
#[test]
fn min_rtt_rises_after_a_handover_to_a_longer_path() {
    let windows_after = |cc: Instance| {
        let mut path = path_of(cc, 6_000, 40, 0..0);
        run_until(&mut path, 5_000);
        announce(&mut path, 6_000);
        run_until(&mut path, 7_500);
        cwnd(&path)
    };
    let (satpipe, bbr) = (windows_after(module("satpipe")), windows_after(module("bbr")));
    let kept = windows_after(with("satpipe", &[("raise_min_rtt", "0")]));
    // Two BDPs of 133 packets, and of 67 packets; and the allowances for bursts and aggregation.
    assert!((250..330).contains(&satpipe), "{satpipe}");
    assert!((120..200).contains(&bbr), "{bbr}");
    assert!((120..200).contains(&kept), "{kept}");
}

#[test]
fn min_rtt_falls_after_a_handover_to_a_shorter_path() {
    let mut path = path("satpipe", 6_000, 10, 0..0);
    run_until(&mut path, 5_000);
    announce(&mut path, 6_000);
    run_until(&mut path, 7_500);
    // Two BDPs of 33 packets.
    assert!((60..110).contains(&cwnd(&path)), "{}", cwnd(&path));
}

#[test]
fn in_startup_it_does_nothing() {
    let trace = |is_announced: bool| {
        let mut path = path("satpipe", 6_000, 20, 0..0);
        if is_announced {
            announce(&mut path, 100);
        }
        run_until(&mut path, 230);
        path.trace.clone()
    };
    let windows = trace(true);
    assert!(windows.iter().any(|(_, info)| info.cwnd > 40), "it grows");
    assert_eq!(windows, trace(false));
}

/// No ACK arrives from before the handover interval until long after it.
#[test]
fn a_window_without_acks_ends_properly() {
    let mut path = path("satpipe", 6_000, 20, 5_900..6_600);
    run_until(&mut path, 5_000);
    announce(&mut path, 6_000);
    run_until(&mut path, 5_900);
    let before = cwnd(&path);
    run_until(&mut path, 9_000);
    assert!(cwnd(&path) >= before, "{} of {before}", cwnd(&path));
    let goodput = goodput_bps(&mut path, 5);
    assert!(goodput > 0.9 * 20e6, "{goodput}");
    let kinds: Vec<PhaseKind> = phases(&mut path).iter().map(|phase| phase.kind).collect();
    assert_eq!(kinds.last(), Some(&PhaseKind::ProbeRtt), "{kinds:?}");
    assert_eq!(kinds.iter().filter(|kind| **kind == PhaseKind::ProbeRtt).count(), 1);
}

/// A handover every 15 s for ten minutes, each with an outage: the window is closed for some 300 ms behind each.
#[test]
fn over_ten_minutes_the_bandwidth_does_not_age_away() {
    let mut path = path("satpipe", 0, 20, 0..0);
    let every = ms(15_000).as_nanos();
    let fate = move |now: Instant| {
        let is_down = now.as_nanos() >= every && now.as_nanos() % every < ms(80).as_nanos();
        if is_down { Fate::Lost } else { Fate::Arrives }
    };
    path.judge_segment = Box::new(move |now, _| fate(now));
    path.judge_ack = Box::new(move |now, _| fate(now));
    for handover in 1..=40 {
        let at = handover * 15_000;
        run_until(&mut path, at - 2_000);
        announce(&mut path, at);
        run_until(&mut path, at + 500);
        // The estimate right after the window has opened again.
        let info = path.sender.info();
        let pacing_bps = 8.0 * info.pacing_rate.expect("BBR paces") as f64;
        assert!(pacing_bps > 0.7 * 20e6, "handover {handover}: {pacing_bps}");
        path.forget();
    }
    let goodput = path.receiver.stats().bytes_in_order.as_u64() as f64 * 8.0 / 600.0;
    assert!(goodput > 0.93 * (1448.0 / 1514.0) * 20e6, "{goodput}");
    let closed = phases(&mut path);
    assert_eq!(closed.iter().filter(|p| p.kind == PhaseKind::Drain).count(), 40);
}

#[test]
fn announcements_that_are_wrong_do_no_lasting_harm() {
    // Announcements of the distant past, of just now, too late, for a time that never comes, again and again.
    let wrong: [(&str, &[u64]); 5] = [
        ("long ago", &[100]),
        ("too early", &[9_000]),
        ("too late", &[4_990]),
        ("never", &[u64::MAX / 2_000_000]),
        ("without end", &[5_000, 5_060, 5_120, 5_180, 5_240, 5_300, 5_360, 5_420, 5_480, 5_540]),
    ];
    for (what, announced) in wrong {
        let mut path = path("satpipe", 0, 20, 0..0);
        for (place, at) in (0_u64..).zip(announced) {
            run_until(&mut path, 5_000 + 60 * place);
            announce(&mut path, *at);
        }
        run_until(&mut path, 10_000);
        let goodput = goodput_bps(&mut path, 5);
        // The last handover can still be ahead: one drain and one probe in five seconds at most.
        assert!(goodput > 0.85 * 20e6, "{what}: {goodput}");
    }
}

/// An announcement for later waits for an earlier one, and is not lost.
#[test]
fn a_window_ahead_is_not_forgotten_for_a_later_one() {
    let mut path = path("satpipe", 0, 20, 0..0);
    run_until(&mut path, 5_000);
    announce(&mut path, 6_000);
    run_until(&mut path, 5_500);
    announce(&mut path, 8_000);
    run_until(&mut path, 9_000);
    let drains: Vec<u64> = phases(&mut path)
        .iter()
        .filter(|phase| phase.kind == PhaseKind::Drain)
        .map(|phase| phase.end_ns / 100_000_000)
        .collect();
    assert_eq!(drains, [61, 81]);
}
