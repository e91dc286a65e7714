//! Background load of a link: by hand, and against links that carry the background as packets.
//!
//! At 12 Mbit/s a packet of 1500 bytes takes 1 ms.

use proptest::prelude::*;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use rand_distr::{Distribution as _, Exp1};
use skyhop_link::{
    Background, BackgroundMeter, CodelConfig, DamaConfig, Limit, Link, LinkConfig, LinkSchedule,
    Packet, Piece, PlainLink, QueueDiscipline,
};
use skyhop_units::{Bytes, Duration, Instant, Rate, Ratio};

pub(crate) const RATE_BPS: u64 = 12_000_000;
pub(crate) const SIZE: Bytes = Bytes::new(1500);
pub(crate) const PACKET_NS: u64 = 1_000_000;

pub(crate) fn us(us: u64) -> Instant {
    Instant::START + Duration::from_micros(us)
}

pub(crate) fn piece(from: Instant, bps: u64) -> Piece<Rate> {
    Piece { from, value: Rate::from_bits_per_second(bps) }
}

/// Link without delay at 12 Mbit/s, with a queue and a load.
pub(crate) fn shared(queue: Limit, load: Vec<Piece<Rate>>, burst: u32) -> LinkConfig {
    let rate = Rate::from_bits_per_second(RATE_BPS);
    let mut schedule = LinkSchedule::fixed(Duration::ZERO, rate, Ratio::ZERO);
    schedule.background =
        Some(Box::new(Background { load, packet: SIZE, burst, lines: Vec::new() }));
    LinkConfig { schedule, qdisc: QueueDiscipline::default(), queue, seed: 3 }
}

fn even(load_bps: u64, queue: u64) -> LinkConfig {
    shared(Limit::Packets(queue), vec![piece(Instant::START, load_bps)], 0)
}

/// Arrivals in us of packets that enter a plain link at these times in us.
fn arrivals(config: &LinkConfig, at_us: &[u64]) -> Vec<Option<u64>> {
    let mut link = PlainLink::new(config).expect("a plain link");
    let enter = |at: &u64| link.enter(us(*at), SIZE).map(|at| at.as_nanos() / 1_000);
    at_us.iter().map(enter).collect()
}

#[test]
fn packets_wait_for_the_fluid_that_came_before_them() {
    // Half of the rate is taken: alone, a packet has the whole rate. The second one finds 0.5 ms of the first, and
    // 3000 bits of fluid, which take 0.25 ms. After 10 ms nothing waits.
    let found = arrivals(&even(6_000_000, 10), &[0, 500, 10_000]);
    assert_eq!(found, [Some(1_000), Some(2_250), Some(11_000)]);
    // Bursts of packets go at the whole rate; the fluid of their time comes behind them.
    let found = arrivals(&even(6_000_000, 10), &[0, 0, 0, 3_000]);
    assert_eq!(found, [Some(1_000), Some(2_000), Some(3_000), Some(5_500)]);
    // Of the fluid during the burst half has gone by 5 ms: 1.5 ms come, and 2 ms go.
    let found = arrivals(&even(6_000_000, 10), &[0, 0, 0, 5_000]);
    assert_eq!(found, [Some(1_000), Some(2_000), Some(3_000), Some(6_500)]);
}

#[test]
fn the_load_changes_over_time() {
    let load = vec![piece(Instant::START, 0), piece(us(1_000), 6_000_000), piece(us(2_000), 0)];
    let config = shared(Limit::Packets(10), load, 0);
    // Three packets at 0 leave at 3 ms; 0.5 ms of fluid came between 1 and 2 ms.
    let found = arrivals(&config, &[0, 0, 0, 2_500, 9_000]);
    assert_eq!(found, [Some(1_000), Some(2_000), Some(3_000), Some(4_500), Some(10_000)]);
    let background = config.schedule.background.unwrap();
    let mut meter = BackgroundMeter::new(&background);
    let counted = [500, 1_500, 1_500, 9_000].map(|at| meter.bytes_until(us(at)).as_u64());
    assert_eq!(counted, [0, 375, 375, 750]);
}

#[test]
fn the_fluid_takes_its_place_in_the_queue() {
    // One packet is sent, and two wait; at 2 ms one waits, and two packets' worth of fluid are behind it.
    let offered = [0, 0, 0, 1_999, 1_999];
    let at = |queue| arrivals(&even(11_000_000, queue), &offered);
    assert_eq!(at(3)[3].map(|at| at / 1_000), Some(5), "one waits, and 1.8 of fluid");
    assert_eq!(at(3)[4], None);
    assert_eq!(at(2)[3], None);
    let in_bytes = shared(Limit::Bytes(Bytes::new(4_500)), vec![piece(us(0), 11_000_000)], 0);
    assert_eq!(arrivals(&in_bytes, &offered)[4], None);
    assert!(arrivals(&in_bytes, &offered)[2].is_some());
}

#[test]
fn a_full_queue_is_shared_in_proportion_and_is_no_longer() {
    let end = us(20_000_000);
    for (load_bps, burst) in [(2_400_000, 0), (6_000_000, 0), (11_400_000, 0), (6_000_000, 1)] {
        let config = shared(Limit::Packets(50), vec![piece(Instant::START, load_bps)], burst);
        let mut link = PlainLink::new(&config).expect("a plain link");
        let (mut carried, mut longest) = (0, Duration::ZERO);
        // 24 Mbit/s are offered.
        for number in 0..40_000 {
            let now = us(500 * number);
            let Some(at) = link.enter(now, SIZE) else { continue };
            longest = longest.max(at - now);
            carried += u64::from(at <= end);
        }
        let all_bps = (24_000_000 + load_bps) as f64;
        let [own_bps, fluid_bps] =
            [24e6, load_bps as f64].map(|bps| bps * RATE_BPS as f64 / all_bps);
        let error = carried as f64 * 12_000.0 / 20.0 / own_bps - 1.0;
        assert!(error.abs() < 0.05, "{load_bps}: {carried} packets, {error} too many");
        let lost_bps =
            link.stats(end, (0, Bytes::ZERO)).background_missing_bytes.as_u64() as f64 * 0.4;
        let error = (load_bps as f64 - lost_bps) / fluid_bps - 1.0;
        assert!(error.abs() < 0.05, "{load_bps}: {lost_bps} lost, {error} too few");
        assert!(longest > Duration::from_millis(48), "{longest}");
        assert!(longest <= Duration::from_millis(52), "{longest}");
    }
}

#[test]
fn packets_that_fit_leave_all_of_the_fluid() {
    // 5.9 Mbit/s in pairs of packets, next to 6 Mbit/s of fluid: nothing is lost.
    let mut link = PlainLink::new(&even(6_000_000, 50)).expect("a plain link");
    let pair_us = 24_000_000 / 5_900;
    let enter = |number: u64| link.enter(us(pair_us * (number / 2)), SIZE).is_some();
    assert!((0..1_000).all(enter));
    let stats = link.stats(us(20_000_000), (0, Bytes::ZERO));
    assert_eq!(stats.background_missing_bytes, Bytes::ZERO);
}

/// Times between packets, exponentially distributed with a mean in ns, as a list of times until an end.
pub(crate) fn poisson(rng: &mut ChaCha8Rng, mean_ns: f64, end_ns: u64) -> Vec<u64> {
    let mut at_ns = 0.0;
    let mut times = Vec::new();
    loop {
        let gap: f64 = Exp1.sample(rng);
        at_ns += mean_ns * gap;
        if at_ns >= end_ns as f64 {
            return times;
        }
        times.push(at_ns as u64);
    }
}

/// Mean and 95th percentile in ns.
pub(crate) fn summary(mut waits_ns: Vec<u64>) -> [f64; 2] {
    waits_ns.sort_unstable();
    let mean = waits_ns.iter().sum::<u64>() as f64 / waits_ns.len() as f64;
    [mean, waits_ns[waits_ns.len() * 95 / 100] as f64]
}

/// Waits of packets at a share of the rate, next to a background as fluid and as packets in bursts.
fn waits([own, load]: [f64; 2], burst: u32, seed: u64) -> [[f64; 2]; 2] {
    let end_ns = 2_000_000 * PACKET_NS;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let offered = poisson(&mut rng, PACKET_NS as f64 / own, end_ns);
    let bursts = poisson(&mut rng, PACKET_NS as f64 * f64::from(burst) / load, end_ns);
    let load_bps = (RATE_BPS as f64 * load) as u64;
    let config = shared(Limit::Packets(100_000), vec![piece(us(0), load_bps)], burst);
    let mut fluid = PlainLink::new(&config).expect("a plain link");
    let mut alone = config.clone();
    alone.schedule.background = None;
    let mut packets = PlainLink::new(&alone).expect("a plain link");
    let mut of_bursts = bursts.into_iter().peekable();
    let mut found = [Vec::new(), Vec::new()];
    for at_ns in offered {
        while let Some(before_ns) = of_bursts.next_if(|before| *before <= at_ns) {
            for _ in 0..burst {
                packets.enter(Instant::from_nanos(before_ns), SIZE);
            }
        }
        let now = Instant::from_nanos(at_ns);
        for (link, waits) in [&mut fluid, &mut packets].into_iter().zip(&mut found) {
            let left = link.enter(now, SIZE).expect("room in the queue");
            waits.push((left - now).as_nanos() - PACKET_NS);
        }
    }
    found.map(summary)
}

#[test]
fn waits_are_those_next_to_packets_in_a_poisson_process() {
    // Own packets are few, so that nearly all waits are those of the background: the formula of Pollaczek and Khinchine.
    for load in [0.2, 0.5, 0.8, 0.9] {
        let [[mean, late], [of_packets, late_packets]] = waits([0.02, load], 1, 5);
        let all = load + 0.02;
        let formula = all / (2.0 * (1.0 - all)) * PACKET_NS as f64;
        assert!((mean / formula - 1.0).abs() < 0.05, "{load}: {mean} of {formula}");
        assert!((mean / of_packets - 1.0).abs() < 0.05, "{load}: {mean} of {of_packets}");
        assert!((late / late_packets - 1.0).abs() < 0.05, "{load}: {late} of {late_packets}");
    }
    for (shares, burst) in [([0.3, 0.2], 1), ([0.3, 0.5], 1), ([0.6, 0.3], 1), ([0.3, 0.5], 8)] {
        let [[mean, late], [of_packets, late_packets]] = waits(shares, burst, 6);
        assert!((mean / of_packets - 1.0).abs() < 0.05, "{shares:?}: {mean} of {of_packets}");
        assert!((late / late_packets - 1.0).abs() < 0.05, "{shares:?}: {late} of {late_packets}");
    }
}

#[test]
fn disciplines_other_than_fifo_serve_packets_at_the_rest() {
    let mut config = even(6_000_000, 10);
    config.qdisc = QueueDiscipline::Codel(CodelConfig::default());
    assert!(PlainLink::new(&config).is_none());
    let mut link = Link::new(config).expect("a valid link");
    [0, 1].iter().for_each(|number| link.enqueue(us(0), Packet::new(SIZE, *number)));
    let found: Vec<u64> = std::iter::from_fn(|| link.poll(us(100_000)))
        .map(|arrival| arrival.at.as_nanos() / 1_000)
        .collect();
    assert_eq!(found, [2_000, 4_000]);
}

#[test]
fn a_background_needs_a_rate_above_it_that_does_not_change() {
    let refused = |config: LinkConfig| Link::<()>::new(config).map(drop).unwrap_err().to_string();
    let all = refused(even(RATE_BPS, 10));
    assert!(all.contains("background[0] is not below the rate"), "{all}");
    let mut changing = even(6_000_000, 10);
    changing.schedule.rate.push(piece(us(1), RATE_BPS));
    assert!(refused(changing).contains("goes with one rate for all time"));
    let mut on_demand = even(6_000_000, 10);
    on_demand.schedule.dama = Some(DamaConfig::default());
    assert!(refused(on_demand).contains("goes with one rate for all time"));
    let late = shared(Limit::Packets(9), vec![piece(us(1), 5)], 0);
    assert!(refused(late).contains("background begins at 1 us"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(skyhop_needs::cases(100)))]

    #[test]
    fn a_plain_link_with_a_background_is_the_link(
        loads in prop::collection::vec((1_u64..20_000, 0..RATE_BPS), 1..5),
        gaps in prop::collection::vec((0_u64..4_000, 40_u64..1_500), 1..60),
        (queue, burst) in (1_u64..20, 0_u32..4),
    ) {
        let mut from = 0;
        let load = |(after_us, bps): (u64, u64)| {
            let piece = piece(us(from), bps);
            from += after_us;
            piece
        };
        let load = loads.into_iter().map(load).collect();
        let config = shared(Limit::Packets(queue), load, burst);
        let mut plain = PlainLink::new(&config).expect("a plain link");
        let mut link = Link::new(config).expect("a valid link");
        let (mut now, mut expected) = (Instant::START, Vec::new());
        let mut free = Instant::START;
        for (number, (after_us, size)) in gaps.into_iter().enumerate() {
            now += Duration::from_micros(after_us);
            link.enqueue(now, Packet::new(Bytes::new(size), number));
            let Some(at) = plain.enter(now, Bytes::new(size)) else { continue };
            // No packet begins before it arrives, or before the last one is sent.
            let least_ns = size * 8 * 1_000 / 12;
            prop_assert!(at.as_nanos() + 1 >= now.max(free).as_nanos() + least_ns);
            free = at;
            expected.push((number, at));
        }
        let end = Instant::from_nanos(u64::MAX / 2);
        let found = std::iter::from_fn(|| link.poll(end)).map(|one| (one.packet.payload, one.at));
        prop_assert_eq!(found.collect::<Vec<_>>(), expected);
    }
}
