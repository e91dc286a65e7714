//! Bulk transfer in one direction, as fast as TCP carries it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use skyhop_units::{Bytes, Instant, Rate};

use crate::{Action, AppKind, Application, Event, FlowFacts};

/// Sends as fast as TCP carries it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Bulk {
    /// Size of the transfer, whose completion time is reported. Default: no limit; the transfer
    /// lasts until the flow's stop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<Bytes>,
    /// Rate at which the receiving end reads. Default: no limit; data is read on arrival.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_rate: Option<Rate>,
}

impl AppKind for Bulk {
    fn client(&self, _flow: &FlowFacts) -> Box<dyn Application> {
        Box::new(Source { bytes: self.bytes, next: Step::Connect })
    }

    fn server(&self, _flow: &FlowFacts, _connection: u32) -> Box<dyn Application> {
        Box::new(Sink { expected: self.bytes, received: Bytes::ZERO, completed: None })
    }

    fn read_rate(&self) -> Option<Rate> {
        self.read_rate
    }

    fn bytes(&self) -> Option<Bytes> {
        self.bytes
    }
}

/// Client end, which sends the data.
#[derive(Debug)]
struct Source {
    bytes: Option<Bytes>,
    next: Step,
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Connect,
    Connecting,
    Write,
    Finish,
    Done,
}

impl Application for Source {
    fn on_event(&mut self, _now: Instant, event: Event) {
        match (self.next, event) {
            (Step::Connecting, Event::Connected) => self.next = Step::Write,
            // No data has been sent that could be lost, so that the client connects again.
            (Step::Connecting, Event::Lost) => self.next = Step::Connect,
            _ => {}
        }
    }

    fn poll(&mut self, _now: Instant) -> Action {
        let (action, next) = match self.next {
            Step::Connect => (Action::Connect, Step::Connecting),
            Step::Write => match self.bytes {
                Some(bytes) => (Action::Write(bytes), Step::Finish),
                None => (Action::WriteWithoutEnd, Step::Done),
            },
            Step::Finish => (Action::Finish, Step::Done),
            waiting @ (Step::Connecting | Step::Done) => (Action::Wait(Instant::NEVER), waiting),
        };
        self.next = next;
        action
    }
}

/// Server end, which receives the data.
#[derive(Debug)]
struct Sink {
    expected: Option<Bytes>,
    received: Bytes,
    completed: Option<Instant>,
}

impl Application for Sink {
    fn on_event(&mut self, now: Instant, event: Event) {
        if let Event::Received(bytes) = event {
            self.received += bytes;
            if self.expected.is_some_and(|expected| self.received >= expected) {
                self.completed.get_or_insert(now);
            }
        }
    }

    fn poll(&mut self, _now: Instant) -> Action {
        Action::Wait(Instant::NEVER)
    }

    fn low_water(&self) -> Bytes {
        match self.expected {
            Some(expected) if self.received < expected => expected - self.received,
            _ => Bytes::new(u64::MAX),
        }
    }

    fn completed(&self) -> Option<Instant> {
        self.completed
    }
}
