//! Requests and their answers, one after the other, over one connection or a series of connections.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use skyhop_model::AppTable;
use skyhop_units::{Bytes, Duration, Instant, Rate};

use crate::{Action, AppKind, Application, Detail, Draw, Event, FlowFacts, Side, Transaction};

/// Shortest pause between a failed request and the next one.
const RETRY: Duration = Duration::from_millis(100);

/// Alternating requests and answers: the client sends a request, waits for the answer, thinks, and
/// sends the next request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RequestResponse {
    /// Size of a request: a size above 0 B, or a table with its distribution.
    #[serde(default = "default_request")]
    pub request: Draw<Bytes>,
    /// Size of an answer: a size above 0 B, or a table with its distribution.
    pub response: Draw<Bytes>,
    /// Think time of the client from an answer to the next request: a duration, or a table with its
    /// distribution.
    #[serde(default = "no_time")]
    pub think: Draw<Duration>,
    /// Service time of the server from a request to its answer: a duration, or a table with its distribution.
    #[serde(default = "no_time")]
    pub service: Draw<Duration>,
    /// Number of requests per connection, at least 1, after which a new connection is opened.
    /// Default: all requests use one connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_connection: Option<u32>,
    /// Number of requests. Default: no limit; requests are sent until the flow's stop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<u64>,
    /// Time after which an incomplete request has failed, and its connection is dropped; above 0 s.
    #[serde(default = "default_timeout")]
    pub timeout: Duration,
    /// Rate at which the client reads answers. Default: no limit; answers are read on arrival.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_rate: Option<Rate>,
}

fn default_request() -> Draw<Bytes> {
    Draw::Fixed(Bytes::new(300))
}

fn no_time() -> Draw<Duration> {
    Draw::Fixed(Duration::ZERO)
}

fn default_timeout() -> Duration {
    Duration::from_secs(30)
}

impl AppKind for RequestResponse {
    fn client(&self, flow: &FlowFacts) -> Box<dyn Application> {
        Box::new(Client {
            config: self.clone(),
            seed: flow.seed,
            stop: flow.stop,
            state: State::Thinking { until: flow.start },
            connection: None,
            connections: 0,
            number: 0,
            results: Vec::new(),
        })
    }

    fn server(&self, flow: &FlowFacts, connection: u32) -> Box<dyn Application> {
        let mut exchanges = Exchanges::new(self, flow.seed, connection);
        Box::new(Server {
            exchange: exchanges.next(),
            exchanges,
            received: Bytes::ZERO,
            answers_at: None,
            finishing: false,
        })
    }

    fn check(&self) -> Result<(), (&'static str, String)> {
        let empty = "must be above 0 B".to_owned();
        if self.request == Draw::Fixed(Bytes::ZERO) {
            return Err(("request", empty));
        }
        if self.response == Draw::Fixed(Bytes::ZERO) {
            return Err(("response", empty));
        }
        if self.per_connection == Some(0) {
            return Err(("per_connection", "must be at least 1".to_owned()));
        }
        if self.timeout == Duration::ZERO {
            return Err(("timeout", "must be above 0 s".to_owned()));
        }
        Ok(())
    }

    fn sends(&self) -> Side {
        Side::Server
    }

    fn read_rate(&self) -> Option<Rate> {
        self.read_rate
    }

    fn table(&self) -> Option<AppTable> {
        Some(AppTable::Requests)
    }
}

/// Sizes and times of a request and its answer.
#[derive(Debug, Clone, Copy)]
struct Exchange {
    request: Bytes,
    response: Bytes,
    think: Duration,
    service: Duration,
}

/// Generator of the exchanges of one connection; both ends of the connection draw the same values.
#[derive(Debug)]
struct Exchanges {
    config: RequestResponse,
    rng: ChaCha8Rng,
}

impl Exchanges {
    fn new(config: &RequestResponse, seed: u64, connection: u32) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(connection.into());
        Self { config: config.clone(), rng }
    }

    fn next(&mut self) -> Exchange {
        let (config, rng) = (&self.config, &mut self.rng);
        // A draw may round to 0 B, and a request or answer of 0 B would never be complete.
        let one = Bytes::new(1);
        Exchange {
            request: config.request.next(rng).max(one),
            response: config.response.next(rng).max(one),
            think: config.think.next(rng),
            service: config.service.next(rng),
        }
    }
}

/// Client end, which sends requests.
#[derive(Debug)]
struct Client {
    config: RequestResponse,
    seed: u64,
    stop: Instant,
    state: State,
    connection: Option<Connection>,
    /// Number of connections opened so far.
    connections: u32,
    /// Number of the next request.
    number: u64,
    results: Vec<Transaction>,
}

#[derive(Debug)]
struct Connection {
    exchanges: Exchanges,
    /// Number of requests that the connection may still carry.
    left: u32,
}

#[derive(Debug, Clone, Copy)]
enum State {
    /// Think time between requests.
    Thinking {
        until: Instant,
    },
    /// A request is due and waits for its connection.
    Connecting {
        due: Instant,
    },
    /// A request is to be written.
    Asking {
        due: Instant,
        connect: Option<Duration>,
    },
    /// A request is written, and the client waits for the answer.
    Waiting(Pending),
    /// The connection is to be aborted; the next request is due at `until`.
    Dropping {
        until: Instant,
    },
    /// The connection has carried its last request and is to be closed; the next request is due at `until`.
    Closing {
        until: Instant,
    },
    Done,
}

/// Request that awaits its answer.
#[derive(Debug, Clone, Copy)]
struct Pending {
    due: Instant,
    connect: Option<Duration>,
    exchange: Exchange,
    received: Bytes,
    first_byte: Option<Duration>,
}

impl Application for Client {
    fn on_event(&mut self, now: Instant, event: Event) {
        match (self.state, event) {
            (State::Connecting { due }, Event::Connected) => {
                self.state = State::Asking { due, connect: Some(now.saturating_since(due)) };
            }
            (State::Waiting(mut pending), Event::Received(bytes)) => {
                pending.received += bytes;
                pending.first_byte.get_or_insert(now.saturating_since(pending.due));
                self.state = State::Waiting(pending);
                if pending.received >= pending.exchange.response {
                    self.succeed(now, pending);
                }
            }
            (_, Event::Lost) => {
                let until = self.fail(now);
                self.state = State::Thinking { until };
            }
            _ => {}
        }
    }

    fn poll(&mut self, now: Instant) -> Action {
        match self.state {
            State::Thinking { until } if now < until => Action::Wait(until),
            State::Thinking { until } => self.begin(until),
            State::Asking { due, connect } => self.ask(due, connect),
            State::Connecting { due } => self.wait_or_fail(now, due),
            State::Waiting(pending) => self.wait_or_fail(now, pending.due),
            State::Dropping { until } => {
                self.state = State::Thinking { until };
                Action::Abort
            }
            State::Closing { until } => {
                self.connection = None;
                self.state = State::Thinking { until };
                Action::Finish
            }
            State::Done => Action::Wait(Instant::NEVER),
        }
    }

    fn take_results(&mut self, _now: Instant) -> Vec<Transaction> {
        std::mem::take(&mut self.results)
    }
}

impl Client {
    /// Start the request that is due at `due`, over the open connection or a new one.
    fn begin(&mut self, due: Instant) -> Action {
        let is_enough = self.config.requests.is_some_and(|requests| self.number >= requests);
        if due >= self.stop || is_enough {
            self.state = match self.connection {
                Some(_) => State::Closing { until: due },
                None => State::Done,
            };
            return self.poll(due);
        }
        if self.connection.is_some() {
            self.state = State::Asking { due, connect: None };
            return self.poll(due);
        }
        let number = self.connections;
        self.connections += 1;
        let exchanges = Exchanges::new(&self.config, self.seed, number);
        let left = self.config.per_connection.unwrap_or(u32::MAX);
        self.connection = Some(Connection { exchanges, left });
        self.state = State::Connecting { due };
        Action::Connect
    }

    fn ask(&mut self, due: Instant, connect: Option<Duration>) -> Action {
        let Some(connection) = &mut self.connection else {
            self.state = State::Done;
            return Action::Wait(Instant::NEVER);
        };
        connection.left -= 1;
        let exchange = connection.exchanges.next();
        let (received, first_byte) = (Bytes::ZERO, None);
        self.state = State::Waiting(Pending { due, connect, exchange, received, first_byte });
        Action::Write(exchange.request)
    }

    fn wait_or_fail(&mut self, now: Instant, due: Instant) -> Action {
        let timeout = due + self.config.timeout;
        if now < timeout {
            return Action::Wait(timeout);
        }
        let until = self.fail(now);
        self.state = State::Dropping { until };
        self.poll(now)
    }

    /// Record the due or outstanding request as failed, and give up its connection; return the time at
    /// which the next request is due.
    fn fail(&mut self, now: Instant) -> Instant {
        self.connection = None;
        let (pending, think) = match self.state {
            State::Waiting(pending) => (pending, pending.exchange.think),
            State::Connecting { due } => (Pending::unsent(due, None), Duration::ZERO),
            State::Asking { due, connect } => (Pending::unsent(due, connect), Duration::ZERO),
            State::Thinking { until } | State::Dropping { until } | State::Closing { until } => {
                return until;
            }
            State::Done => return Instant::NEVER,
        };
        self.record(pending, None);
        now + think.max(RETRY)
    }

    fn succeed(&mut self, now: Instant, pending: Pending) {
        self.record(pending, Some(now.saturating_since(pending.due)));
        let until = now + pending.exchange.think;
        let is_used_up = self.connection.as_ref().is_none_or(|connection| connection.left == 0);
        self.state = if is_used_up { State::Closing { until } } else { State::Thinking { until } };
    }

    fn record(&mut self, pending: Pending, took: Option<Duration>) {
        self.results.push(Transaction {
            connection: self.connections - 1,
            number: self.number,
            due: pending.due,
            sent: pending.exchange.request,
            answered: pending.received,
            connect: pending.connect,
            first_byte: pending.first_byte,
            took,
            detail: Detail::None,
        });
        self.number += 1;
    }
}

impl Pending {
    /// Create the record of a request that was never written, because its connection failed.
    fn unsent(due: Instant, connect: Option<Duration>) -> Self {
        let (nothing, at_once) = (Bytes::ZERO, Duration::ZERO);
        Self {
            due,
            connect,
            exchange: Exchange {
                request: nothing,
                response: nothing,
                think: at_once,
                service: at_once,
            },
            received: nothing,
            first_byte: None,
        }
    }
}

/// Server end, which answers requests.
#[derive(Debug)]
struct Server {
    exchanges: Exchanges,
    exchange: Exchange,
    /// Bytes of the incoming request received so far.
    received: Bytes,
    answers_at: Option<Instant>,
    finishing: bool,
}

impl Application for Server {
    fn on_event(&mut self, now: Instant, event: Event) {
        match event {
            Event::Received(bytes) => {
                self.received += bytes;
                if self.received >= self.exchange.request && self.answers_at.is_none() {
                    self.answers_at = Some(now + self.exchange.service);
                }
            }
            Event::PeerFinished => self.finishing = true,
            Event::Connected | Event::Lost | Event::Datagram(_) => {}
        }
    }

    fn poll(&mut self, now: Instant) -> Action {
        match self.answers_at {
            Some(at) if now < at => Action::Wait(at),
            Some(_) => {
                self.answers_at = None;
                let answered = self.exchange;
                self.exchange = self.exchanges.next();
                self.received = Bytes::ZERO;
                Action::Write(answered.response)
            }
            None if self.finishing => {
                self.finishing = false;
                Action::Finish
            }
            None => Action::Wait(Instant::NEVER),
        }
    }
}
