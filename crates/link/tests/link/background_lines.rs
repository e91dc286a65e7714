//! Background load that comes over lines: no line queues behind itself, several do as packets do.
//!
//! At 12 Mbit/s a packet of 1500 bytes takes 1 ms.

use proptest::prelude::*;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use skyhop_link::{
    BackgroundMeter, Headway, Limit, Line, LineLoad, Link, LinkConfig, NO_NODE, Packet, Piece,
    PlainLink, Via,
};
use skyhop_units::{Bytes, Duration, Instant, Rate};

use crate::background::{PACKET_NS, RATE_BPS, SIZE, piece, poisson, shared, summary, us};

const MOST: Limit = Limit::Packets(100_000);

fn bps(share: f64) -> Rate {
    Rate::from_bits_per_second((RATE_BPS as f64 * share) as u64)
}

/// Line from a node with the link's rate, and a share of the link's rate as load, all of which goes on.
fn line(from: u32, share: f64) -> Line {
    let load = LineLoad { here: bps(share), all: bps(share) };
    let load = vec![Piece { from: Instant::START, value: load }];
    Line { from, rate: bps(1.0), load }
}

/// Link with a load over lines from the nodes 0, 1, …, and with these shares of its rate.
fn over_lines(shares: &[f64], burst: u32, queue: Limit) -> LinkConfig {
    let lines: Vec<Line> = (0..).zip(shares).map(|(from, share)| line(from, *share)).collect();
    let load_bps = lines.iter().map(|line| line.load[0].value.here.bits_per_second()).sum();
    let mut config = shared(queue, vec![piece(us(0), load_bps)], burst);
    config.schedule.background.as_mut().unwrap().lines = lines;
    config
}

fn without(config: &LinkConfig) -> LinkConfig {
    let mut alone = config.clone();
    alone.schedule.background = None;
    alone
}

fn plain(config: &LinkConfig) -> PlainLink {
    PlainLink::new(config).expect("a plain link")
}

/// Background packets of an upstream link, in the order of their arrivals at it, in ns.
fn bursts(rng: &mut ChaCha8Rng, share: f64, end_ns: u64) -> Vec<u64> {
    if share == 0.0 { Vec::new() } else { poisson(rng, PACKET_NS as f64 / share, end_ns) }
}

/// Waits in ns of own packets at a link behind several links, of which own packets cross the first one: with a background
/// as fluid, and as packets.
fn behind_others(own: f64, shares: &[f64], seed: u64) -> [[f64; 2]; 2] {
    let end_ns = 1_000_000 * PACKET_NS;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let offered = poisson(&mut rng, PACKET_NS as f64 / own, end_ns);
    let config = over_lines(shares, 1, MOST);
    let first = shared(MOST, vec![piece(us(0), (RATE_BPS as f64 * shares[0]) as u64)], 1);
    let (mut first_fluid, mut fluid) = (plain(&first), plain(&config));
    let mut waits = [Vec::new(), Vec::new()];
    for at_ns in &offered {
        let at = Instant::from_nanos(*at_ns);
        let (now, headway) = first_fluid.enter_via(at, SIZE, Via::NOWHERE).unwrap();
        let (left, _) = fluid.enter_via(now, SIZE, Via { from: 0, headway }).unwrap();
        waits[0].push((left - now).as_nanos() - PACKET_NS);
    }
    let mut arrivals = Vec::new();
    for (number, share) in shares.iter().enumerate() {
        let mut of_line: Vec<(u64, bool)> =
            bursts(&mut rng, *share, end_ns).into_iter().map(|at| (at, false)).collect();
        if number == 0 {
            of_line.extend(offered.iter().map(|at| (*at, true)));
            of_line.sort_unstable();
        }
        let mut upstream = plain(&without(&config));
        arrivals.extend(
            of_line.into_iter().map(|(at, is_own)| {
                (upstream.enter(Instant::from_nanos(at), SIZE).unwrap(), is_own)
            }),
        );
    }
    arrivals.sort_unstable();
    let mut packets = plain(&without(&config));
    for (now, is_own) in arrivals {
        let left = packets.enter(now, SIZE).unwrap();
        if is_own {
            waits[1].push((left - now).as_nanos() - PACKET_NS);
        }
    }
    waits.map(summary)
}

#[test]
fn several_lines_queue_as_packets_do() {
    for (own, shares) in [
        (0.05, vec![0.4, 0.4]),
        (0.05, vec![0.2, 0.6]),
        (0.05, vec![0.6, 0.2]),
        (0.3, vec![0.2, 0.2]),
        (0.05, vec![0.0, 0.3, 0.3]),
        (0.05, vec![0.2, 0.2, 0.2, 0.2]),
    ] {
        let [[mean, late], [of_packets, late_packets]] = behind_others(own, &shares, 3);
        // Packets that come right after their line's background find more of it than those at random times.
        let error = mean / of_packets - 1.0;
        assert!((-0.25..0.08).contains(&error), "{shares:?}: {mean} of {of_packets}");
        assert!((late / late_packets - 1.0).abs() < 0.15, "{shares:?}: {late} of {late_packets}");
    }
}

/// Mean waits in ns of small packets in a chain of links that they share with a load, as fluid and as packets.
fn along_a_chain(load: f64, links: usize) -> [f64; 2] {
    const SMALL: Bytes = Bytes::new(100);
    let small_ns = PACKET_NS / 15;
    let end_ns = 200_000 * PACKET_NS;
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let offered = poisson(&mut rng, 20.0 * PACKET_NS as f64, end_ns);
    let load_bps = (RATE_BPS as f64 * load) as u64;
    let first = shared(MOST, vec![piece(us(0), load_bps)], 1);
    let next = over_lines(&[load], 1, MOST);
    let configs = (0..links).map(|number| {
        let config = if number == 0 { &first } else { &next };
        LinkConfig { seed: number as u64, ..config.clone() }
    });
    let mut chain: Vec<PlainLink> = configs.map(|config| plain(&config)).collect();
    let mut waited_ns = [0, 0];
    for at_ns in &offered {
        let begin = Instant::from_nanos(*at_ns);
        let (mut now, mut via) = (begin, Via::NOWHERE);
        for link in &mut chain {
            let (at, headway) = link.enter_via(now, SMALL, via).unwrap();
            (now, via) = (at, Via { from: 0, headway });
        }
        waited_ns[0] += (now - begin).as_nanos() - links as u64 * small_ns;
    }
    let mut packets: Vec<(u64, u64)> =
        bursts(&mut rng, load, end_ns).into_iter().map(|at| (at, 0)).collect();
    packets.extend(offered.iter().map(|at| (*at, 1)));
    packets.sort_unstable();
    let mut chain: Vec<PlainLink> = (0..links).map(|_| plain(&without(&first))).collect();
    for (at_ns, own) in packets {
        let size = if own == 1 { SMALL } else { SIZE };
        let begin = Instant::from_nanos(at_ns);
        let end = chain.iter_mut().fold(begin, |now, link| link.enter(now, size).unwrap());
        waited_ns[1] += own * ((end - begin).as_nanos() - links as u64 * small_ns * own);
    }
    waited_ns.map(|ns| ns as f64 / offered.len() as f64)
}

#[test]
fn small_packets_stay_behind_large_ones() {
    for load in [0.2, 0.5, 0.8] {
        for links in [1, 2, 5, 12] {
            let [fluid, packets] = along_a_chain(load, links);
            let error = fluid / packets - 1.0;
            assert!(error.abs() < 0.08, "{links} links at {load}: {fluid} of {packets}");
        }
    }
}

/// Packet of a test: ns after the last one, line from which it comes, and ns of its headway.
type Offer = (u64, u32, Option<u64>);

fn offers() -> impl Strategy<Value = Vec<Offer>> {
    let headway = prop::option::of(PACKET_NS..4 * PACKET_NS);
    prop::collection::vec((PACKET_NS..6 * PACKET_NS, 0_u32..4, headway), 1..80)
}

/// Headway of so many ns: that of a packet which leaves a link so long after a burst of the background.
fn headway(ns: Option<u64>) -> Headway {
    let Some(ns) = ns else { return Headway::UNKNOWN };
    let burst_ns = 100 * PACKET_NS;
    let load = vec![piece(us(0), RATE_BPS - 1), piece(Instant::from_nanos(burst_ns), 0)];
    let mut link = plain(&shared(MOST, load, 1));
    let (first, _) = link.enter_via(Instant::from_nanos(burst_ns), SIZE, Via::NOWHERE).unwrap();
    let (_, found) =
        link.enter_via(first + Duration::from_nanos(ns - PACKET_NS), SIZE, Via::NOWHERE).unwrap();
    found
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(skyhop_needs::cases(100)))]

    #[test]
    fn a_single_line_never_queues(
        offers in offers(),
        share in 0.05..0.99_f64,
        (burst, is_even) in (1_u32..5, any::<bool>()),
        others in 0_u64..10,
    ) {
        let mut config = over_lines(&[share], if is_even { 0 } else { burst }, MOST);
        config.schedule.background.as_mut().unwrap().lines[0].load[0].value.all = bps(share + others as f64 / 1e3);
        let mut link = plain(&config);
        let mut now = Instant::START;
        for (after_ns, _, headway_ns) in offers {
            now += Duration::from_nanos(after_ns);
            let via = Via { from: 0, headway: headway(headway_ns) };
            let (left, _) = link.enter_via(now, SIZE, via).unwrap();
            prop_assert!((left - now).as_nanos() <= PACKET_NS + 1, "at {} waits until {}", now, left);
        }
    }

    #[test]
    fn a_small_packet_on_a_single_line_waits_for_one_packet_at_most(
        offers in prop::collection::vec((60_u64..1_500, 0_u64..4 * PACKET_NS), 1..80),
        share in 0.05..0.99_f64,
    ) {
        let mut link = plain(&over_lines(&[share], 1, MOST));
        let mut now = Instant::START;
        for (size, idle_ns) in offers {
            let own_ns = size * PACKET_NS / SIZE.as_u64();
            // The line carries the packet after the last one.
            now += Duration::from_nanos(own_ns + idle_ns);
            let left = link.enter_via(now, Bytes::new(size), Via { from: 0, headway: Headway::UNKNOWN }).unwrap().0;
            let wait_ns = (left - now).as_nanos() as i64 - own_ns as i64;
            prop_assert!(wait_ns <= (PACKET_NS - own_ns) as i64 + 2, "{}: {}", size, wait_ns);
        }
    }

    #[test]
    fn a_load_of_nothing_over_lines_changes_nothing(offers in offers(), queue in 1_u64..5) {
        let config = over_lines(&[0.0, 0.0], 1, Limit::Packets(queue));
        let (mut empty, mut none) = (plain(&config), plain(&without(&config)));
        let mut now = Instant::START;
        for (after_ns, from, headway_ns) in offers {
            now += Duration::from_nanos(after_ns / 3);
            let via = Via { from, headway: headway(headway_ns) };
            prop_assert_eq!(empty.enter_via(now, SIZE, via).map(|(at, _)| at), none.enter(now, SIZE));
            prop_assert_eq!(empty.stats(now, (0, Bytes::ZERO)), none.stats(now, (0, Bytes::ZERO)));
        }
    }

    #[test]
    fn a_plain_link_with_lines_is_the_link_and_no_packet_leaves_early(
        offers in offers(), shares in prop::collection::vec(0.0..0.3_f64, 0..4),
        (queue, burst) in (1_u64..20, 0_u32..4),
    ) {
        let config = over_lines(&shares, burst, Limit::Packets(queue));
        let mut plain = plain(&config);
        let mut link = Link::new(config).expect("a valid link");
        let (mut now, mut free, mut expected) = (Instant::START, Instant::START, Vec::new());
        for (number, (after_ns, from, headway_ns)) in offers.into_iter().enumerate() {
            now += Duration::from_nanos(after_ns / 3);
            let via = Via { from: if from == 3 { NO_NODE } else { from }, headway: headway(headway_ns) };
            link.enqueue_via(now, Packet::new(SIZE, number), via);
            let Some((at, _)) = plain.enter_via(now, SIZE, via) else { continue };
            prop_assert!(at >= now.max(free) + Duration::from_nanos(PACKET_NS));
            free = at;
            expected.push((number, at));
        }
        let end = Instant::from_nanos(u64::MAX / 2);
        let found = std::iter::from_fn(|| link.poll(end)).map(|one| (one.packet.payload, one.at));
        prop_assert_eq!(found.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn an_even_load_over_lines_is_carried_lost_or_waits(
        shares in prop::collection::vec(0.05..0.24_f64, 1..5),
        own in 20..95_u64, queue in 1_u64..30,
    ) {
        // Packets keep the transmitter busy: they alone exceed the rate.
        let config = over_lines(&shares, 0, Limit::Packets(queue));
        let mut meter = BackgroundMeter::new(config.schedule.background.as_ref().unwrap());
        let mut link = plain(&config);
        let mut now = us(0);
        for number in 0..400 {
            now = Instant::from_nanos(own * PACKET_NS / 100 * number);
            let via = Via { from: number as u32 % shares.len() as u32, headway: Headway::UNKNOWN };
            link.enter_via(now, SIZE, via);
        }
        let stats = link.stats(now, (0, Bytes::ZERO));
        let sent = (now - Instant::START).as_secs_f64() * RATE_BPS as f64 / 8.0;
        let [own, missing, came] =
            [stats.transmitted_bytes, stats.background_missing_bytes, meter.bytes_until(now)]
                .map(|bytes| bytes.as_u64() as f64);
        // One packet may be under way.
        let unknown = sent - own - (came - missing);
        prop_assert!((-10.0..SIZE.as_u64() as f64 + 10.0).contains(&unknown), "{} {} {} {}", sent, own, came, missing);
    }
}
