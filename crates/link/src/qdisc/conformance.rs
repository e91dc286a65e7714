//! What every queue discipline must do, tried on every entry of the table.

use skyhop_model::LossReason;
use std::collections::BTreeMap;

use proptest::prelude::*;
use skyhop_units::{Bytes, Duration, Instant};

use super::{AnyQdisc, Backlog, Limit, QDISCS, Qdisc, Queued};
use crate::stats::DropLog;
use crate::{LinkError, Packet};

#[derive(Debug, Clone, Copy)]
enum Step {
    Enqueue { after_us: u64, size: u64 },
    Dequeue { after_us: u64 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0_u64..20_000, 64_u64..9_000)
            .prop_map(|(after_us, size)| Step::Enqueue { after_us, size }),
        2 => (0_u64..20_000).prop_map(|after_us| Step::Dequeue { after_us }),
    ];
    prop::collection::vec(step, 0..400)
}

fn limit() -> impl Strategy<Value = Limit> {
    prop_oneof![
        (1_u64..60).prop_map(Limit::Packets),
        (1_u64..200_000).prop_map(|bytes| Limit::Bytes(Bytes::new(bytes))),
    ]
}

/// Packets still inside by number: their entry and size.
type Inside = BTreeMap<u64, (Instant, Bytes)>;

/// Drives one discipline and checks every step; returns what left it, in order.
fn run(name: &str, limit: Limit, steps: &[Step]) -> Vec<(u64, Option<Instant>)> {
    let mut qdisc = AnyQdisc::named(name, limit).expect("the name is from the table");
    let (mut drops, mut inside, mut left) = (DropLog::new(), Inside::new(), Vec::new());
    let mut now = Instant::START;
    for (number, &step) in (0_u64..).zip(steps) {
        match step {
            Step::Enqueue { after_us, size } => {
                now += Duration::from_micros(after_us);
                let packet = Packet { wire_size: Bytes::new(size), payload: number };
                inside.insert(number, (now, packet.wire_size));
                qdisc.enqueue(Queued { since: now, packet }, &mut drops);
            }
            Step::Dequeue { after_us } => {
                now += Duration::from_micros(after_us);
                dequeue(&mut qdisc, now, &mut drops, &mut inside, &mut left);
            }
        }
        account_for_drops(&mut drops, now, &mut inside, &mut left);
        check_backlog(&qdisc, limit, &inside);
    }
    while !inside.is_empty() {
        let before = inside.len();
        dequeue(&mut qdisc, now, &mut drops, &mut inside, &mut left);
        account_for_drops(&mut drops, now, &mut inside, &mut left);
        assert!(inside.len() < before, "{name} keeps packets for ever");
    }
    assert_eq!(qdisc.backlog(), Backlog::default());
    assert_eq!(qdisc.dequeue(now, &mut drops), None);
    left
}

fn dequeue(
    qdisc: &mut AnyQdisc<u64>,
    now: Instant,
    drops: &mut DropLog<u64>,
    inside: &mut Inside,
    left: &mut Vec<(u64, Option<Instant>)>,
) {
    match qdisc.dequeue(now, drops) {
        Some(Queued { since, packet }) => {
            let entry = inside.remove(&packet.payload);
            assert_eq!(entry, Some((since, packet.wire_size)), "it comes out once and unchanged");
            left.push((packet.payload, Some(now)));
        }
        None => assert_eq!(qdisc.backlog(), Backlog::default(), "it serves while packets wait"),
    }
}

fn account_for_drops(
    drops: &mut DropLog<u64>,
    now: Instant,
    inside: &mut Inside,
    left: &mut Vec<(u64, Option<Instant>)>,
) {
    for drop in drops.take() {
        assert_eq!((drop.at, drop.reason), (now, LossReason::Queue));
        assert!(inside.remove(&drop.packet.payload).is_some(), "a packet is lost once");
        left.push((drop.packet.payload, None));
    }
}

fn check_backlog(qdisc: &AnyQdisc<u64>, limit: Limit, inside: &Inside) {
    let bytes = inside.values().map(|&(_, size)| size).sum();
    assert_eq!(qdisc.backlog(), Backlog { packets: inside.len() as u64, bytes });
    assert!(limit.allows(qdisc.backlog()), "the queue is longer than its limit");
}

proptest! {
    #[test]
    fn every_qdisc_conserves_packets_within_its_limit(limit in limit(), steps in steps()) {
        for entry in QDISCS {
            run(entry.name, limit, &steps);
        }
    }

    #[test]
    fn every_qdisc_does_the_same_again(limit in limit(), steps in steps()) {
        for entry in QDISCS {
            prop_assert_eq!(run(entry.name, limit, &steps), run(entry.name, limit, &steps));
        }
    }
}

#[test]
fn every_qdisc_passes_a_packet_that_fits_its_limit_exactly() {
    for entry in QDISCS {
        for limit in [Limit::Packets(1), Limit::Bytes(Bytes::new(1514))] {
            let enqueue = Step::Enqueue { after_us: 1, size: 1514 };
            let left = run(entry.name, limit, &[enqueue, Step::Dequeue { after_us: 0 }]);
            assert_eq!(left, [(0, Some(Instant::START + Duration::from_micros(1)))]);
        }
    }
}

#[test]
fn the_table_has_no_name_twice_and_an_unknown_one_is_answered_with_all() {
    let mut names: Vec<&str> = QDISCS.iter().map(|entry| entry.name).collect();
    let message = match AnyQdisc::<()>::named("fifi", Limit::Packets(1)) {
        Err(error @ LinkError::UnknownQdisc { .. }) => error.to_string(),
        other => panic!("\"fifi\" gives {other:?}"),
    };
    assert!(names.iter().all(|name| message.contains(name)), "{message}");
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), QDISCS.len());
}
