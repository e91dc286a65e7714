//! Demand assignment: cases small enough to check by hand, and a slow reference.
//!
//! A frame is 40 ms, a packet 1500 bytes.

use proptest::prelude::*;
use skyhop_link::{DamaConfig, Limit, Link, LinkConfig, LinkError, LinkSchedule, Packet};
use skyhop_link::{Outage, QueueDiscipline};
use skyhop_model::{Counts, DuringOutage, LossReason};
use skyhop_units::{Bytes, Duration, Instant, Rate, Ratio};

use crate::against_reference::{Driver, Polling, assert_same};
use crate::reference::{Offered, Outcome};

const SIZE: u64 = 1500;
const FRAME_MS: u64 = 40;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// One packet per frame without a request, ten at most; a grant five frames after its request, which would clear the
/// backlog in two frames, and averages the arrivals over ten.
fn dama() -> DamaConfig {
    DamaConfig {
        frame: ms(FRAME_MS),
        minimum: Bytes::new(SIZE),
        maximum: Bytes::new(10 * SIZE),
        request_delay: ms(200),
        drain: ms(80),
        window: ms(400),
    }
}

/// Link without propagation delay, on which the packets of a frame take a nanosecond together.
fn config(dama: DamaConfig) -> LinkConfig {
    let rate = Rate::from_bits_per_second(u64::MAX / 2);
    let mut schedule = LinkSchedule::fixed(Duration::ZERO, rate, Ratio::ZERO);
    schedule.dama = Some(dama);
    let (qdisc, queue) = (QueueDiscipline::default(), Limit::Packets(1_000_000));
    LinkConfig { schedule, qdisc, queue, seed: 7 }
}

/// Number of packets that leave at the beginning of each frame, up to the last one that does.
fn leaving(config: LinkConfig, sends_ms: impl IntoIterator<Item = u64>) -> Vec<usize> {
    let mut link = Link::new(config).expect("a valid configuration");
    for (payload, at) in (0_u64..).zip(sends_ms) {
        link.enqueue(Instant::START + ms(at), Packet::new(Bytes::new(SIZE), payload));
    }
    let mut frames = Vec::new();
    while let Some(arrival) = link.poll(Instant::START + Duration::from_secs(3600)) {
        let (at_ns, frame_ns) = (arrival.at.as_nanos(), ms(FRAME_MS).as_nanos());
        assert!(at_ns % frame_ns <= 100, "{} is off the grid", arrival.at);
        let frame = usize::try_from(at_ns / frame_ns).expect("a small number");
        frames.resize(frames.len().max(frame + 1), 0);
        frames[frame] += 1;
    }
    frames
}

#[test]
fn packets_leave_when_a_frame_begins_one_in_each_without_a_grant() {
    // The one that arrives as a frame begins waits for the next one.
    assert_eq!(leaving(config(dama()), [0, 10, 40]), [0, 1, 1, 1]);
    assert_eq!(leaving(config(dama()), [39, 41, 200]), [0, 1, 1, 0, 0, 0, 1]);
}

#[test]
fn a_request_is_granted_after_its_delay() {
    // Twelve packets ask in frame 1 for six in each frame and for 1.2 as the mean, from frame 6 on.
    let twelve = || [1; 12].into_iter();
    assert_eq!(leaving(config(dama()), twelve()), [0, 1, 1, 1, 1, 1, 7]);
    let slow = DamaConfig { request_delay: ms(201), ..dama() };
    assert_eq!(leaving(config(slow), twelve()), [0, 1, 1, 1, 1, 1, 1, 6]);
    let at_once = DamaConfig { request_delay: Duration::ZERO, ..dama() };
    // The eighth packet takes 1200 bytes from the second frame, which has 4800.
    assert_eq!(leaving(config(at_once), twelve()), [0, 8, 3, 1]);
}

#[test]
fn capacity_that_is_not_used_goes_after_the_window_and_the_delay() {
    // Forty packets in frame 0 count in the mean that is asked for in frames 1 to 10, and granted in 6 to 15: four in
    // each frame.
    let then = |at_ms| leaving(config(dama()), [1; 40].into_iter().chain([at_ms; 3]));
    assert_eq!(then(560)[15..], [3]);
    assert_eq!(then(600)[16..], [1, 1, 1]);
}

#[test]
fn a_saturated_channel_carries_its_maximum_in_each_frame() {
    let frames = leaving(config(dama()), [1; 1000]);
    assert_eq!(frames[1..6], [1; 5]);
    assert_eq!(frames[6..105], [10; 99]);
    assert_eq!(frames[105..], [5]);
    let twice = DamaConfig { maximum: Bytes::new(2 * SIZE), ..dama() };
    assert_eq!(leaving(config(twice), [1; 10]), [0, 1, 1, 1, 1, 1, 2, 2, 1]);
}

#[test]
fn capacity_that_is_used_stays_granted() {
    // A packet each 10 ms, four in a frame: after the start none waits longer than for the next frame.
    let frames = leaving(config(dama()), (0..2_000).map(|number| 1 + 10 * number));
    assert_eq!(frames[1..6], [1; 5]);
    assert!(frames.iter().any(|packets| *packets > 4), "{frames:?}");
    assert_eq!(frames[60..], [4; 441]);
}

#[test]
fn a_packet_larger_than_what_is_left_takes_it_from_the_next_frames() {
    let small = DamaConfig { minimum: Bytes::new(500), maximum: Bytes::new(500), ..dama() };
    assert_eq!(leaving(config(small), [1; 3]), [0, 1, 0, 0, 1, 0, 0, 1]);
    // Long pauses change nothing of this.
    assert_eq!(leaving(config(small), [1, 100_001])[2501..], [1]);
    // Without a minimum the first packet waits for its grant.
    let none = DamaConfig { minimum: Bytes::ZERO, ..dama() };
    assert_eq!(leaving(config(none), [1]), [0, 0, 0, 0, 0, 0, 1]);
}

#[test]
fn held_outages_and_the_limit_of_the_queue_apply_as_on_other_links() {
    let mut held = config(dama());
    held.schedule.during_outage = DuringOutage::Hold;
    let [from, until] = [30, 85].map(|at| Instant::START + ms(at));
    held.schedule.outages.push(Outage { from, until });
    let mut link = Link::new(held).expect("a valid configuration");
    (0..3).for_each(|n| link.enqueue(Instant::START, Packet::new(Bytes::new(SIZE), n)));
    let arrivals: Vec<u64> = std::iter::from_fn(|| link.poll(Instant::START + ms(200)))
        .map(|arrival| arrival.at.as_nanos() / 1_000_000)
        .collect();
    assert_eq!(arrivals, [85, 120, 160]);
    let short = LinkConfig { queue: Limit::Packets(2), ..config(dama()) };
    let mut link = Link::new(short).expect("a valid configuration");
    (0..3).for_each(|n| link.enqueue(Instant::START, Packet::new(Bytes::new(SIZE), n)));
    assert_eq!(link.stats().drops[LossReason::Queue], 1);
    assert_eq!(link.stats().drops.total(), 1);
}

#[test]
fn parameters_that_cannot_be_are_refused() {
    for (wrong, expected) in [
        (DamaConfig { frame: Duration::ZERO, ..dama() }, "dama: frame is 0 s; expected at least"),
        (DamaConfig { frame: Duration::from_micros(999), ..dama() }, "dama: frame is 999 us"),
        (DamaConfig { drain: Duration::ZERO, ..dama() }, "dama: drain is 0 s"),
        (DamaConfig { drain: ms(60_001), ..dama() }, "dama: drain is 60.001 s"),
        (DamaConfig { window: Duration::ZERO, ..dama() }, "dama: window is 0 s"),
        (DamaConfig { window: ms(60_001), ..dama() }, "dama: window is 60.001 s"),
        (DamaConfig { request_delay: ms(60_001), ..dama() }, "dama: request_delay is 60.001 s"),
        (DamaConfig { maximum: Bytes::ZERO, ..dama() }, "dama: maximum is 0 B"),
        (DamaConfig { maximum: Bytes::new(10), ..dama() }, "dama: maximum is 10 B"),
    ] {
        let error = Link::<u64>::new(config(wrong)).expect_err("it is wrong");
        assert!(matches!(error, LinkError::Dama(_)), "{error:?}");
        assert!(error.to_string().starts_with(expected), "{error}");
    }
}

/// Outcomes of a train: each frame is computed from the lists of all packets and of all requests.
fn reference(dama: &DamaConfig, train: &[Offered]) -> Vec<Outcome> {
    let frame_ns = dama.frame.as_nanos();
    let frames = |time: Duration| time.as_nanos().div_ceil(frame_ns) as usize;
    let (delay, window) = (frames(dama.request_delay), frames(dama.window));
    let (mut requests, mut outcomes) = (Vec::new(), Vec::new());
    let mut left = 0_i64;
    for frame in 0.. {
        if outcomes.len() == train.len() {
            break;
        }
        let begins_ns = frame as u64 * frame_ns;
        let here = train.iter().filter(|packet| packet.at_ns < begins_ns);
        let waiting: Vec<u64> = here.skip(outcomes.len()).map(|packet| packet.size).collect();
        let backlog: u64 = waiting.iter().sum();
        let in_window = |packet: &&Offered| {
            let arrived_in = (packet.at_ns / frame_ns) as usize;
            arrived_in < frame && arrived_in + window >= frame
        };
        let arrived: u64 = train.iter().filter(in_window).map(|packet| packet.size).sum();
        let to_drain = (backlog * frame_ns).div_ceil(dama.drain.as_nanos());
        requests.push(arrived.div_ceil(window as u64) + to_drain);
        let granted = frame.checked_sub(delay).map_or(0, |asked| requests[asked]);
        let allowed = granted.clamp(dama.minimum.as_u64(), dama.maximum.as_u64());
        left = (left.min(0) + allowed as i64).min(backlog as i64);
        for size in &waiting {
            if left <= 0 {
                break;
            }
            left -= *size as i64;
            outcomes.push(Outcome::Arrived { at_ns: begins_ns + 1 });
        }
    }
    outcomes
}

fn any_dama() -> impl Strategy<Value = DamaConfig> {
    let times = (1_u64..12, 0_u64..60, 1_u64..60, 1_u64..60);
    (times, 0_u64..3_000, 1_u64..30_000).prop_map(|(times, minimum, more)| DamaConfig {
        frame: ms(times.0),
        minimum: Bytes::new(minimum),
        maximum: Bytes::new(minimum + more),
        request_delay: ms(times.1),
        drain: ms(times.2),
        window: ms(times.3),
    })
}

/// Packets close together and far apart, some of them as a frame begins.
fn any_train() -> impl Strategy<Value = Vec<Offered>> {
    let after_us = prop_oneof![4 => 0_u64..3_000, 1 => Just(10_000), 1 => 0_u64..600_000];
    let packet = (after_us, prop_oneof![Just(66_u64), Just(1514), 15..9_014_u64]);
    prop::collection::vec(packet, 0..120).prop_map(|packets| {
        let mut at_ns = 0;
        let offered = |(after_us, size)| {
            at_ns += after_us * 1_000;
            Offered { at_ns, size }
        };
        packets.into_iter().map(offered).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(skyhop_needs::cases(200)))]

    #[test]
    fn a_channel_on_demand_does_what_the_reference_does(
        dama in any_dama(),
        train in any_train(),
        polls_ns in prop::collection::btree_set(0..1_000_000_000_u64, 0..60),
    ) {
        let outcomes = reference(&dama, &train);
        let order: Vec<usize> = (0..train.len()).collect();
        for polling in [Polling::At(&polls_ns), Polling::OnWakeup] {
            let driver = Driver::new(&config(dama), train.len()).run(&train, polling);
            assert_same(&driver.observed, &outcomes, &order);
        }
    }
}
