//! Paths drawn from access profiles: distributions, memory, replay, and errors.

use skyhop_access::{Process, Profile, RANKS, Request, draw};
use skyhop_model::End;
use skyhop_path::{Endpoint, Frame, PathTrace};
use skyhop_units::{Duration, Instant, UtcInstant};

/// 2024-12-18T18:27:12Z, a mark of the grid.
const MARK: UtcInstant = UtcInstant::from_unix_nanos(1_734_546_432_000_000_000);

fn quantiles(value: impl Fn(f64) -> f64) -> String {
    let values: Vec<String> = RANKS.iter().map(|rank| format!("{:.4}", value(*rank))).collect();
    format!("[{}]", values.join(", "))
}

fn constant(value: f64) -> String {
    quantiles(|_| value)
}

/// Profile with floors of 20 ms, uniform waits of up to 10 ms every 10 ms, and more tables.
fn profile(more: &str) -> Profile {
    let (floor, wait) = (constant(20.0), quantiles(|rank| 10.0 * rank));
    let text = format!(
        "description = \"a test\"\nsource = \"none\"\nlicence = \"none\"\ndate = \"2024\"\n\
         [grid]\nperiod = \"15 s\"\noffset = \"12 s\"\n\
         [round_trip.floor_ms]\nquantiles = {floor}\nevery = \"15 s\"\n\
         [round_trip.wait_ms]\nquantiles = {wait}\nevery = \"10 ms\"\n{more}"
    );
    Profile::parse(&text, "test.toml").unwrap()
}

fn request(seconds: u64, seed: u64) -> Request<'static> {
    Request {
        ends: ["home", "server"].map(Endpoint::named),
        start: MARK,
        duration: Duration::from_secs(seconds),
        seed,
        computed: None,
    }
}

fn drawn(more: &str, seconds: u64, seed: u64) -> PathTrace {
    draw(&profile(more), &request(seconds, seed)).unwrap()
}

/// Mean over time of a value of the frames.
fn mean(trace: &PathTrace, value: impl Fn(&Frame) -> f64) -> f64 {
    let end = Instant::from_nanos(trace.header.duration_ns);
    let next = trace.frames.iter().skip(1).map(|frame| frame.at).chain([end]);
    let sum: f64 = trace
        .frames
        .iter()
        .zip(next)
        .map(|(frame, until)| value(frame) * until.saturating_since(frame.at).as_secs_f64())
        .sum();
    sum / end.saturating_since(Instant::START).as_secs_f64()
}

fn ms(delay: Option<Duration>) -> f64 {
    delay.unwrap().as_secs_f64() * 1e3
}

fn process(slot: f64, slow: f64, slow_time_ms: u64) -> Process {
    let mut quantiles = RANKS;
    quantiles.iter_mut().for_each(|value| *value *= 8.0);
    let (every, slow_time) = (Duration::from_millis(10), Duration::from_millis(slow_time_ms));
    Process { quantiles, every, slot, slow, slow_time }
}

#[test]
fn values_have_the_distribution_of_the_table_and_the_memory_of_the_shares() {
    let steps = 400_000;
    for (slot, slow) in [(0.0, 0.0), (0.3, 0.0), (0.0, 0.6), (0.3, 0.3)] {
        let values = process(slot, slow, 100).drawn(steps, 1500, 7);
        let mut sorted = values.clone();
        sorted.sort_by(f64::total_cmp);
        for rank in [0.05, 0.25, 0.5, 0.75, 0.95] {
            let found = sorted[(rank * steps as f64) as usize];
            assert!((found - 8.0 * rank).abs() < 0.25, "{slot} {slow}: {rank} at {found}");
        }
        let mean = values.iter().sum::<f64>() / steps as f64;
        let correlation = |lag: usize| {
            let products = values.iter().zip(&values[lag..]).map(|(a, b)| (a - mean) * (b - mean));
            let variance: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
            products.sum::<f64>() / variance
        };
        // Uniform values correlate as 6/pi asin(r/2) for a correlation r of their scores.
        for lag in [1, 10, 40] {
            let score = slot * (1.0 - lag as f64 / 1500.0) + slow * (-(lag as f64) / 10.0).exp();
            let expected = 6.0 / std::f64::consts::PI * (score / 2.0).asin();
            let found = correlation(lag);
            assert!((found - expected).abs() < 0.04, "{slot} {slow} {lag}: {found} {expected}");
        }
    }
}

#[test]
fn the_same_seed_draws_the_same_path_and_another_seed_another_one() {
    let [first, again, other] = [1, 1, 2].map(|seed| drawn("", 60, seed));
    assert_eq!(first, again);
    assert_ne!(first.frames, other.frames);
    assert_eq!(first.header.access.as_deref(), Some("test"));
    assert!(first.header.in_order);
}

#[test]
fn one_part_does_not_change_the_draws_of_another() {
    let loss = format!(
        "[[up.loss.bursts]]\nper_second = 2.0\nlasts_ms = {}\nloss = {}\n",
        constant(30.0),
        constant(0.5)
    );
    let (without, with) = (drawn("", 60, 1), drawn(&loss, 60, 1));
    let delay_at = |trace: &PathTrace, at: Instant| {
        trace.frames[trace.frames.partition_point(|frame| frame.at <= at) - 1].delay
    };
    for step in 0..6_000 {
        let at = Instant::START + Duration::from_millis(10 * step + 5);
        assert_eq!(delay_at(&without, at), delay_at(&with, at));
    }
    let lost = mean(&with, |frame| frame.loss.unwrap());
    // A burst begins after 0.5 s of none on average, and takes 30 ms with half of the packets.
    assert!((lost - 0.5 * 0.03 / 0.53).abs() < 0.008, "{lost}");
    assert!(with.frames.iter().all(|frame| frame.loss_back.is_none()));
}

#[test]
fn the_terminals_end_has_the_waits_in_its_own_direction() {
    let up = drawn("", 60, 3);
    let down = up.clone().mirrored();
    assert_eq!((up.header.dish, down.header.dish), (Some(End::From), Some(End::To)));
    for (one, other) in up.frames.iter().zip(&down.frames) {
        assert_eq!((one.delay, one.delay_back), (other.delay_back, other.delay));
        assert!(one.delay_back == Some(Duration::from_millis(10)));
    }
    assert!((mean(&up, |frame| ms(frame.delay)) - 15.0).abs() < 0.3);
}

#[test]
fn a_hole_is_at_each_mark_and_waits_are_longer_after_it() {
    let more = format!(
        "[reconfiguration]\nshare = 1.0\nhole_ms = {}\nbegin_ms = {}\nsettling_ms = 200.0\nsettling_factor = 3.0\n",
        constant(80.0),
        constant(-20.0)
    );
    let trace = drawn(&more, 61, 1);
    let holes: Vec<(u64, u64)> = trace
        .events()
        .map(|event| (event.at.as_nanos() / 1_000_000, event.outage.as_nanos() / 1_000_000))
        .collect();
    // The hole of the mark at which the path begins has begun before.
    let later = [14_980, 29_980, 44_980, 59_980].map(|at| (at, 80));
    assert_eq!(holes[0], (0, 60));
    assert_eq!(holes[1..], later);
    let wait = |from_ms: u64, until_ms: u64| {
        let inside = trace.frames.iter().filter(|frame| {
            (from_ms..until_ms).contains(&(frame.at.as_nanos() / 1_000_000 % 15_000))
        });
        let waits: Vec<f64> = inside.map(|frame| ms(frame.delay) - 10.0).collect();
        waits.iter().sum::<f64>() / waits.len() as f64
    };
    assert!(wait(60, 250) > 2.0 * wait(1_000, 14_000), "{}", wait(60, 250));
}

#[test]
fn frames_keep_the_volume_and_serve_for_their_share_of_the_time() {
    let level =
        format!("[down.rate.level_mbps]\nquantiles = {}\nevery = \"15 s\"\n", constant(50.0));
    let framed = format!("{level}[down.rate.frames]\nperiod_ms = 4.0\nbusy = 0.25\nspread = 1.0\n");
    let mbps = |frame: &Frame| frame.rate_back.unwrap().bits_per_second() as f64 / 1e6;
    for more in [&level, &framed] {
        let found = mean(&drawn(more, 30, 1), mbps);
        assert!((found - 50.0).abs() < 0.1, "{found}");
    }
    let idle = mean(&drawn(&framed, 30, 1), |frame| f64::from(mbps(frame) == 0.0));
    assert!((idle - 0.75).abs() < 0.01, "{idle}");
}

#[test]
fn rates_and_losses_depend_on_the_time_since_the_mark() {
    let more = format!(
        "[up.rate.level_mbps]\nquantiles = {}\nevery = \"15 s\"\n\
         [[up.rate.phases]]\nfrom_s = -1.5\nuntil_s = -1.0\nfactor = 0.5\n",
        constant(10.0)
    );
    let trace = drawn(&more, 60, 1);
    for frame in &trace.frames {
        let phase_ms = frame.at.as_nanos() / 1_000_000 % 15_000;
        let expected = if (13_500..14_000).contains(&phase_ms) { 5_000_000 } else { 10_000_000 };
        assert_eq!(frame.rate.unwrap().bits_per_second(), expected, "at {phase_ms} ms");
    }
}

#[test]
fn bursts_gather_in_the_slots_of_their_level_which_may_go_with_the_capacity() {
    // In half of the slots twice as many bursts as usual, in the others none.
    let halves = quantiles(|rank| if rank > 0.5 { 2.0 } else { 0.0 });
    let bursts = |with_rate: f64| {
        format!(
            "[up.rate.level_mbps]\nquantiles = {}\nevery = \"15 s\"\n\
             [[up.loss.bursts]]\nper_second = 4.0\nlasts_ms = {}\nloss = {}\nwith_rate = {with_rate}\n\
             [up.loss.bursts.level]\nquantiles = {halves}\nevery = \"15 s\"\n",
            quantiles(|rank| 10.0 + 10.0 * rank),
            constant(10.0),
            constant(1.0),
        )
    };
    for (with_rate, share_where_slow) in [(-1.0, 1.0), (1.0, 0.0), (0.0, 0.5)] {
        let trace = drawn(&bursts(with_rate), 6_000, 3);
        let is_slow = |frame: &Frame| frame.rate.unwrap().bits_per_second() < 15_000_000;
        let lost = mean(&trace, |frame| frame.loss.unwrap());
        let lost_where_slow = mean(&trace, |f| if is_slow(f) { f.loss.unwrap() } else { 0.0 });
        // In 0.45 of the slots 8 bursts of 10 ms in a second, which do not overlap: 0.45 * 0.08 / 1.08.
        assert!((lost - 0.0333).abs() < 0.004, "{lost} with {with_rate}");
        assert!(
            (lost_where_slow / lost - share_where_slow).abs() < 0.15,
            "{lost_where_slow} {lost}"
        );
        let mut by_slot = vec![0.0; 400];
        for frame in trace.frames.iter().filter(|frame| frame.loss > Some(0.5)) {
            by_slot[(frame.at.as_nanos() / 15_000_000_000) as usize] += 1.0;
        }
        let without = by_slot.iter().filter(|bursts| **bursts == 0.0).count();
        assert!((150..250).contains(&without), "{without} of 400 slots without a burst");
    }
}

#[test]
fn a_computed_path_keeps_its_nodes_and_gets_the_waits_on_the_terminals_hop() {
    let ends = ["home", "server"].map(Endpoint::named);
    let computed = PathTrace::fixed(ends, Duration::from_millis(10), Duration::from_secs(30));
    let request = Request { computed: Some(&computed), ..request(30, 1) };
    let trace = draw(&profile(""), &request);
    let trace = trace.unwrap();
    trace.validate().unwrap();
    assert!(trace.frames.iter().all(|frame| frame.nodes == [-1, -2]));
    assert!((mean(&trace, |frame| ms(frame.delay)) - 10.0).abs() < 0.4);
    assert!(trace.frames.iter().all(|frame| frame.delay_back == Some(Duration::from_millis(5))));
}

#[test]
fn a_path_of_a_year_is_refused_before_it_takes_memory() {
    let error = draw(&profile(""), &request(366 * 86_400, 1)).unwrap_err().to_string();
    assert!(error.contains("takes 3162240000 changes of the link; at most 20000000"), "{error}");
}

#[test]
fn wrong_profiles_are_refused_with_the_place() {
    let head = "description = \"a\"\nsource = \"a\"\nlicence = \"a\"\ndate = \"a\"\n";
    let falling = quantiles(|rank| 10.0 - rank);
    for (text, message) in [
        ("[up]\nspeed = 3", "own.toml line 6: unknown field `speed`"),
        ("[grid]\nperiod = \"0 s\"\noffset = \"0 s\"", "grid.period is 0 s; expected at least 1 s"),
        (
            &format!("[up.wait_ms]\nquantiles = {falling}\nevery = \"10 ms\""),
            "up.wait_ms: expected 23 quantiles in rising order, from 0 on",
        ),
        (
            &format!("[up.wait_ms]\nquantiles = {}\nevery = \"10 ms\"\nslow = 0.5", constant(1.0)),
            "up.wait_ms: slow_time is missing, although slow is above 0",
        ),
        (
            &format!("[up.wait_ms]\nquantiles = {}\nevery = \"1 us\"", constant(1.0)),
            "up.wait_ms: every is 1 us; expected at least 1 ms",
        ),
        (
            &format!("[outages]\nper_hour = inf\nlasts_ms = {}", constant(1.0)),
            "outages.per_hour is inf; expected 0 to 36000",
        ),
        (
            &format!(
                "[[up.loss.bursts]]\nper_second = nan\nlasts_ms = {}\nloss = {}",
                constant(1.0),
                constant(1.0)
            ),
            "up.loss.bursts.per_second is NaN; expected 0 to 1000",
        ),
        (
            &format!(
                "[[up.loss.bursts]]\nper_second = 1.0\nlasts_ms = {0}\nloss = {0}\nwith_rate = -0.5",
                constant(1.0)
            ),
            "up.loss.bursts.with_rate needs level",
        ),
        (
            &format!(
                "[[up.loss.bursts]]\nper_second = 1.0\nlasts_ms = {0}\nloss = {0}\nwith_rate = -0.5\n\
                 [up.loss.bursts.level]\nquantiles = {0}\nevery = \"15 s\"",
                constant(1.0)
            ),
            "up.loss.bursts.with_rate is given, but the direction has no rate",
        ),
        (
            &format!(
                "[up.rate.level_mbps]\nquantiles = {}\nevery = \"15 s\"\n[up.rate.frames]\nperiod_ms = nan\nbusy = 0.5",
                constant(1.0)
            ),
            "up.rate.frames: period_ms is NaN; expected 1 to 1000",
        ),
    ] {
        let error = Profile::parse(&format!("{head}{text}"), "own.toml").unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
    let bare = Profile::parse(head, "own.toml").unwrap();
    let error = draw(&bare, &request(10, 1)).unwrap_err().to_string();
    let expected = "the profile own holds no round trips of its own; expected one that does, or relay = \"starlink\"";
    assert!(error.starts_with(expected), "{error}");
}
