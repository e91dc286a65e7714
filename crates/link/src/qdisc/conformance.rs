//! Conformance tests of the queue disciplines, run over every entry of the table.

use std::collections::BTreeMap;

use proptest::prelude::*;
use skyhop_model::{Dscp, Ecn, LossReason};
use skyhop_units::{Bytes, Duration, Instant};

use super::{
    AnyQdisc, Backlog, CodelConfig, Limit, QDISCS, Qdisc, QueueDiscipline, Queued, TcpFacts,
};
use crate::stats::Verdicts;
use crate::{LinkError, NO_FLOW, Packet};

#[derive(Debug, Clone, Copy)]
enum Step {
    Enqueue { after_us: u64, size: u64, flow: u32, ecn: Ecn },
    Dequeue { after_us: u64 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0_u64..20_000, 64_u64..9_000, 0_u32..8, prop::sample::select(Ecn::ALL))
            .prop_map(|(after_us, size, flow, ecn)| Step::Enqueue { after_us, size, flow, ecn }),
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

/// All disciplines of the table with their defaults, and variants with other parameters.
fn choices() -> Vec<QueueDiscipline> {
    let others = [
        r#"{"kind": "fifo", "drop": "front"}"#,
        r#"{"kind": "fifo", "drop": "front", "max_sojourn": "30 ms"}"#,
        r#"{"kind": "codel", "ecn": true}"#,
        r#"{"kind": "codel", "target": "1 ms", "interval": "20 ms"}"#,
        r#"{"kind": "codel", "ce_threshold": "2 ms"}"#,
        r#"{"kind": "fq_codel", "ce_threshold": "500 us", "flows": 2}"#,
        r#"{"kind": "codel", "target": "1 ms", "interval": "20 ms", "ecn": true}"#,
        r#"{"kind": "fq_codel", "flows": 1, "ecn": false}"#,
        r#"{"kind": "fq_codel", "flows": 3, "quantum": "300 B", "memory": "30 kB", "drop_batch": 3}"#,
        r#"{"kind": "pie", "ecn": true, "target": "1 ms", "tupdate": "1 ms"}"#,
        r#"{"kind": "pie", "dq_rate_estimator": true, "bytemode": true, "beta": 2000}"#,
        r#"{"kind": "fq_pie", "ecn": true, "flows": 2, "target": "1 ms", "tupdate": "500 us"}"#,
        r#"{"kind": "sfq", "perturb": "50 ms", "limit": 20, "flows": 4, "divisor": 8, "depth": 3}"#,
        r#"{"kind": "sfq", "perturb": "1 s", "headdrop": true, "depth": 2, "quantum": "1 B"}"#,
        r#"{"kind": "fq", "maxrate": "2 Mbit/s", "flow_limit": 5}"#,
        r#"{"kind": "fq", "maxrate": "300 kbit/s", "quantum": "200 B", "ce_threshold": "5 ms"}"#,
        r#"{"kind": "red", "ecn": true, "min": "2 kB", "max": "9 kB", "probability": "50 %"}"#,
        r#"{"kind": "red", "adaptive": true, "bandwidth": "0 bit/s", "harddrop": true, "ecn": true}"#,
        r#"{"kind": "cake", "bandwidth": "1 Mbit/s", "rtt": "10 ms"}"#,
        r#"{"kind": "cake", "isolation": "flows", "rtt": "1 ms", "memory": "20 kB"}"#,
        r#"{"kind": "cake", "isolation": "hosts", "diffserv": "precedence", "ack_filter": "on"}"#,
        r#"{"kind": "cake", "isolation": "flowblind", "diffserv": "besteffort"}"#,
        r#"{"kind": "cake", "bandwidth": "2 Mbit/s", "diffserv": "diffserv4", "rtt": "5 ms"}"#,
        r#"{"kind": "cake", "bandwidth": "1 Mbit/s", "diffserv": "diffserv8"}"#,
        r#"{"kind": "cake", "diffserv": "diffserv8", "ack_filter": "aggressive", "memory": "9 kB"}"#,
        r#"{"kind": "threshold-drop", "share": "0 %", "probability": "100 %"}"#,
    ];
    let plain = QDISCS.iter().map(|entry| (entry.default)());
    plain.chain(others.map(|text| serde_json::from_str(text).expect("a discipline"))).collect()
}

/// Packets still in the queue, by number: time of arrival, size and ECN bits.
type Inside = BTreeMap<u64, (Instant, Bytes, Ecn)>;

/// Packets in the order in which they left: number, time of departure (`None` if dropped), and final ECN bits.
type Left = Vec<(u64, Option<Instant>, Ecn)>;

/// TCP header of a packet: each acknowledges one more than the one before, and every third also carries data.
fn acknowledges(number: &u64) -> Option<TcpFacts> {
    Some(TcpFacts {
        connection: 1,
        acknowledged: *number as u32,
        is_pure: !number.is_multiple_of(3),
        ecn_flags: 0,
        timestamps: None,
        sacks: [None; 4],
    })
}

/// Drive one discipline through the steps and check every one; return the packets that left.
fn run(choice: &QueueDiscipline, limit: Limit, steps: &[Step]) -> Left {
    let mut qdisc = AnyQdisc::new(choice, limit, 7);
    qdisc.read_tcp_with(acknowledges);
    let (mut verdicts, mut inside, mut left) = (Verdicts::new(), Inside::new(), Vec::new());
    let mut now = Instant::START;
    for (number, &step) in (0_u64..).zip(steps) {
        match step {
            Step::Enqueue { after_us, size, flow, ecn } => {
                now += Duration::from_micros(after_us);
                let flow = if flow == 0 { NO_FLOW } else { flow };
                let dscp = Dscp::ALL[flow as usize % Dscp::ALL.len()];
                let packet = Packet::new(Bytes::new(size), number).with_flow(flow, ecn);
                let packet = packet.with_tos(dscp.tos());
                inside.insert(number, (now, packet.wire_size, ecn));
                qdisc.enqueue(Queued { since: now, packet }, &mut verdicts);
            }
            Step::Dequeue { after_us } => {
                now += Duration::from_micros(after_us);
                dequeue(&mut qdisc, now, &mut verdicts, &mut inside, &mut left);
            }
        }
        account_for_drops(&mut verdicts, now, &mut inside, &mut left);
        // Summing up a long queue at every step is slow.
        if inside.len() < 500 || number % 100 == 0 {
            check_backlog(&qdisc, limit, &inside);
        }
    }
    while !inside.is_empty() {
        let before = inside.len();
        dequeue(&mut qdisc, now, &mut verdicts, &mut inside, &mut left);
        account_for_drops(&mut verdicts, now, &mut inside, &mut left);
        if inside.len() == before {
            now = qdisc.ready();
            dequeue(&mut qdisc, now, &mut verdicts, &mut inside, &mut left);
        }
        assert!(inside.len() < before, "{choice:?} keeps packets for ever");
    }
    assert_eq!(qdisc.backlog(), Backlog::default());
    assert_eq!(qdisc.dequeue(now, &mut verdicts), None);
    assert_eq!(verdicts.marks(), verdicts.take_marked().len() as u64);
    left
}

fn dequeue(
    qdisc: &mut AnyQdisc<u64>,
    now: Instant,
    verdicts: &mut Verdicts<u64>,
    inside: &mut Inside,
    left: &mut Left,
) {
    match qdisc.dequeue(now, verdicts) {
        Some(Queued { since, packet }) => {
            let (came, size, ecn) = inside.remove(&packet.payload).expect("it comes out once");
            assert_eq!((came, size), (since, packet.wire_size), "it comes out unchanged");
            let is_marked = packet.ecn() == Ecn::Ce && ecn.is_capable();
            assert!(packet.ecn() == ecn || is_marked, "{ecn} became {}", packet.ecn());
            left.push((packet.payload, Some(now), packet.ecn()));
        }
        None => {
            let waits = qdisc.backlog() != Backlog::default();
            assert_eq!(waits, qdisc.ready() > now && waits, "it serves what is ready");
        }
    }
}

fn account_for_drops(
    verdicts: &mut Verdicts<u64>,
    now: Instant,
    inside: &mut Inside,
    left: &mut Left,
) {
    for drop in verdicts.take_lost() {
        assert_eq!((drop.at, drop.reason), (now, LossReason::Queue));
        assert!(inside.remove(&drop.packet.payload).is_some(), "a packet is lost once");
        left.push((drop.packet.payload, None, drop.packet.ecn()));
    }
}

fn check_backlog(qdisc: &AnyQdisc<u64>, limit: Limit, inside: &Inside) {
    let bytes = inside.values().map(|&(_, size, _)| size).sum();
    assert_eq!(qdisc.backlog(), Backlog { packets: inside.len() as u64, bytes });
    assert!(limit.allows(qdisc.backlog()), "the queue is longer than its limit");
}

proptest! {
    #[test]
    fn every_qdisc_conserves_packets_within_its_limit(limit in limit(), steps in steps()) {
        for choice in choices() {
            run(&choice, limit, &steps);
        }
    }

    #[test]
    fn every_qdisc_does_the_same_again(limit in limit(), steps in steps()) {
        for choice in choices() {
            prop_assert_eq!(run(&choice, limit, &steps), run(&choice, limit, &steps));
        }
    }
}

#[test]
fn every_qdisc_passes_a_packet_that_fits_its_limit_exactly() {
    for choice in choices() {
        for limit in [Limit::Packets(1), Limit::Bytes(Bytes::new(1514))] {
            let enqueue = Step::Enqueue { after_us: 1, size: 1514, flow: 1, ecn: Ecn::Ect0 };
            let left = run(&choice, limit, &[enqueue, Step::Dequeue { after_us: 0 }]);
            let at = Instant::START + Duration::from_micros(1);
            assert_eq!(left, [(0, Some(at), Ecn::Ect0)]);
        }
    }
}

#[test]
fn every_qdisc_serves_ten_thousand_flows() {
    let enqueue = |number: u32| Step::Enqueue {
        after_us: 10,
        size: 1514,
        flow: number % 10_000,
        ecn: if number.is_multiple_of(2) { Ecn::Ect0 } else { Ecn::NotEct },
    };
    let steps: Vec<Step> = (0..30_000)
        .flat_map(|number| {
            [enqueue(number), Step::Dequeue { after_us: 5 }]
                .into_iter()
                .take(1 + number as usize % 2)
        })
        .collect();
    for choice in choices() {
        let left = run(&choice, Limit::Packets(12_000), &steps);
        assert_eq!(left.len(), 30_000, "{choice:?}");
    }
}

#[test]
fn the_table_has_no_name_twice_and_an_unknown_one_is_answered_with_all() {
    let mut names: Vec<&str> = QDISCS.iter().map(|entry| entry.name).collect();
    let message = match QueueDiscipline::named("fifi") {
        Err(error @ LinkError::UnknownQdisc { .. }) => error.to_string(),
        other => panic!("\"fifi\" gives {other:?}"),
    };
    assert!(names.iter().all(|name| message.contains(name)), "{message}");
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), QDISCS.len());
}

#[test]
fn a_discipline_is_written_by_its_name_or_as_a_table_and_read_back() {
    let read = |text: &str| serde_json::from_str::<QueueDiscipline>(text);
    for choice in choices() {
        let text = serde_json::to_string(&choice).unwrap();
        assert_eq!(read(&text).unwrap(), choice, "{text}");
    }
    assert_eq!(serde_json::to_string(&QueueDiscipline::default()).unwrap(), "\"fifo\"");
    let tail = r#"{"kind": "fifo", "drop": "tail"}"#;
    assert_eq!(read(tail).unwrap(), QueueDiscipline::default());
    let codel = QueueDiscipline::named("codel").unwrap();
    assert_eq!(serde_json::to_string(&codel).unwrap(), "\"codel\"");
    assert_eq!(read(r#"{"kind": "codel"}"#).unwrap(), codel);
    let marking = QueueDiscipline::Codel(CodelConfig { ecn: true, ..CodelConfig::default() });
    assert_eq!(read(r#"{"ecn": true, "kind": "codel"}"#).unwrap(), marking);
    let refused = |text: &str| read(text).unwrap_err().to_string();
    assert!(refused("\"fifi\"").contains("no qdisc \"fifi\""));
    for (text, key) in [
        (r#"{"kind": "fifo", "drop": "head"}"#, "expected `tail` or `front`"),
        (r#"{"kind": "fifo", "max_sojourn": "30 ms"}"#, "max_sojourn needs drop = \"front\""),
        (r#"{"kind": "pie", "tupdate": "0 s"}"#, "tupdate"),
        (r#"{"kind": "fq_pie", "quantum": "0 B"}"#, "quantum"),
        (r#"{"kind": "fq_codel", "flows": 0}"#, "nonzero"),
        (r#"{"kind": "sfq", "divisor": 1000}"#, "divisor"),
        (r#"{"kind": "fq", "maxrate": "0 bit/s"}"#, "maxrate"),
        (r#"{"kind": "red", "min": "9 kB", "max": "3 kB"}"#, "min"),
    ] {
        assert!(refused(text).contains(key), "{}", refused(text));
    }
    assert!(refused(r#"{"kind": "codel", "limit": 3}"#).contains("unknown field `limit`"));
    assert!(refused(r#"{"kind": "fifo", "ecn": true}"#).contains("unknown field `ecn`"));
    assert!(refused(r#"{"ecn": true}"#).contains("`kind`"));
}
