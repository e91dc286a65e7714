//! Captures of packets, against the rows of the same run.

use std::collections::BTreeMap;

use skyhop_engine::{Engine as _, Unattended};
use skyhop_model::{Direction, EventKind, LossReason};
use skyhop_record::{EventRow, FileError, Piece, RunData, Sink};
use skyhop_sim::Simulator;
use skyhop_wire::{CapturedPacket, LinkEnd, headers};

use crate::scenario::{experiment, simulate};

/// Bytes of the header with which links count a packet.
const ETHERNET: i64 = 14;

/// Sink that takes the packets of some flows.
struct Captured {
    flows: Vec<u32>,
    run: RunData,
    packets: Vec<CapturedPacket>,
}

impl Sink for Captured {
    fn write(&mut self, piece: Piece) -> Result<(), FileError> {
        match piece {
            Piece::Packets(packets) => {
                self.packets.extend(packets);
                Ok(())
            }
            other => self.run.write(other),
        }
    }

    fn takes_packets_of(&self, flow: u32) -> bool {
        self.flows.contains(&flow)
    }
}

fn capture(text: &str, flows: &[u32]) -> Captured {
    let mut sink = Captured { flows: flows.to_vec(), run: RunData::default(), packets: Vec::new() };
    Simulator.run(&experiment(text), &mut sink, &mut Unattended).unwrap();
    sink
}

/// A download that loses packets at a short queue and in outages, requests in the other direction, and a probe.
fn lossy() -> String {
    let flows = "[[flow]]\ncc = \"cubic\"\ntcp = { ecn = true }\n\
        [[flow]]\nfrom = \"to\"\n\
        app = { kind = \"request-response\", requests = 20, response = \"200 kB\" }\n\
        [[flow]]\nkind = \"probe\"\ninterval = \"50 ms\"\n\
        [[change]]\nat = \"4 s\"\noutage = \"300 ms\"\n";
    over("queue = \"60 kB\"\nloss = \"0.1 %\"", flows)
}

/// Run of 10 s over 20 Mbit/s and 40 ms.
fn over(link: &str, flows: &str) -> String {
    format!(
        "[path]\nkind = \"fixed\"\nrtt = \"40 ms\"\n[link]\nrate = \"20 Mbit/s\"\n{link}\n\
         [run]\nduration = \"10 s\"\n{flows}"
    )
}

/// Packets at an end of the path in one direction.
fn at(packets: &[CapturedPacket], end: LinkEnd, outbound: bool) -> Vec<&CapturedPacket> {
    let here =
        |one: &&CapturedPacket| one.interface == end.interface(0) && one.outbound == outbound;
    packets.iter().filter(here).collect()
}

#[test]
fn a_capture_has_each_packet_at_both_ends_or_as_lost() {
    let Captured { run, packets, .. } = capture(&lossy(), &[0, 1, 2]);
    assert!(packets.is_sorted_by_key(|packet| packet.at));
    let lost = at(&packets, LinkEnd::Lost, true);
    let source = |packet: &CapturedPacket| packet.headers[12..16].to_vec();
    let ways = [[LinkEnd::From, LinkEnd::To], [LinkEnd::To, LinkEnd::From]];
    for (direction, [near, far]) in Direction::ALL.iter().zip(ways) {
        let (sent, arrived) = (at(&packets, near, true), at(&packets, far, false));
        let lost = lost.iter().filter(|one| source(one) == source(sent[0])).count();
        let underway = sent.len() - arrived.len() - lost;
        assert!(underway < 100, "{underway} packets of {} are on the way at the end", sent.len());
        let bytes: i64 = arrived.iter().map(|one| i64::from(one.ip_bytes) + ETHERNET).sum();
        let rows = run.link.iter().filter(|row| row.direction == *direction);
        assert_eq!(bytes, rows.map(|row| row.delivered_bytes).sum::<i64>());
    }
    // Each loss has its time and reason.
    let losses: Vec<&EventRow> =
        run.events.iter().filter(|row| row.kind == EventKind::Loss).collect();
    assert!(losses.len() > 20, "{} losses", losses.len());
    let of_rows =
        losses.iter().map(|row| (row.t_ns, row.reason.map(|reason| format!("lost: {reason}"))));
    let of_packets = lost.iter().map(|one| (one.at.as_nanos() as i64, one.comment.clone()));
    let count = |all: &mut dyn Iterator<Item = (i64, Option<String>)>| {
        all.fold(BTreeMap::new(), |mut counts: BTreeMap<_, u32>, key| {
            *counts.entry(key).or_default() += 1;
            counts
        })
    };
    assert_eq!(count(&mut of_rows.into_iter()), count(&mut of_packets.into_iter()));
    assert!(losses.iter().any(|row| row.reason == Some(LossReason::Queue)));
}

#[test]
fn headers_tell_what_the_run_counts() {
    let Captured { run, packets, .. } = capture(&lossy(), &[0]);
    for packet in &packets {
        let total = u32::from(u16::from_be_bytes([packet.headers[2], packet.headers[3]]));
        assert_eq!(total, packet.ip_bytes);
    }
    let (mut highest, mut again, mut data) = (0, 0, 0);
    for packet in at(&packets, LinkEnd::From, true) {
        let (_, fields) = headers::read_tcp(&packet.headers).unwrap();
        let payload = packet.ip_bytes - packet.headers.len() as u32;
        if payload > 0 {
            data += 1;
            again += u64::from(fields.seq < highest);
            highest = highest.max(fields.seq + payload);
        }
    }
    let flow = &run.summary.flows[0];
    assert!(flow.retransmits > 20);
    assert_eq!((again, data), (flow.retransmits, flow.sent_packets));
    // The receiver's last acknowledgement is what the flow has delivered in order, with the SYN.
    let acks = at(&packets, LinkEnd::To, true).into_iter();
    let acks = acks.filter_map(|packet| headers::read_tcp(&packet.headers).unwrap().1.ack);
    let delivered = flow.goodput_bps * 10 / 8;
    let last = u64::from(acks.max().unwrap());
    assert!(last.abs_diff(delivered) < 20_000, "{last} acknowledged, {delivered} delivered");
    // SACK blocks lie above the acknowledgement, except a first one that reports a duplicate, and end where segments do.
    let mut blocks = 0;
    for packet in at(&packets, LinkEnd::To, true) {
        let (_, fields) = headers::read_tcp(&packet.headers).unwrap();
        for (index, (start, end)) in fields.sack.into_iter().enumerate() {
            blocks += 1;
            assert!(start < end && end <= highest, "{start} to {end}");
            assert!(index == 0 || start > fields.ack.unwrap());
        }
    }
    assert!(blocks > 100);
}

#[test]
fn a_capture_changes_nothing_in_the_run() {
    let text = lossy();
    let (mut with, mut without) = (capture(&text, &[0, 2]).run, simulate(&text));
    (with.run, without.run) = Default::default();
    assert!(with == without);
}

#[test]
fn marks_are_seen_where_the_packet_arrives() {
    let link = "qdisc = { kind = \"codel\", ecn = true }";
    let flow = "[[flow]]\ncc = \"cubic\"\ntcp = { ecn = true }\n";
    let Captured { run, packets, .. } = capture(&over(link, flow), &[0]);
    let marked = at(&packets, LinkEnd::To, false).into_iter().filter(|one| one.comment.is_some());
    let marks: i64 = run.flows.iter().filter_map(|row| row.marks).sum();
    assert!(marks > 0);
    assert_eq!(marked.count() as i64, marks);
}

#[test]
fn numbers_are_those_of_the_time_at_which_a_packet_was_sent() {
    let Captured { packets, .. } = capture(&lossy(), &[1]);
    // Each end sees what the other has sent: the same headers in the same order, without those that are lost.
    for [near, far] in [[LinkEnd::From, LinkEnd::To], [LinkEnd::To, LinkEnd::From]] {
        let mut sent = at(&packets, near, true).into_iter();
        let arrived = at(&packets, far, false);
        assert!(arrived.len() > 100);
        for packet in arrived {
            assert!(sent.any(|other| other.headers == packet.headers), "{packet:?}");
        }
    }
    // Sequence numbers of new packets follow each other.
    let mut next = 0;
    for packet in at(&packets, LinkEnd::To, true) {
        let (_, fields) = headers::read_tcp(&packet.headers).unwrap();
        let flags = u32::from(fields.flags.syn) + u32::from(fields.flags.fin);
        let taken = packet.ip_bytes - packet.headers.len() as u32 + flags;
        assert!(fields.seq <= next, "{} after {next}", fields.seq);
        next = next.max(fields.seq + taken);
    }
}
