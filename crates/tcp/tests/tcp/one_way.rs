//! Data one way through two endpoints gives the same packets as a sender and a receiver alone.

use skyhop_tcp::{Packet, SegmentKind};
use skyhop_units::{Bytes, Duration, Instant};

use crate::pair::{Client, Pair, Server};
use crate::path::{Fate, Path, exact_timers, ms};
use crate::reno::Reno;
use crate::trouble::Trouble;

type Sent = (Instant, Bytes, u64, bool);

fn sorted(mut sent: Vec<Sent>) -> Vec<Sent> {
    sent.sort_unstable();
    sent
}

/// Delay from the client, a little longer than the one back: two packets then never arrive at both ends at the
/// same time, where the order of processing would matter.
fn longer(fate: Fate) -> Fate {
    if matches!(fate, Fate::Arrives) { Fate::Late(Duration::from_micros(137)) } else { fate }
}

/// Data segments and ACKs in the order of transmission.
fn by_halves(bytes: u64, trouble: [Trouble; 2]) -> (Vec<Sent>, Vec<Sent>) {
    let mut path = Path::new(Reno::default(), ms(20));
    let [mut forward, mut back] = trouble;
    path.judge_segment = Box::new(move |_, _| longer(forward.fate()));
    path.judge_ack = Box::new(move |_, _| back.fate());
    path.sender.write(path.now, Bytes::new(bytes));
    path.sender.finish();
    path.run_to_completion(Duration::from_secs(100_000));
    path.run_for(ms(1000));
    let segments = path.sent.iter().map(|(at, s)| (*at, s.ip_size(), s.seq, s.retransmission));
    let acks = path.acks.iter().map(|(at, ack)| (*at, ack.ip_size(), ack.cumulative, ack.syn));
    (sorted(segments.collect()), sorted(acks.collect()))
}

fn by_endpoints(bytes: u64, trouble: [Trouble; 2]) -> (Vec<Sent>, Vec<Sent>) {
    let config = exact_timers();
    let mut pair = Pair::new(config, config, ms(20));
    let [mut forward, mut back] = trouble;
    pair.judge = Box::new(move |_, from, _| match from {
        Client => longer(forward.fate()),
        Server => back.fate(),
    });
    pair.client.write(pair.now, Bytes::new(bytes));
    pair.client.finish();
    while !pair.client.sender().is_complete() {
        assert!(pair.step(Instant::START + Duration::from_secs(100_000)), "stalled");
    }
    pair.run_for(ms(1000));
    let (mut segments, mut acks) = (Vec::new(), Vec::new());
    for sent in &pair.sent {
        let size = sent.packet.ip_size();
        match &sent.packet {
            Packet::Segment(s) if s.kind == SegmentKind::Data => {
                segments.push((sent.at, size, s.seq, s.retransmission));
            }
            Packet::Ack(ack) => {
                let ack = ack.unpack();
                acks.push((sent.at, size, ack.cumulative, ack.syn));
            }
            Packet::DataWithAck(segment, _) => {
                assert_ne!(segment.kind, SegmentKind::Data, "nothing to carry")
            }
            other => panic!("{other:?}"),
        }
    }
    (sorted(segments), sorted(acks))
}

#[test]
fn endpoints_send_what_their_halves_do() {
    for seed in 0..skyhop_needs::cases(20) {
        let loss = 1000 * u64::from(seed % 5) * 10;
        let bytes = 3_000_000 + 997 * u64::from(seed);
        let trouble = [Trouble::of_loss(loss, seed.into()), Trouble::of_loss(loss, 77)];
        let (halves, endpoints) = (by_halves(bytes, trouble), by_endpoints(bytes, trouble));
        for (one, other) in [(halves.1, endpoints.1), (halves.0, endpoints.0)] {
            let differ = one.iter().zip(&other).position(|(one, other)| one != other);
            let at = differ.map(|at| (&one[at], &other[at]));
            assert_eq!((differ, at), (None, None), "seed {seed}");
            assert_eq!(one.len(), other.len(), "seed {seed}");
        }
    }
}
