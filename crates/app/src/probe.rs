//! Probe: datagrams at regular intervals that the other end echoes, to measure delay and loss of the path.

use std::collections::VecDeque;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use skyhop_units::{Bytes, Duration, Instant};

use crate::{
    Action, AppKind, Application, DATAGRAM_SIZES, Datagram, Detail, Event, FlowFacts, Side,
    Transaction, Transport,
};

/// Shortest interval between packets; a probe is not a load generator.
const SHORTEST_INTERVAL: Duration = Duration::from_micros(100);

/// Keys of `[[flow]]` with kind = "probe": UDP packets that the other end echoes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Probe {
    /// Interval between packets; at least 100 us.
    pub interval: Duration,
    /// Size of a packet's UDP payload, 16 B to 1472 B.
    pub size: Bytes,
}

impl Default for Probe {
    fn default() -> Self {
        Self { interval: Duration::from_millis(10), size: Bytes::new(64) }
    }
}

impl AppKind for Probe {
    fn transport(&self) -> Transport {
        Transport::Datagrams
    }

    fn client(&self, flow: &FlowFacts) -> Box<dyn Application> {
        Box::new(Prober {
            probe: self.clone(),
            next: flow.start,
            stop: flow.stop,
            in_transit: VecDeque::new(),
            first: 0,
            settled: 0,
            longest_rtt: Duration::ZERO,
        })
    }

    fn server(&self, _flow: &FlowFacts, _connection: u32) -> Box<dyn Application> {
        Box::new(Echo::default())
    }

    fn messages_per_s(&self) -> Option<f64> {
        Some(1.0 / self.interval.as_secs_f64())
    }

    fn check(&self) -> Result<(), (&'static str, String)> {
        if self.interval < SHORTEST_INTERVAL {
            let what = format!("is {}; expected at least {SHORTEST_INTERVAL}", self.interval);
            return Err(("interval", what));
        }
        if !DATAGRAM_SIZES.contains(&self.size) {
            let (least, most) = (DATAGRAM_SIZES.start(), DATAGRAM_SIZES.end());
            return Err(("size", format!("is {}; expected {least} to {most}", self.size)));
        }
        Ok(())
    }
}

/// Client end, which sends packets and reports their outcome in the order of sending.
#[derive(Debug)]
struct Prober {
    probe: Probe,
    /// Time at which the next packet is due.
    next: Instant,
    stop: Instant,
    /// Packets with the numbers from `first` on; earlier packets have been reported.
    in_transit: VecDeque<Sent>,
    first: u64,
    /// Number of packets reported so far.
    settled: u64,
    /// Longest round trip so far. A packet whose age is less than this may still return.
    longest_rtt: Duration,
}

/// Packet that was sent.
#[derive(Debug, Clone, Copy)]
struct Sent {
    at: Instant,
    outcome: Outcome,
}

#[derive(Debug, Clone, Copy)]
enum Outcome {
    Pending,
    Returned(Instant),
    Lost,
}

impl Application for Prober {
    fn on_event(&mut self, now: Instant, event: Event) {
        let Event::Datagram(Datagram { number, .. }) = event else { return };
        // A duplicate echo is ignored, as the packet is no longer pending.
        if let Some(packet) = self.pending(number) {
            packet.outcome = Outcome::Returned(now);
            let rtt = now.saturating_since(packet.at);
            self.longest_rtt = self.longest_rtt.max(rtt);
        }
    }

    fn on_known_loss(&mut self, _sender: Side, number: u64) {
        if let Some(packet) = self.pending(number) {
            packet.outcome = Outcome::Lost;
        }
    }

    fn poll(&mut self, now: Instant) -> Action {
        if self.next >= self.stop {
            return Action::Wait(Instant::NEVER);
        }
        if self.next > now {
            return Action::Wait(self.next);
        }
        // After a stall of the host, the packets that were missed are not sent late, in a burst.
        let missed = now.saturating_since(self.next).as_nanos() / self.probe.interval.as_nanos();
        self.next += self.probe.interval * (missed + 1);
        self.in_transit.push_back(Sent { at: now, outcome: Outcome::Pending });
        let number = self.first + self.in_transit.len() as u64 - 1;
        Action::Send(Datagram { number, size: self.probe.size })
    }

    fn take_results(&mut self, now: Instant) -> Vec<Transaction> {
        let is_settled = |packet: &Sent| match packet.outcome {
            Outcome::Pending => false,
            Outcome::Returned(_) => true,
            // A lost packet is reported only when it could have returned: if the run ends before, the
            // packet does not count.
            Outcome::Lost => packet.at + self.longest_rtt < now,
        };
        let settled = self.in_transit.iter().take_while(|packet| is_settled(packet)).count();
        self.first += settled as u64;
        let settled: Vec<Sent> = self.in_transit.drain(..settled).collect();
        settled.into_iter().map(|packet| self.result(packet)).collect()
    }

    /// Report the remaining packets. Packets whose echo could not have returned before the end count
    /// neither as returned nor as lost.
    fn conclude(&mut self, end: Instant) -> Vec<Transaction> {
        let is_due = |packet: &Sent| {
            matches!(packet.outcome, Outcome::Returned(_)) || packet.at + self.longest_rtt < end
        };
        let (settled, _): (Vec<_>, Vec<_>) = self.in_transit.drain(..).partition(is_due);
        settled.into_iter().map(|packet| self.result(packet)).collect()
    }
}

impl Prober {
    /// Find a packet whose outcome is not known yet.
    fn pending(&mut self, number: u64) -> Option<&mut Sent> {
        let packet = self.in_transit.get_mut(number.checked_sub(self.first)? as usize)?;
        matches!(packet.outcome, Outcome::Pending).then_some(packet)
    }

    fn result(&mut self, packet: Sent) -> Transaction {
        let rtt = match packet.outcome {
            Outcome::Returned(back) => Some(back.saturating_since(packet.at)),
            Outcome::Pending | Outcome::Lost => None,
        };
        self.settled += 1;
        Transaction {
            connection: 0,
            number: self.settled - 1,
            due: packet.at,
            sent: self.probe.size,
            answered: rtt.map_or(Bytes::ZERO, |_| self.probe.size),
            connect: None,
            first_byte: rtt,
            took: rtt,
            detail: Detail::None,
        }
    }
}

/// Server end, which echoes packets.
#[derive(Debug, Default)]
struct Echo {
    waiting: VecDeque<Datagram>,
}

impl Application for Echo {
    fn on_event(&mut self, _now: Instant, event: Event) {
        if let Event::Datagram(datagram) = event {
            self.waiting.push_back(datagram);
        }
    }

    fn poll(&mut self, _now: Instant) -> Action {
        self.waiting.pop_front().map_or(Action::Wait(Instant::NEVER), Action::Send)
    }
}
