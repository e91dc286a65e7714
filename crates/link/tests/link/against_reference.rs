//! The link compared with a slow reference, on random schedules, packets and ways of polling.

use crate::reference;
use skyhop_model::Counts;
use skyhop_model::DuringOutage;
use std::collections::BTreeSet;

use crate::reference::{Offered, Outcome};
use proptest::prelude::*;
use skyhop_link::{
    CodelConfig, DelayPiece, Dismantled, FifoConfig, FifoDrop, GilbertElliott, Limit, Link,
    LinkConfig, LinkSchedule, LinkStats, Loss, Outage, Packet, Piece, PlainLink, QueueDiscipline,
    Switching,
};
use skyhop_units::{Bytes, Duration, Instant, Rate, Ratio};

/// Time within which all changes and packets fall, short enough that many coincide.
const SPAN_NS: u64 = 100_000_000;
/// Time later than all events, except those that never happen.
const END: Instant = Instant::from_nanos(1_000_000 * SPAN_NS);

/// Times that coincide more often than independent draws would.
fn moment_ns() -> impl Strategy<Value = u64> {
    prop_oneof![(0..=100_u64).prop_map(|step| step * SPAN_NS / 100), 0..SPAN_NS]
}

fn begins(at_most: usize) -> impl Strategy<Value = Vec<Instant>> {
    prop::collection::btree_set(moment_ns(), 0..at_most).prop_map(|mut moments| {
        moments.insert(0);
        moments.into_iter().map(Instant::from_nanos).collect()
    })
}

fn pieces<T: std::fmt::Debug + Clone + 'static>(
    value: impl Strategy<Value = T> + Clone + 'static,
) -> impl Strategy<Value = Vec<Piece<T>>> {
    begins(5).prop_flat_map(move |begins| {
        let values = prop::collection::vec(value.clone(), begins.len());
        values.prop_map(move |values| {
            begins.iter().zip(values).map(|(&from, value)| Piece { from, value }).collect()
        })
    })
}

fn delay() -> impl Strategy<Value = Vec<DelayPiece>> {
    let delay_ns = prop_oneof![Just(0_u64), Just(20_000_000), 0..60_000_000_u64];
    begins(8).prop_flat_map(move |begins| {
        let one = (delay_ns.clone(), delay_ns.clone(), any::<bool>(), any::<bool>());
        prop::collection::vec(one, begins.len()).prop_map(move |values| {
            let last = begins.len() - 1;
            let piece = |(index, (begin_ns, end_ns, flat, new_route))| {
                let delay = Duration::from_nanos(begin_ns);
                let at_end = Duration::from_nanos(end_ns);
                let delay_at_end = if flat || index == last { delay } else { at_end };
                DelayPiece { from: begins[index], delay, delay_at_end, new_route }
            };
            values.into_iter().enumerate().map(piece).collect()
        })
    })
}

fn rate() -> impl Strategy<Value = Rate> + Clone {
    prop_oneof![
        Just(0),
        Just(12_000_000),
        1_000_000_u64..200_000_000,
        1_000_000_000_u64..u64::MAX / 2
    ]
    .prop_map(Rate::from_bits_per_second)
}

fn loss() -> impl Strategy<Value = Loss> + Clone {
    let ratio = |fraction| Ratio::new(fraction).expect("a fraction");
    let fraction = prop_oneof![Just(0.0), Just(1.0), 0.0..0.3_f64].prop_map(ratio);
    let above_zero = prop_oneof![Just(1.0), 0.01..1.0_f64].prop_map(ratio);
    let length = (100_000_u64..20_000_000).prop_map(Duration::from_nanos);
    let switching = prop_oneof![
        (above_zero.clone(), above_zero).prop_map(|(p, r)| Switching::PerPacket { p, r }),
        (length.clone(), length).prop_map(|(good, bad)| Switching::InTime { good, bad }),
    ];
    let bursts = (switching, fraction.clone(), fraction.clone());
    prop_oneof![
        2 => fraction.prop_map(Loss::Independent),
        1 => bursts.prop_map(|(switching, bad_loss, good_loss)| {
            Loss::GilbertElliott(GilbertElliott { switching, bad_loss, good_loss })
        }),
    ]
}

fn outages() -> impl Strategy<Value = Vec<Outage>> {
    prop::collection::vec(moment_ns(), 0..8).prop_map(|mut moments_ns| {
        moments_ns.sort_unstable();
        let moments: Vec<Instant> = moments_ns.into_iter().map(Instant::from_nanos).collect();
        moments.chunks_exact(2).map(|pair| Outage { from: pair[0], until: pair[1] }).collect()
    })
}

fn dismantled() -> impl Strategy<Value = Vec<Dismantled>> {
    let hop = (moment_ns(), 0..40_000_000_u64, prop::option::of(0..20_000_000_u64));
    prop::collection::vec(hop, 0..6).prop_map(|mut hops| {
        hops.sort_unstable();
        let hop = |(at_ns, near_ns, length_ns): (u64, u64, Option<u64>)| Dismantled {
            at: Instant::from_nanos(at_ns),
            near: Duration::from_nanos(near_ns),
            far: length_ns.map_or(Duration::MAX, |ns| Duration::from_nanos(near_ns + ns)),
            queue: false,
        };
        hops.into_iter().map(hop).collect()
    })
}

fn config() -> impl Strategy<Value = LinkConfig> {
    let during = prop_oneof![Just(DuringOutage::Drop), Just(DuringOutage::Hold)];
    let queue = prop_oneof![
        (1_u64..40).prop_map(Limit::Packets),
        (1_u64..60_000).prop_map(|bytes| Limit::Bytes(Bytes::new(bytes))),
    ];
    let schedule = (delay(), pieces(rate()), pieces(loss()), outages(), dismantled(), during);
    (schedule, queue, any::<u64>()).prop_map(|(schedule, queue, seed)| {
        let (delay, rate, loss, outages, dismantled, during_outage) = schedule;
        let schedule = LinkSchedule {
            delay,
            rate,
            loss,
            outages,
            dismantled,
            during_outage,
            burst: Bytes::ZERO,
            dama: None,
            background: None,
        };
        LinkConfig { schedule, qdisc: QueueDiscipline::default(), queue, seed }
    })
}

/// The same link with a discipline that drops only at its limit, and that decides about a packet when its
/// transmission begins.
fn by_step(config: &LinkConfig) -> LinkConfig {
    let never = Duration::from_secs(3600);
    let codel = CodelConfig { target: never, interval: never, ..CodelConfig::default() };
    let qdisc = QueueDiscipline::Codel(codel);
    LinkConfig { qdisc, ..config.clone() }
}

/// The same link with drop-front, which the reference lacks.
fn dropping_front(config: &LinkConfig) -> LinkConfig {
    let fifo = FifoConfig { drop: FifoDrop::Front, ..FifoConfig::default() };
    LinkConfig { qdisc: QueueDiscipline::Fifo(fifo), ..config.clone() }
}

/// The same link without losses, breaks and new routes.
fn plain(config: &LinkConfig) -> LinkConfig {
    let mut config = config.clone();
    let schedule = &mut config.schedule;
    schedule.loss = vec![Piece { from: Instant::START, value: Ratio::ZERO.into() }];
    schedule.dismantled.clear();
    schedule.during_outage = DuringOutage::Hold;
    schedule.delay.iter_mut().for_each(|piece| piece.new_route = false);
    config
}

fn any_config() -> impl Strategy<Value = LinkConfig> {
    (config(), any::<bool>())
        .prop_map(|(config, ahead)| if ahead { config } else { by_step(&config) })
}

fn train() -> impl Strategy<Value = Vec<Offered>> {
    let packet = (moment_ns(), prop_oneof![Just(1514_u64), 15..9_014_u64]);
    prop::collection::vec(packet, 0..150).prop_map(|mut packets| {
        packets.sort_by_key(|&(at_ns, _)| at_ns);
        packets.into_iter().map(|(at_ns, size)| Offered { at_ns, size }).collect()
    })
}

/// Times at which a driver polls, in addition to the end.
#[derive(Debug, Clone, Copy)]
pub enum Polling<'a> {
    At(&'a BTreeSet<u64>),
    OnWakeup,
}

#[derive(Debug, Default, PartialEq)]
pub struct Observed {
    outcomes: Vec<Option<Outcome>>,
    order: Vec<usize>,
    stats: LinkStats,
}

pub struct Driver {
    link: Link<usize>,
    pub observed: Observed,
    last_drop: Instant,
    vain_wakeups: u64,
}

impl Driver {
    pub fn new(config: &LinkConfig, packets: usize) -> Self {
        let observed = Observed { outcomes: vec![None; packets], ..Observed::default() };
        let link = Link::new(config.clone()).expect("a valid configuration");
        Self { link, observed, last_drop: Instant::START, vain_wakeups: 0 }
    }

    pub fn run(mut self, train: &[Offered], polling: Polling<'_>) -> Self {
        let mut previous_ns = 0;
        for (number, offered) in train.iter().enumerate() {
            match polling {
                Polling::At(moments_ns) if previous_ns < offered.at_ns => {
                    for &at_ns in moments_ns.range(previous_ns..offered.at_ns) {
                        self.poll(Instant::from_nanos(at_ns));
                    }
                }
                Polling::At(_) => {}
                Polling::OnWakeup => self.follow_wakeups(Instant::from_nanos(offered.at_ns)),
            }
            previous_ns = offered.at_ns;
            let packet = Packet::new(Bytes::new(offered.size), number);
            self.link.enqueue(Instant::from_nanos(offered.at_ns), packet);
            self.observe_drops();
        }
        if matches!(polling, Polling::OnWakeup) {
            self.follow_wakeups(END);
        }
        self.poll(END);
        self.observed.stats = self.link.stats();
        self
    }

    /// Poll from wakeup to wakeup, as a sleeping driver does, and assert that no wakeup is late.
    fn follow_wakeups(&mut self, until: Instant) {
        let mut slept_until = None;
        while let Some(wakeup) = self.link.next_wakeup().filter(|&wakeup| wakeup <= until) {
            assert!(slept_until < Some(wakeup), "the same wakeup again, at {wakeup}");
            slept_until = Some(wakeup);
            let arrived_before = self.observed.order.len();
            self.poll(wakeup);
            let new = &self.observed.order[arrived_before..];
            for &number in new {
                let on_time = Outcome::Arrived { at_ns: wakeup.as_nanos() };
                assert_eq!(self.observed.outcomes[number], Some(on_time), "late for {number}");
            }
            self.vain_wakeups += u64::from(new.is_empty());
        }
    }

    fn poll(&mut self, now: Instant) {
        while let Some(arrival) = self.link.poll(now) {
            let number = arrival.packet.payload;
            let outcome = Outcome::Arrived { at_ns: arrival.at.as_nanos() };
            assert_eq!(self.observed.outcomes[number].replace(outcome), None, "one outcome each");
            self.observed.order.push(number);
        }
        self.observe_drops();
    }

    fn observe_drops(&mut self) {
        for drop in self.link.take_drops() {
            assert!(drop.at >= self.last_drop, "drops come in the order of time");
            self.last_drop = drop.at;
            let outcome = Outcome::Lost { at_ns: drop.at.as_nanos(), reason: drop.reason };
            let number = drop.packet.payload;
            assert_eq!(self.observed.outcomes[number].replace(outcome), None, "one outcome each");
        }
    }
}

pub fn assert_same(observed: &Observed, outcomes: &[Outcome], order: &[usize]) {
    for (number, (seen, expected)) in observed.outcomes.iter().zip(outcomes).enumerate() {
        assert_eq!(seen.unwrap_or(Outcome::Stuck), *expected, "packet {number}");
    }
    assert_eq!(observed.order, order);
}

/// Assert that a plain link and a link treat a train of packets alike, and count alike after each packet.
fn assert_same_as_plain(mut plain: PlainLink, config: &LinkConfig, train: &[Offered]) {
    let mut driver = Driver::new(config, train.len());
    let mut arrivals = Vec::new();
    for (number, offered) in train.iter().enumerate() {
        let (now, size) = (Instant::from_nanos(offered.at_ns), Bytes::new(offered.size));
        driver.link.enqueue(now, Packet::new(size, number));
        driver.poll(now);
        arrivals.push(plain.enter(now, size));
        let stats = driver.link.stats();
        let delivered = (stats.delivered_packets, stats.delivered_bytes);
        assert_eq!(plain.stats(now, delivered), stats, "at {now}");
    }
    driver.poll(END);
    for (observed, arrives) in driver.observed.outcomes.iter().zip(arrivals) {
        let expected = match observed {
            Some(Outcome::Arrived { at_ns }) => Some(Instant::from_nanos(*at_ns)),
            Some(_) => None,
            None => Some(Instant::NEVER),
        };
        assert_eq!(arrives, expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(skyhop_needs::cases(400)))]

    #[test]
    fn the_link_does_what_the_reference_does(
        config in any_config(),
        train in train(),
        polls_ns in prop::collection::btree_set(moment_ns(), 0..60),
    ) {
        let (outcomes, order) = reference::run(&config, &train);
        let often = Driver::new(&config, train.len()).run(&train, Polling::At(&polls_ns));
        assert_same(&often.observed, &outcomes, &order);
        let once = Driver::new(&config, train.len()).run(&train, Polling::At(&BTreeSet::new()));
        prop_assert_eq!(often.observed, once.observed);
    }

    #[test]
    fn a_driver_that_sleeps_until_the_wakeup_is_never_late(config in any_config(), train in train()) {
        let (outcomes, order) = reference::run(&config, &train);
        let driver = Driver::new(&config, train.len()).run(&train, Polling::OnWakeup);
        assert_same(&driver.observed, &outcomes, &order);
        let schedule = &config.schedule;
        let new_routes = schedule.delay.iter().filter(|piece| piece.new_route).count();
        let interruptions = schedule.outages.len() + schedule.rate.len();
        let reasons = driver.observed.stats.drops.total() + (new_routes + interruptions) as u64;
        prop_assert!(driver.vain_wakeups <= reasons, "{} vain wakeups", driver.vain_wakeups);
    }

    #[test]
    fn the_precomputed_queue_shows_at_any_time_what_happens_by_step(
        config in config(),
        train in train(),
        polls_ns in prop::collection::btree_set(moment_ns(), 0..60),
    ) {
        let mut ahead = Driver::new(&config, train.len());
        let mut by_step = Driver::new(&by_step(&config), train.len());
        let mut moments: Vec<(u64, Option<usize>)> = polls_ns.iter().map(|&at| (at, None)).collect();
        moments.extend(train.iter().enumerate().map(|(number, one)| (one.at_ns, Some(number))));
        moments.sort_unstable();
        for (at_ns, number) in moments {
            let now = Instant::from_nanos(at_ns);
            for driver in [&mut ahead, &mut by_step] {
                if let Some(number) = number {
                    let packet = Packet::new(Bytes::new(train[number].size), number);
                    driver.link.enqueue(now, packet);
                }
                driver.poll(now);
            }
            prop_assert_eq!(ahead.link.stats(), by_step.link.stats(), "at {}", now);
            prop_assert_eq!(&ahead.observed, &by_step.observed, "at {}", now);
        }
    }

    #[test]
    fn a_plain_link_does_at_any_time_what_the_link_does(
        config in config().prop_map(|config| plain(&config)),
        train in train(),
    ) {
        let plain = PlainLink::new(&config).expect("the configuration is plain");
        assert_same_as_plain(plain, &config, &train);
    }

    #[test]
    fn a_link_that_is_taken_for_plain_is_plain(
        config in any_config(),
        [loses, breaks, has_routes, drops] in any::<[bool; 4]>(),
        train in train(),
    ) {
        let plain = plain(&config);
        let mut config = config;
        let schedule = &mut config.schedule;
        if !loses { schedule.loss = plain.schedule.loss }
        if !breaks { schedule.dismantled = plain.schedule.dismantled }
        if !has_routes { schedule.delay = plain.schedule.delay }
        if !drops { schedule.during_outage = plain.schedule.during_outage }
        if let Some(plain) = PlainLink::new(&config) {
            assert_same_as_plain(plain, &config, &train);
        }
    }

    #[test]
    fn drop_front_loses_the_same_packets_however_often_the_link_is_polled(
        config in config().prop_map(|config| dropping_front(&config)),
        train in train(),
        polls_ns in prop::collection::btree_set(moment_ns(), 0..60),
    ) {
        let run = |polling| Driver::new(&config, train.len()).run(&train, polling).observed;
        let never = BTreeSet::new();
        let once = run(Polling::At(&never));
        prop_assert_eq!(&run(Polling::At(&polls_ns)), &once);
        prop_assert_eq!(&run(Polling::OnWakeup), &once);
    }

    #[test]
    fn every_packet_is_accounted_for(
        config in prop_oneof![any_config(), config().prop_map(|config| dropping_front(&config))],
        train in train(),
    ) {
        let driver = Driver::new(&config, train.len()).run(&train, Polling::At(&BTreeSet::new()));
        let Observed { outcomes, order, stats } = driver.observed;
        let lost = outcomes.iter().filter(|outcome| matches!(outcome, Some(Outcome::Lost { .. })));
        let stuck = outcomes.iter().filter(|outcome| outcome.is_none()).count() as u64;
        prop_assert_eq!(stats.enqueued_packets, train.len() as u64);
        prop_assert_eq!(stats.delivered_packets, order.len() as u64);
        prop_assert_eq!(stats.drops.total(), lost.count() as u64);
        prop_assert_eq!(stats.backlog_packets + stats.underway_packets, stuck);
        let delivered: u64 = order.iter().map(|&number| train[number].size).sum();
        prop_assert_eq!(stats.delivered_bytes, Bytes::new(delivered));
    }

    #[test]
    fn nothing_overtakes_on_one_route(mut config in config(), train in train()) {
        for piece in &mut config.schedule.delay {
            piece.new_route = false;
        }
        let driver = Driver::new(&config, train.len()).run(&train, Polling::OnWakeup);
        prop_assert!(driver.observed.order.is_sorted());
    }
}
