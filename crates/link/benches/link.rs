//! Benchmarks: packets per second through one link on one core.

use divan::Bencher;
use divan::counter::ItemsCount;
use skyhop_link::{
    DelayPiece, GilbertElliott, Limit, Link, LinkConfig, LinkSchedule, Loss, Packet, Piece, QDISCS,
    QueueDiscipline, Switching,
};
use skyhop_model::{ETHERNET_HEADER, Ecn};
use skyhop_units::{Bytes, Duration, Instant, Rate, Ratio};

const PACKETS: u64 = 100_000;
/// Number of flows from which packets come in turn.
const FLOWS: u64 = 10;
const RATE: Rate = Rate::from_bits_per_second(150_000_000);
const DELAY: Duration = Duration::from_millis(25);
const WIRE_SIZE: Bytes = Bytes::new(1500 + ETHERNET_HEADER.as_u64());

/// Payload of about the size of the simulator's packet header.
type Header = [u64; 6];

fn main() {
    divan::main();
}

fn fixed(loss: f64) -> LinkSchedule {
    LinkSchedule::fixed(DELAY, RATE, Ratio::new(loss).expect("a fraction"))
}

/// Schedule of a path that is computed every second, with a new route every fifteen.
fn orbiting() -> LinkSchedule {
    let delay_ms = |second: u64| Duration::from_millis(20 + second % 15);
    let piece = |second: u64| DelayPiece {
        from: Instant::START + Duration::from_secs(second),
        delay: delay_ms(second),
        delay_at_end: if second < 3599 { delay_ms(second + 1) } else { delay_ms(second) },
        new_route: second.is_multiple_of(15),
    };
    LinkSchedule { delay: (0..3600).map(piece).collect(), ..fixed(0.0) }
}

fn link(schedule: LinkSchedule) -> Link<Header> {
    link_with(QueueDiscipline::default(), schedule)
}

fn link_with(qdisc: QueueDiscipline, schedule: LinkSchedule) -> Link<Header> {
    Link::new(LinkConfig { schedule, qdisc, queue: Limit::Packets(500), seed: 1 })
        .expect("a valid configuration")
}

/// Offer packets `gap` apart, with all calls that a driver in virtual time makes; return the number of arrivals.
fn carry(mut link: Link<Header>, gap: Duration) -> u64 {
    let mut arrived = 0;
    let mut send_at = Instant::START;
    for sequence in 0..PACKETS {
        while let Some(wakeup) = link.next_wakeup().filter(|&wakeup| wakeup <= send_at) {
            while link.poll(wakeup).is_some() {
                arrived += 1;
            }
        }
        let packet = Packet::new(WIRE_SIZE, [sequence; 6]);
        link.enqueue(send_at, packet.with_flow((sequence % FLOWS) as u32, Ecn::NotEct));
        send_at += gap;
    }
    arrived
}

fn bench(bencher: Bencher<'_, '_>, schedule: fn() -> LinkSchedule, gap: Duration) {
    bencher
        .counter(ItemsCount::new(PACKETS))
        .with_inputs(|| link(schedule()))
        .bench_values(|link| carry(link, gap));
}

/// Load 1 % above the rate, so that the queue fills and then overflows.
#[divan::bench]
fn saturated_fifo(bencher: Bencher<'_, '_>) {
    bench(bencher, || fixed(0.0), RATE.transmit_time(Bytes::new(1499)));
}

/// Schedule with losses in bursts, at random times.
fn bursts() -> LinkSchedule {
    let (good, bad) = (Duration::from_secs(1), Duration::from_millis(20));
    let switching = Switching::InTime { good, bad };
    let [bad_loss, good_loss] = [0.5, 0.0].map(|loss| Ratio::new(loss).expect("a fraction"));
    let value = Loss::GilbertElliott(GilbertElliott { switching, bad_loss, good_loss });
    LinkSchedule { loss: vec![Piece { from: Instant::START, value }], ..fixed(0.0) }
}

/// Load 1 % above the rate, and losses in bursts.
#[divan::bench]
fn saturated_fifo_with_bursts(bencher: Bencher<'_, '_>) {
    bench(bencher, bursts, RATE.transmit_time(Bytes::new(1499)));
}

/// Light load: every packet finds the link idle and empty.
#[divan::bench]
fn idle_fifo(bencher: Bencher<'_, '_>) {
    bench(bencher, || fixed(0.0), Duration::from_millis(30));
}

#[divan::bench]
fn saturated_fifo_with_loss(bencher: Bencher<'_, '_>) {
    bench(bencher, || fixed(0.01), RATE.transmit_time(Bytes::new(1499)));
}

#[divan::bench]
fn saturated_fifo_over_an_orbiting_path(bencher: Bencher<'_, '_>) {
    bench(bencher, orbiting, RATE.transmit_time(Bytes::new(1499)));
}

/// Load that keeps the link always busy, for every queue discipline.
#[divan::bench(args = QDISCS.iter().map(|entry| entry.name))]
fn saturated(bencher: Bencher<'_, '_>, name: &str) {
    let qdisc = QueueDiscipline::named(name).expect("one of the table");
    let gap = RATE.transmit_time(Bytes::new(1499));
    bencher
        .counter(ItemsCount::new(PACKETS))
        .with_inputs(|| link_with(qdisc.clone(), fixed(0.0)))
        .bench_values(|link| carry(link, gap));
}
