//! Behaviour of a link in cases small enough to check by hand.
//!
//! At 12 Mbit/s a packet of 1500 bytes takes 1 ms.

use skyhop_link::{
    Arrival, DelayPiece, Dismantled, Drop, FifoConfig, FifoDrop, Limit, Link, LinkConfig,
    LinkError, LinkSchedule, Loss, Outage, Packet, PieConfig, Piece, QDISCS, QueueDiscipline,
    ScheduleError,
};
use skyhop_model::Counts;
use skyhop_model::{DuringOutage, Ecn, LossReason};
use skyhop_units::{Bytes, Duration, Instant, Rate, Ratio};

const RATE: Rate = Rate::from_bits_per_second(12_000_000);
const SIZE: Bytes = Bytes::new(1500);

fn ms(ms: u64) -> Instant {
    Instant::START + Duration::from_millis(ms)
}

fn ratio(fraction: f64) -> Ratio {
    Ratio::new(fraction).expect("a fraction")
}

fn fixed(delay_ms: u64) -> LinkSchedule {
    LinkSchedule::fixed(Duration::from_millis(delay_ms), RATE, Ratio::ZERO)
}

fn config(schedule: LinkSchedule, packets: u64) -> LinkConfig {
    let queue = Limit::Packets(packets);
    LinkConfig { schedule, qdisc: QueueDiscipline::default(), queue, seed: 7 }
}

/// A link after a run, with (packet, ms) of arrivals and (packet, ms, reason) of drops.
struct Run {
    link: Link<u64>,
    arrivals: Vec<(u64, u64)>,
    drops: Vec<(u64, u64, LossReason)>,
}

/// Send packet n at the nth of `sends_ms` and poll until nothing happens any more.
fn run(config: LinkConfig, sends_ms: impl IntoIterator<Item = u64>) -> Run {
    let mut link = Link::new(config).expect("a valid configuration");
    for (payload, send_ms) in (0..).zip(sends_ms) {
        link.enqueue(ms(send_ms), Packet::new(SIZE, payload));
    }
    let whole_ms = |at: Instant| {
        assert_eq!(at.as_nanos() % 1_000_000, 0, "{at} is not a whole millisecond");
        at.as_nanos() / 1_000_000
    };
    let arrived = |Arrival { at, packet, .. }| (packet.payload, whole_ms(at));
    let arrivals = std::iter::from_fn(|| link.poll(ms(10_000_000))).map(arrived).collect();
    let lost = |Drop { at, reason, packet }| (packet.payload, whole_ms(at), reason);
    let drops = link.take_drops().into_iter().map(lost).collect();
    Run { link, arrivals, drops }
}

fn payloads(drops: &[(u64, u64, LossReason)]) -> Vec<u64> {
    drops.iter().map(|&(payload, ..)| payload).collect()
}

#[test]
fn a_saturated_link_carries_its_rate_and_drops_the_tail() {
    let run = run(config(fixed(20), 3), [0; 6]);
    assert_eq!(run.arrivals, [(0, 21), (1, 22), (2, 23), (3, 24)]);
    let queue = LossReason::Queue;
    assert_eq!(run.drops, [(4, 0, queue), (5, 0, queue)], "one in service and three waiting fit");
    let stats = run.link.stats();
    assert_eq!(stats.transmitted_bytes, Bytes::new(4 * 1500));
    assert_eq!(
        (stats.drops[LossReason::Queue], stats.drops[queue], stats.drops.total()),
        (2, 2, 2)
    );
    assert_eq!(run.link.next_wakeup(), None);
}

#[test]
fn stats_tell_what_waits_and_what_is_underway() {
    let mut link = Link::new(config(fixed(20), 10)).expect("a valid configuration");
    for payload in 0..4 {
        link.enqueue(ms(0), Packet::new(SIZE, payload));
    }
    let stats = link.stats();
    assert_eq!((stats.backlog_packets, stats.backlog_bytes), (3, Bytes::new(4500)));
    assert_eq!(stats.underway_packets, 1);
    assert_eq!(link.poll(ms(2)), None);
    let stats = link.stats();
    assert_eq!((stats.backlog_packets, stats.underway_packets), (1, 3));
    let arrival = link.poll(ms(21)).expect("the first packet is there");
    assert_eq!((arrival.at, arrival.sent, arrival.packet.payload), (ms(21), ms(0), 0));
}

#[test]
fn a_rate_step_counts_from_its_moment() {
    let mut schedule = fixed(10);
    schedule.rate.push(Piece { from: ms(3), value: Rate::from_bits_per_second(6_000_000) });
    schedule.rate.push(Piece { from: ms(8), value: Rate::ZERO });
    schedule.rate.push(Piece { from: ms(20), value: Rate::from_bits_per_second(6_000_000) });
    let run = run(config(schedule, 100), [0; 7]);
    let left: Vec<u64> = run.arrivals.iter().map(|&(_, at_ms)| at_ms - 10).collect();
    // At 8 ms the sixth packet is half sent; its other half follows from 20 ms on.
    assert_eq!(left, [1, 2, 3, 5, 7, 21, 23]);
    assert_eq!(run.drops, []);
}

#[test]
fn a_rate_that_stays_zero_keeps_packets_and_needs_no_wakeup() {
    let mut schedule = fixed(10);
    schedule.rate.push(Piece { from: ms(1), value: Rate::ZERO });
    let run = run(config(schedule, 100), [0; 3]);
    assert_eq!(run.arrivals, [(0, 11)]);
    assert_eq!(run.link.stats().backlog_packets, 2);
    assert_eq!(run.link.next_wakeup(), None);
}

#[test]
fn an_outage_that_drops_takes_exactly_what_leaves_the_queue_in_it() {
    let mut schedule = fixed(20);
    schedule.outages = vec![Outage { from: ms(4), until: ms(7) }];
    let run = run(config(schedule, 100), [0; 10]);
    // Packet n leaves at n + 1 ms: 4, 5 and 6 ms are in the outage, 7 ms is not.
    assert_eq!(payloads(&run.drops), [3, 4, 5]);
    assert!(run.drops.iter().all(|&(n, at_ms, why)| at_ms == n + 1 && why == LossReason::Outage));
    let arrived: Vec<u64> = run.arrivals.iter().map(|&(payload, _)| payload).collect();
    assert_eq!(arrived, [0, 1, 2, 6, 7, 8, 9]);
}

#[test]
fn an_outage_that_holds_delays_and_loses_only_to_the_full_queue() {
    let mut schedule = fixed(20);
    schedule.during_outage = DuringOutage::Hold;
    schedule.outages = vec![Outage { from: ms(4), until: ms(14) }];
    let run = run(config(schedule, 5), 0..12);
    // Packet 3 ends as the outage begins; 4 to 8 wait; 9 to 11 find the queue full.
    let held: Vec<(u64, u64)> = (4..9).map(|n| (n, 20 + 14 + n - 3)).collect();
    assert_eq!(run.arrivals[..4], [(0, 21), (1, 22), (2, 23), (3, 24)]);
    assert_eq!(run.arrivals[4..], held);
    let queue = LossReason::Queue;
    assert_eq!(run.drops, [(9, 9, queue), (10, 10, queue), (11, 11, queue)]);
}

#[test]
fn a_packet_in_service_pauses_while_an_outage_holds() {
    let mut schedule = fixed(20);
    schedule.during_outage = DuringOutage::Hold;
    schedule.outages = vec![Outage { from: ms(3), until: ms(13) }];
    schedule.rate[0].value = Rate::from_bits_per_second(6_000_000);
    let run = run(config(schedule, 5), [0, 0]);
    assert_eq!(run.arrivals, [(0, 22), (1, 34)]);
}

/// Let ten packets enter the line at 1, 2, … 10 ms for 30 ms each, and dismantle a hop at 20 ms.
fn dismantle(near_ms: u64, far: Duration) -> Run {
    let mut schedule = fixed(30);
    schedule.dismantled =
        vec![Dismantled { at: ms(20), near: Duration::from_millis(near_ms), far, queue: false }];
    let run = run(config(schedule, 100), [0; 10]);
    let at_that_moment = |&(_, at_ms, why)| at_ms == 20 && why == LossReason::Dismantled;
    assert!(run.drops.iter().all(at_that_moment));
    assert_eq!(run.drops.len() + run.arrivals.len(), 10);
    run
}

#[test]
fn a_dismantled_first_hop_takes_what_entered_last() {
    // The hop is the first 12 ms; the packets have been in the line for 10 to 19 ms.
    assert_eq!(payloads(&dismantle(0, Duration::from_millis(12)).drops), [8, 9]);
}

#[test]
fn a_dismantled_middle_hop_takes_what_is_between_its_ends() {
    // The hop has the packets with at least 13 and less than 16 ms in the line, which entered at 5, 6 and 7 ms.
    assert_eq!(payloads(&dismantle(13, Duration::from_millis(16)).drops), [4, 5, 6]);
}

#[test]
fn a_dismantled_last_hop_takes_everything_beyond_its_near_end() {
    assert_eq!(payloads(&dismantle(17, Duration::MAX).drops), [0, 1, 2]);
}

#[test]
fn packets_that_arrive_or_enter_when_a_hop_is_dismantled_are_told_apart() {
    let mut schedule = fixed(5);
    let hop = |at_ms| Dismantled {
        at: ms(at_ms),
        near: Duration::ZERO,
        far: Duration::MAX,
        queue: false,
    };
    schedule.dismantled = vec![hop(6)];
    // Packet 0 arrives at 6 ms and is safe; packet 5 enters at 6 ms and is not.
    let run = run(config(schedule, 100), [0; 7]);
    assert_eq!(payloads(&run.drops), [1, 2, 3, 4, 5]);
    assert_eq!(run.arrivals, [(0, 6), (6, 12)]);
}

#[test]
fn a_queue_that_is_dismantled_loses_all_that_waits_and_starts_empty() {
    let gone = Dismantled { at: ms(5), near: Duration::ZERO, far: Duration::MAX, queue: true };
    for entry in QDISCS {
        let mut schedule = fixed(0);
        schedule.dismantled = vec![gone];
        let qdisc = (entry.default)();
        let config = LinkConfig { qdisc, ..config(schedule, 100) };
        // Packet 4 leaves at 5 ms and packet 5 begins; the queue behind it is lost, and later packets find a new one.
        let run = run(config, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 50]);
        let lost: Vec<_> = (6..10).map(|packet| (packet, 5, LossReason::Dismantled)).collect();
        assert_eq!(run.drops, lost, "{}", entry.name);
        let there = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (10, 51)];
        assert_eq!(run.arrivals, there, "{}", entry.name);
        assert_eq!(run.link.stats().backlog_packets, 0, "{}", entry.name);
    }
}

#[test]
fn packets_overtake_only_on_a_new_route() {
    let piece = |from_ms, delay_ms, new_route| {
        let delay = Duration::from_millis(delay_ms);
        DelayPiece { from: ms(from_ms), delay, delay_at_end: delay, new_route }
    };
    for (new_route, arrivals) in [
        (false, [(0, 41), (1, 42), (2, 42), (3, 42)]),
        (true, [(2, 13), (3, 14), (0, 41), (1, 42)]),
    ] {
        let mut schedule = fixed(40);
        schedule.delay.push(piece(3, 10, new_route));
        assert_eq!(run(config(schedule, 100), [0; 4]).arrivals, arrivals);
    }
}

/// Linux drops the same packets: the test of this name in `crates/host/src/tc.rs`.
#[test]
fn a_full_queue_drops_at_its_tail_or_at_its_front() {
    let front = FifoConfig { drop: FifoDrop::Front, ..FifoConfig::default() };
    for (fifo, queue, expected) in [
        (FifoConfig::default(), Limit::Packets(4), vec![0, 1, 2, 3, 4]),
        (FifoConfig::default(), Limit::Bytes(Bytes::new(4543)), vec![0, 1, 2, 3]),
        (front.clone(), Limit::Packets(4), vec![0, 17, 18, 19, 20]),
        (front.clone(), Limit::Packets(1), vec![0, 20]),
        (front, Limit::Bytes(Bytes::new(4543)), vec![0, 18, 19, 20]),
    ] {
        // Twenty packets arrive while the link takes a minute for each, and one more when it is fast.
        let (slow, fast) = (Rate::from_bits_per_second(200), Rate::from_bits_per_second(1 << 30));
        let mut schedule = LinkSchedule::fixed(Duration::ZERO, slow, Ratio::ZERO);
        schedule.rate.push(Piece { from: ms(30_000), value: fast });
        let qdisc = QueueDiscipline::Fifo(fifo);
        let mut link = Link::new(LinkConfig { schedule, qdisc, queue, seed: 1 }).unwrap();
        for number in 0..=20 {
            let at = ms(if number < 20 { 0 } else { 30_000 });
            link.enqueue(at, Packet::new(Bytes::new(1514), number));
        }
        let arrived = std::iter::from_fn(|| link.poll(ms(31_000)));
        assert_eq!(arrived.map(|arrival| arrival.packet.payload).collect::<Vec<_>>(), expected);
        assert_eq!(link.stats().drops[LossReason::Queue], 21 - expected.len() as u64);
    }
}

#[test]
fn random_loss_is_as_frequent_as_asked_and_the_same_for_a_seed() {
    const PACKETS: u64 = 100_000;
    let lost = |seed| {
        let mut schedule = fixed(20);
        schedule.loss[0].value = ratio(0.02).into();
        let config = LinkConfig { seed, ..config(schedule, PACKETS) };
        payloads(&run(config, std::iter::repeat_n(0, PACKETS as usize)).drops)
    };
    // Expected: 2000, with a standard deviation of sqrt(100,000 * 0.02 * 0.98) = 44.3.
    let first = lost(1);
    assert!((2000 - 177..=2000 + 177).contains(&first.len()), "{} lost", first.len());
    assert_eq!(lost(1), first);
    assert_ne!(lost(2), first);
}

#[test]
fn loss_begins_and_ends_with_its_piece() {
    let mut schedule = fixed(20);
    schedule.loss.push(Piece { from: ms(3), value: ratio(1.0).into() });
    schedule.loss.push(Piece { from: ms(6), value: Loss::NONE });
    let run = run(config(schedule, 100), [0; 8]);
    assert_eq!(payloads(&run.drops), [2, 3, 4]);
    assert_eq!(run.link.stats().drops[LossReason::Loss], 3);
}

#[test]
fn the_schedule_can_be_asked_for_any_moment() {
    let mut schedule = fixed(20);
    schedule.delay[0].delay_at_end = Duration::from_millis(10);
    let last = Duration::from_millis(50);
    schedule.delay.push(DelayPiece {
        from: ms(100),
        delay: last,
        delay_at_end: last,
        new_route: true,
    });
    schedule.loss.push(Piece { from: ms(7), value: ratio(0.5).into() });
    schedule.rate.push(Piece { from: ms(9), value: Rate::ZERO });
    schedule.outages = vec![Outage { from: ms(5), until: ms(6) }];
    assert_eq!(schedule.validate(), Ok(()));
    let delays = [0, 25, 99, 100, 1000].map(|at_ms| schedule.delay_at(ms(at_ms)).as_micros());
    assert_eq!(delays, [20_000, 17_500, 10_100, 50_000, 50_000]);
    assert_eq!([6, 7].map(|at_ms| schedule.loss_at(ms(at_ms)).mean()), [0.0, 0.5]);
    assert_eq!([8, 9].map(|at_ms| schedule.rate_at(ms(at_ms))), [RATE, Rate::ZERO]);
    assert_eq!(
        [4, 5, 6].map(|at_ms| schedule.outage_at(ms(at_ms)).is_some()),
        [false, true, false]
    );
}

/// Message of the error that the change of a valid configuration causes.
fn refusal(change: impl FnOnce(&mut LinkConfig)) -> String {
    let mut changed = config(fixed(20), 10);
    change(&mut changed);
    Link::<()>::new(changed).expect_err("this is not a link").to_string()
}

#[test]
fn invalid_links_are_refused_in_one_line() {
    let late = |c: &mut LinkConfig| c.schedule.rate[0].from = ms(1);
    let unordered = |c: &mut LinkConfig| c.schedule.loss.push(c.schedule.loss[0]);
    let slope = |c: &mut LinkConfig| c.schedule.delay[0].delay_at_end = Duration::ZERO;
    let reversed = |c: &mut LinkConfig| {
        c.schedule.outages = vec![Outage { from: ms(2), until: ms(1) }];
    };
    let overlapping = |c: &mut LinkConfig| {
        let outage = |from, until| Outage { from: ms(from), until: ms(until) };
        c.schedule.outages = vec![outage(1, 5), outage(4, 6)];
    };
    let hop = |at_ms| Dismantled {
        at: ms(at_ms),
        near: Duration::ZERO,
        far: Duration::MAX,
        queue: false,
    };
    for (message, part) in [
        (refusal(|c| c.schedule.delay.clear()), "delay has no pieces"),
        (refusal(late), "rate begins at 1 ms"),
        (refusal(unordered), "loss[1] at 0 s does not come after"),
        (refusal(slope), "delay_at_end must equal its delay"),
        (refusal(reversed), "outages[0] ends before it begins"),
        (refusal(overlapping), "outages[1] at 4 ms does not come after"),
        (refusal(|c| c.schedule.dismantled = vec![hop(2), hop(1)]), "dismantled[1] at 1 ms"),
        (refusal(|c| c.queue = Limit::Bytes(Bytes::ZERO)), "no packet fits"),
    ] {
        assert!(message.contains(part) && !message.contains('\n'), "{message}");
    }
}

#[test]
fn errors_tell_the_schedule_from_the_rest() {
    let mut empty = config(fixed(20), 10);
    empty.schedule.rate.clear();
    let error = Link::<()>::new(empty).expect_err("a schedule without a rate");
    assert_eq!(error, LinkError::Schedule(ScheduleError::Empty { list: "rate" }));
}

#[test]
fn the_bytes_that_a_rate_lets_through_follow_it() {
    let mbit = |n: u64| Rate::from_bits_per_second(n * 1_000_000);
    let mut schedule = LinkSchedule::fixed(Duration::ZERO, mbit(8), Ratio::ZERO);
    schedule.rate.push(Piece { from: ms(2000), value: mbit(16) });
    assert_eq!(schedule.bytes_until(ms(1000)), 1e6);
    assert_eq!(schedule.bytes_until(ms(3000)), 4e6);
}

/// Link of 12 Mbit/s whose connections get 4 Mbit/s each: with one packet per round, one packet of each every 3 ms.
fn paced() -> LinkConfig {
    let text =
        r#"{"kind": "fq", "maxrate": "4 Mbit/s", "quantum": "1 B", "initial_quantum": "1 B"}"#;
    LinkConfig {
        qdisc: serde_json::from_str(text).expect("a discipline"),
        ..config(fixed(20), 100)
    }
}

fn of_flow(flow: u32, payload: u64) -> Packet<u64> {
    Packet::new(SIZE, payload).with_flow(flow, Ecn::NotEct)
}

#[test]
fn a_discipline_may_hold_packets_back_while_the_link_is_free() {
    let mut link = Link::new(paced()).expect("a valid configuration");
    for payload in 0..4 {
        link.enqueue(ms(0), of_flow(1, payload));
    }
    let mut arrivals = Vec::new();
    let mut vain = 0;
    while let Some(wakeup) = link.next_wakeup() {
        let before = arrivals.len();
        arrivals.extend(std::iter::from_fn(|| link.poll(wakeup)).map(|a| (a.packet.payload, a.at)));
        assert!(arrivals[before..].iter().all(|(_, at)| *at == wakeup), "a wakeup is not late");
        vain += u32::from(arrivals.len() == before);
    }
    assert_eq!(arrivals, [(0, ms(21)), (1, ms(24)), (2, ms(27)), (3, ms(30))]);
    assert!(vain <= 3, "{vain} vain wakeups for three packets that were held back");
}

#[test]
fn packets_that_arrive_while_others_are_held_back_go_at_once() {
    let mut link = Link::new(paced()).expect("a valid configuration");
    link.enqueue(ms(0), of_flow(1, 0));
    link.enqueue(ms(0), of_flow(1, 1));
    assert_eq!(link.poll(ms(1)), None);
    assert_eq!(link.stats().backlog_packets, 1);
    link.enqueue(ms(2), of_flow(2, 2));
    link.enqueue(ms(2), of_flow(2, 3));
    let arrivals = std::iter::from_fn(|| link.poll(ms(100))).map(|a| (a.packet.payload, a.at));
    assert_eq!(
        arrivals.collect::<Vec<_>>(),
        [(0, ms(21)), (2, ms(23)), (1, ms(24)), (3, ms(26))],
        "each flow every 3 ms"
    );
}

#[test]
fn held_back_packets_wait_for_the_rate_too() {
    let mut config = paced();
    config.schedule.rate.push(Piece { from: ms(1), value: Rate::ZERO });
    config.schedule.rate.push(Piece { from: ms(10), value: RATE });
    let mut link = Link::new(config).expect("a valid configuration");
    link.enqueue(ms(0), of_flow(1, 0));
    link.enqueue(ms(0), of_flow(1, 1));
    let arrivals: Vec<_> =
        std::iter::from_fn(|| link.poll(ms(100))).map(|a| (a.packet.payload, a.at)).collect();
    assert_eq!(arrivals, [(0, ms(21)), (1, ms(31))]);
}

#[test]
fn a_discipline_that_cannot_be_is_refused() {
    let qdisc = QueueDiscipline::Pie(PieConfig { tupdate: Duration::ZERO, ..PieConfig::default() });
    let refused = Link::<u64>::new(LinkConfig { qdisc, ..config(fixed(20), 100) });
    assert!(matches!(refused, Err(LinkError::QdiscParameter { qdisc: "pie", .. })), "{refused:?}");
}
