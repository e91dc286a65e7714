//! A probe: what has become of its packets, in the order in which they were sent.

use std::collections::VecDeque;

use skyhop_record::ProbeRow;
use skyhop_units::{Bytes, Duration, Instant};

/// A probe at work.
pub(crate) struct ProbeFlow {
    id: u32,
    pub(crate) interval: Duration,
    pub(crate) size: Bytes,
    /// Packets from number `first` on; those before have their row.
    in_transit: VecDeque<Sent>,
    first: u64,
    /// How many rows there are.
    rows: i64,
    /// The longest round trip so far: what is out for less may still come.
    longest_rtt: Duration,
}

/// A packet that was sent.
#[derive(Clone, Copy)]
struct Sent {
    at: Instant,
    outcome: Outcome,
}

#[derive(Clone, Copy)]
enum Outcome {
    Open,
    Back(Instant),
    Lost,
}

impl ProbeFlow {
    pub(crate) fn new(id: u32, interval: Duration, size: Bytes) -> Self {
        Self {
            id,
            interval,
            size,
            in_transit: VecDeque::new(),
            first: 0,
            rows: 0,
            longest_rtt: Duration::ZERO,
        }
    }

    /// A packet is sent; its number.
    pub(crate) fn send(&mut self, now: Instant) -> u64 {
        self.in_transit.push_back(Sent { at: now, outcome: Outcome::Open });
        self.first + self.in_transit.len() as u64 - 1
    }

    /// The echo of a packet is back.
    pub(crate) fn echoed(&mut self, seq: u64, now: Instant) {
        if let Some(packet) = self.packet(seq) {
            packet.outcome = Outcome::Back(now);
            let rtt = now.saturating_since(packet.at);
            self.longest_rtt = self.longest_rtt.max(rtt);
        }
    }

    /// A packet, or its echo, was lost on the way.
    pub(crate) fn lost(&mut self, seq: u64) {
        if let Some(packet) = self.packet(seq) {
            packet.outcome = Outcome::Lost;
        }
    }

    /// The row of the next packet of which it is known by `now` what became of it.
    pub(crate) fn next_settled(&mut self, now: Instant) -> Option<ProbeRow> {
        let next = *self.in_transit.front()?;
        let settled = match next.outcome {
            Outcome::Open => false,
            Outcome::Back(_) => true,
            // Not before it could have been back: the run may end until then.
            Outcome::Lost => next.at + self.longest_rtt < now,
        };
        if !settled {
            return None;
        }
        self.in_transit.pop_front();
        self.first += 1;
        Some(self.row(next))
    }

    /// The rows of the others at the run's `end`: those whose answer was not due before are neither back nor
    /// lost, and have none.
    pub(crate) fn settled_by(&mut self, end: Instant) -> Vec<ProbeRow> {
        let left = std::mem::take(&mut self.in_transit);
        let due = |packet: &Sent| {
            matches!(packet.outcome, Outcome::Back(_)) || packet.at + self.longest_rtt < end
        };
        let settled: Vec<Sent> = left.into_iter().filter(due).collect();
        settled.into_iter().map(|packet| self.row(packet)).collect()
    }

    fn packet(&mut self, seq: u64) -> Option<&mut Sent> {
        self.in_transit.get_mut(seq.checked_sub(self.first)? as usize)
    }

    fn row(&mut self, packet: Sent) -> ProbeRow {
        let rtt_ns = match packet.outcome {
            Outcome::Back(back) => Some(back.saturating_since(packet.at).as_nanos() as i64),
            Outcome::Open | Outcome::Lost => None,
        };
        self.rows += 1;
        ProbeRow {
            probe: self.id as i32,
            seq: self.rows - 1,
            t_ns: packet.at.as_nanos() as i64,
            rtt_ns,
            // There is no machine in between: what was scheduled is what came.
            scheduled_rtt_ns: rtt_ns,
        }
    }
}
