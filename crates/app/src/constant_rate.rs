//! Messages of one size at regular intervals; measures the time until each message has been read at
//! the other end.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use skyhop_model::AppTable;
use skyhop_units::{Bytes, Duration, Instant, Rate};

use crate::{Action, AppKind, Application, Detail, Event, FlowFacts, Transaction};

/// Sends messages of one size at regular intervals.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConstantRate {
    /// Sending rate of the payload; above 0.
    pub rate: Rate,
    /// Size of a message; at least 1 B.
    #[serde(default = "default_size")]
    pub size: Bytes,
}

fn default_size() -> Bytes {
    Bytes::new(1000)
}

impl ConstantRate {
    fn interval(&self) -> Duration {
        self.rate.transmit_time(self.size)
    }
}

impl AppKind for ConstantRate {
    fn client(&self, flow: &FlowFacts) -> Box<dyn Application> {
        Box::new(Source {
            schedule: MessageSchedule { start: flow.start, interval: self.interval() },
            size: self.size,
            stop: flow.stop,
            written: 0,
            connection: Connection::None,
        })
    }

    fn server(&self, flow: &FlowFacts, connection: u32) -> Box<dyn Application> {
        Box::new(Sink {
            schedule: MessageSchedule { start: flow.start, interval: self.interval() },
            size: self.size,
            connection,
            received: Bytes::ZERO,
            results: Vec::new(),
        })
    }

    fn check(&self) -> Result<(), (&'static str, String)> {
        if self.size == Bytes::ZERO {
            return Err(("size", "a message has at least 1 B".to_owned()));
        }
        if self.rate == Rate::ZERO {
            return Err(("rate", "must be above 0".to_owned()));
        }
        Ok(())
    }

    fn messages_per_s(&self) -> Option<f64> {
        Some(self.rate.bits_per_second() as f64 / 8.0 / self.size.as_u64() as f64)
    }

    fn table(&self) -> Option<AppTable> {
        Some(AppTable::Messages)
    }
}

/// Due times of the messages.
#[derive(Debug, Clone, Copy)]
struct MessageSchedule {
    start: Instant,
    interval: Duration,
}

impl MessageSchedule {
    fn due(&self, number: u64) -> Instant {
        self.start + self.interval * number
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Connection {
    None,
    Opening,
    Open,
    Lost,
}

/// Client end, which sends the messages.
#[derive(Debug)]
struct Source {
    schedule: MessageSchedule,
    size: Bytes,
    stop: Instant,
    written: u64,
    connection: Connection,
}

impl Application for Source {
    fn on_event(&mut self, _now: Instant, event: Event) {
        self.connection = match (self.connection, event) {
            (Connection::Opening, Event::Connected) => Connection::Open,
            (Connection::Opening, Event::Lost) => Connection::None,
            // The messages in the connection are lost. The flow does not open a new connection,
            // because its ends could not tell which messages were lost.
            (_, Event::Lost) => Connection::Lost,
            (as_before, _) => as_before,
        };
    }

    fn poll(&mut self, now: Instant) -> Action {
        match self.connection {
            Connection::None => {
                self.connection = Connection::Opening;
                return Action::Connect;
            }
            Connection::Opening | Connection::Lost => return Action::Wait(Instant::NEVER),
            Connection::Open => {}
        }
        let due = self.schedule.due(self.written);
        if due >= self.stop {
            return Action::Wait(Instant::NEVER);
        }
        if due > now {
            return Action::Wait(due);
        }
        self.written += 1;
        Action::Write(self.size)
    }
}

/// Server end, which receives the messages.
#[derive(Debug)]
struct Sink {
    schedule: MessageSchedule,
    size: Bytes,
    connection: u32,
    received: Bytes,
    results: Vec<Transaction>,
}

impl Application for Sink {
    fn on_event(&mut self, now: Instant, event: Event) {
        let Event::Received(bytes) = event else { return };
        let before = self.received.as_u64() / self.size.as_u64();
        self.received += bytes;
        for number in before..self.received.as_u64() / self.size.as_u64() {
            let due = self.schedule.due(number);
            self.results.push(Transaction {
                connection: self.connection,
                number,
                due,
                sent: self.size,
                answered: Bytes::ZERO,
                connect: None,
                first_byte: None,
                took: Some(now.saturating_since(due)),
                detail: Detail::None,
            });
        }
    }

    fn poll(&mut self, _now: Instant) -> Action {
        Action::Wait(Instant::NEVER)
    }

    fn take_results(&mut self, _now: Instant) -> Vec<Transaction> {
        std::mem::take(&mut self.results)
    }
}
