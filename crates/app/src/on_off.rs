//! On-off traffic: alternating bursts and pauses, as background for a measured flow.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use skyhop_model::{AppTable, MSS};
use skyhop_units::{Bytes, Duration, Instant, Rate};

use crate::{Action, AppKind, Application, Detail, Draw, Event, FlowFacts, Transaction};

/// Sends bursts that alternate with pauses.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OnOff {
    /// Length of a burst: a duration above 0 s, or a table with its distribution.
    pub on: Draw<Duration>,
    /// Length of the pause after a burst: a duration, or a table with its distribution.
    pub off: Draw<Duration>,
    /// Sending rate during a burst; above 0. Default: as fast as TCP carries it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// Bytes per write if `rate` is given; above 0 B.
    #[serde(default = "default_size")]
    pub size: Bytes,
}

fn default_size() -> Bytes {
    Bytes::new(MSS as u64)
}

impl AppKind for OnOff {
    fn client(&self, flow: &FlowFacts) -> Box<dyn Application> {
        let mut bursts = Bursts::new(self, flow);
        Box::new(Source {
            pace: self.rate.map(|rate| (rate.transmit_time(self.size), self.size)),
            burst: bursts.next(),
            bursts,
            stop: flow.stop,
            state: State::Unconnected,
        })
    }

    fn server(&self, flow: &FlowFacts, connection: u32) -> Box<dyn Application> {
        let mut bursts = Bursts::new(self, flow);
        Box::new(Sink {
            burst: bursts.next(),
            bursts,
            connection,
            received: Bytes::ZERO,
            last: None,
            results: Vec::new(),
        })
    }

    fn check(&self) -> Result<(), (&'static str, String)> {
        if self.on.least() == Duration::ZERO && self.on == Draw::Fixed(Duration::ZERO) {
            return Err(("on", "must be above 0 s".to_owned()));
        }
        if self.size == Bytes::ZERO {
            return Err(("size", "must be above 0 B".to_owned()));
        }
        if self.rate == Some(Rate::ZERO) {
            return Err(("rate", "must be above 0".to_owned()));
        }
        Ok(())
    }

    fn table(&self) -> Option<AppTable> {
        Some(AppTable::Bursts)
    }
}

/// Generator of the times of bursts, which are drawn from the seed and therefore the same at both ends.
#[derive(Debug)]
struct Bursts {
    on: Draw<Duration>,
    off: Draw<Duration>,
    rng: ChaCha8Rng,
    next: Instant,
    number: u64,
}

/// One burst: a period of sending.
#[derive(Debug, Clone, Copy)]
struct Burst {
    number: u64,
    from: Instant,
    until: Instant,
    /// Start of the next burst.
    next: Instant,
}

impl Bursts {
    fn new(config: &OnOff, flow: &FlowFacts) -> Self {
        let rng = ChaCha8Rng::seed_from_u64(flow.seed);
        Self { on: config.on, off: config.off, rng, next: flow.start, number: 0 }
    }

    fn next(&mut self) -> Burst {
        let from = self.next;
        // Draws may round to 0 s, and time must advance.
        let until = from + self.on.next(&mut self.rng).max(Duration::from_nanos(1));
        self.next = until + self.off.next(&mut self.rng);
        self.number += 1;
        Burst { number: self.number - 1, from, until, next: self.next }
    }
}

#[derive(Debug, Clone, Copy)]
enum State {
    Unconnected,
    Connecting,
    Pausing,
    /// A burst is being sent; the value is the time of the next write if there is a rate.
    Sending(Instant),
    Lost,
}

/// Client end, which sends the bursts.
#[derive(Debug)]
struct Source {
    /// Interval between writes, and their size; `None` without a rate.
    pace: Option<(Duration, Bytes)>,
    bursts: Bursts,
    burst: Burst,
    stop: Instant,
    state: State,
}

impl Application for Source {
    fn on_event(&mut self, _now: Instant, event: Event) {
        self.state = match (self.state, event) {
            (State::Connecting, Event::Connected) => State::Pausing,
            (State::Connecting, Event::Lost) => State::Unconnected,
            (_, Event::Lost) => State::Lost,
            (as_before, _) => as_before,
        };
    }

    fn poll(&mut self, now: Instant) -> Action {
        match self.state {
            State::Unconnected => {
                self.state = State::Connecting;
                Action::Connect
            }
            State::Connecting | State::Lost => Action::Wait(Instant::NEVER),
            State::Pausing => self.begin(now),
            State::Sending(next) => self.continue_burst(now, next),
        }
    }
}

impl Source {
    /// Start the current burst when it is due; bursts that are already over are skipped.
    fn begin(&mut self, now: Instant) -> Action {
        while self.burst.until <= now {
            self.burst = self.bursts.next();
        }
        if self.burst.from >= self.stop {
            return Action::Wait(Instant::NEVER);
        }
        if self.burst.from > now {
            return Action::Wait(self.burst.from);
        }
        self.state = State::Sending(self.burst.from);
        match self.pace {
            Some(_) => self.continue_burst(now, self.burst.from),
            None => Action::WriteWithoutEnd,
        }
    }

    fn continue_burst(&mut self, now: Instant, next: Instant) -> Action {
        match self.pace {
            None if now >= self.burst.until => {
                self.state = State::Pausing;
                Action::Pause
            }
            None => Action::Wait(self.burst.until),
            // A write that is due within the burst belongs to the burst even if it is late.
            Some(_) if next >= self.burst.until => {
                self.state = State::Pausing;
                self.burst = self.bursts.next();
                self.begin(now)
            }
            Some(_) if next > now => Action::Wait(next),
            Some((interval, size)) => {
                self.state = State::Sending(next + interval);
                Action::Write(size)
            }
        }
    }
}

/// Server end, which receives. Bytes that arrive before the next burst starts belong to the last burst.
#[derive(Debug)]
struct Sink {
    bursts: Bursts,
    burst: Burst,
    connection: u32,
    received: Bytes,
    last: Option<Instant>,
    results: Vec<Transaction>,
}

impl Sink {
    fn catch_up(&mut self, now: Instant) {
        while self.burst.next <= now {
            let due = self.burst.from;
            self.results.push(Transaction {
                connection: self.connection,
                number: self.burst.number,
                due,
                sent: self.received,
                answered: Bytes::ZERO,
                connect: None,
                first_byte: None,
                took: self.last.map(|last| last.saturating_since(due)),
                detail: Detail::None,
            });
            (self.received, self.last) = (Bytes::ZERO, None);
            self.burst = self.bursts.next();
        }
    }
}

impl Application for Sink {
    fn on_event(&mut self, now: Instant, event: Event) {
        self.catch_up(now);
        if let Event::Received(bytes) = event {
            self.received += bytes;
            self.last = Some(now);
        }
    }

    fn poll(&mut self, now: Instant) -> Action {
        self.catch_up(now);
        Action::Wait(self.burst.next)
    }

    fn take_results(&mut self, _now: Instant) -> Vec<Transaction> {
        std::mem::take(&mut self.results)
    }
}
