//! Adaptive video over TCP (DASH): the client is a player, which asks for one chunk of a film after the other in the track that its
//! controller chooses; the server answers with so many bytes.

mod orders;
mod predicted;

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use skyhop_model::{AppTable, PlayerCompat};
use skyhop_units::{Bytes, Duration, Instant, Rate};
use skyhop_video::chunk::score;
use skyhop_video::controllers::ControllerChoice;
use skyhop_video::qoe::Qoe;
use skyhop_video::session::{Playing, Request, Session, Step};
use skyhop_video::{ChunkRow, Film, Summary};

use self::orders::{Order, Orders};
pub use self::predicted::{Foretold, Oracle, Predicted};
use crate::{Action, Application, Detail, Event, FlowFacts, Kind, Side, Transaction};

/// After a failure the chunk is asked for again so much later.
const RETRY: Duration = Duration::from_millis(100);
/// Who may give up chunks wants to see them come in pieces of this.
const SEEN: u64 = 16_384;

/// See the [module](self).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Dash {
    /// Another player's habits.
    #[serde(default)]
    pub compat: PlayerCompat,
    /// What is played: the name of a film that comes with skyhop, a film in TOML, a DASH manifest (.mpd), or a directory of
    /// Pensieve's lists of sizes.
    #[serde(default = "default_film")]
    pub film: String,
    /// The bitrate of the film's highest track; all others and all sizes scale with it. The film's own where not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top: Option<Rate>,
    /// What chooses tracks: its name, or a table with `kind` and parameters.
    #[serde(default)]
    pub controller: ControllerChoice,
    /// What the controller wants, and what the session is worth.
    #[serde(default = "default_qoe")]
    pub qoe: String,
    /// The first chunk's track, counted from 0; the highest where there are fewer.
    #[serde(default = "default_start_track")]
    pub start_track: u32,
    /// Above so much in its buffer the player waits before it asks for more.
    #[serde(default = "default_buffer_cap")]
    pub buffer_cap: Duration,
    /// It waits in whole steps of this; exactly as long as it has to where this is 0 s, as it is but for compat's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_step: Option<Duration>,
    /// Whether it gives up chunks that come too slowly, for a lower track (dash.js's AbandonRequestsRule).
    #[serde(default)]
    pub abandon: bool,
    /// For mpc-l and mpc-o, what they are told of the rate ahead: a model of `skyhop predict train`, an oracle, or the rates of the
    /// session's seconds.
    #[serde(default, skip_serializing_if = "Predicted::is_nobody")]
    pub predicted: Predicted,
    /// The size of a request.
    #[serde(default = "default_request")]
    pub request: Bytes,
    /// After how long a request has failed, and its connection is dropped.
    #[serde(default = "default_timeout")]
    pub timeout: Duration,
    /// The film, where it is not one that comes with skyhop: whoever reads files has put it here.
    #[serde(skip)]
    read: Option<Arc<Film>>,
    /// What a model or an oracle knows: whoever builds the run has put it here.
    #[serde(skip)]
    pub foretold: Option<Foretold>,
    /// What requests say, which have no content here.
    #[serde(skip)]
    orders: Orders,
}

fn default_film() -> String {
    "pensieve".to_owned()
}

fn default_qoe() -> String {
    "pensieve-linear".to_owned()
}

const fn default_start_track() -> u32 {
    1
}

fn default_buffer_cap() -> Duration {
    Playing::default().buffer_cap
}

fn default_request() -> Bytes {
    Bytes::new(300)
}

fn default_timeout() -> Duration {
    Duration::from_secs(30)
}

impl Dash {
    /// The same with this film, which is the one that `film` names.
    pub fn with_film(self, film: Film) -> Self {
        Self { read: Some(Arc::new(film)), ..self }
    }

    /// The same with a model that is at this place, which is the one that `predicted` names.
    pub fn with_model(self, place: String) -> Self {
        Self { predicted: Predicted::Model(place), ..self }
    }

    /// What is played.
    ///
    /// # Errors
    /// There is no such film, or it has no such top; the key and why.
    pub fn film(&self) -> Result<Arc<Film>, (&'static str, String)> {
        let film = match &self.read {
            Some(film) => film.clone(),
            None => {
                Arc::new(Film::shipped(&self.film).map_err(|error| ("film", error.to_string()))?)
            }
        };
        match self.top {
            Some(top) => {
                Ok(Arc::new(film.with_top(top).map_err(|error| ("top", error.to_string()))?))
            }
            None => Ok(film),
        }
    }

    /// What the film's chunks are worth.
    ///
    /// # Errors
    /// There is no such QoE, or it says nothing of such a film; the key and why.
    pub fn qoe(&self, film: &Film) -> Result<Qoe, (&'static str, String)> {
        Qoe::new(&self.qoe, film).map_err(|error| ("qoe", error.to_string()))
    }

    /// What a session amounts to, and what it is worth per chunk.
    pub fn summary(&self, rows: &[ChunkRow]) -> (Summary, Option<f64>) {
        let scored = self.film().ok().and_then(|film| {
            let qoe = self.qoe(&film).ok()?;
            Some(score(rows, &film, &qoe, self.compat == PlayerCompat::Pensieve))
        });
        (Summary::of(rows), scored)
    }

    /// What is wrong with the film, now that it is known, and with what depends on it.
    ///
    /// # Errors
    /// The key and why.
    pub fn check_film(&self) -> Result<(), (&'static str, String)> {
        let film = self.film()?;
        self.qoe(&film).map(|_| ())
    }

    fn check_predicted(&self) -> Result<(), (&'static str, String)> {
        if let Predicted::Oracle { oracle } = &self.predicted {
            oracle
                .errors()
                .check()
                .map_err(|(name, what)| ("predicted", format!("{name} {what}")))?;
        }
        if self.controller.looks_ahead() && self.predicted.is_nobody() {
            let name = self.controller.name();
            let what = format!(
                "{name} plans with predictions; expected `predicted`: a model's directory, {{ oracle = {{}} }}, or a list of \
                 rates, one per second"
            );
            return Err(("controller", what));
        }
        Ok(())
    }

    fn playing(&self) -> Playing {
        let Self { start_track, buffer_cap, abandon, .. } = *self;
        let wait_step = self.wait_step.unwrap_or(Playing::wait_step_of(self.compat));
        Playing { start_track, buffer_cap, wait_step, abandon }
    }

    fn session(&self, flow: &FlowFacts) -> Option<Session> {
        let film = self.film().ok()?;
        let qoe = Arc::new(self.qoe(&film).ok()?);
        let mut session =
            Session::new(film, qoe, &self.controller, self.playing(), flow.start, flow.seed);
        let foretold = self.foretold.as_ref();
        self.predicted.tell(&mut session, foretold, flow.start, flow.seed).ok()?;
        Some(session)
    }
}

impl Kind for Dash {
    fn client(&self, flow: &FlowFacts) -> Box<dyn Application> {
        Box::new(Client {
            session: self.session(flow),
            config: self.clone(),
            seed: flow.seed,
            stop: flow.stop,
            state: State::Playing,
            connections: 0,
            connection: None,
            results: Vec::new(),
        })
    }

    fn server(&self, flow: &FlowFacts, connection: u32) -> Box<dyn Application> {
        Box::new(Server {
            request: self.request,
            orders: self.orders.clone(),
            next: Order { seed: flow.seed, connection, number: 0 },
            received: Bytes::ZERO,
            is_finishing: false,
        })
    }

    fn check(&self) -> Result<(), (&'static str, String)> {
        self.playing().check()?;
        self.controller.check().map_err(|error| ("controller", error.to_string()))?;
        if self.request == Bytes::ZERO {
            return Err(("request", "must be above 0 B".to_owned()));
        }
        if self.timeout == Duration::ZERO {
            return Err(("timeout", "must be above 0 s".to_owned()));
        }
        self.check_predicted()
    }

    fn sends(&self) -> Side {
        Side::Server
    }

    fn table(&self) -> Option<AppTable> {
        Some(AppTable::Chunks)
    }
}

/// The player.
#[derive(Debug)]
struct Client {
    config: Dash,
    /// `None` where there is no film: it has been checked, so that this is not.
    session: Option<Session>,
    seed: u64,
    stop: Instant,
    state: State,
    connections: u32,
    connection: Option<Connection>,
    results: Vec<Transaction>,
}

/// The connection there is.
#[derive(Debug, Clone, Copy)]
struct Connection {
    number: u32,
    /// How many requests it has carried.
    requests: u32,
}

/// A chunk that is asked for.
#[derive(Debug, Clone, Copy)]
struct Pending {
    request: Request,
    due: Instant,
    connect: Option<Duration>,
    first_byte: Option<Duration>,
    received: u64,
}

#[derive(Debug, Clone, Copy)]
enum State {
    /// The player says what is done.
    Playing,
    /// A connection is being opened for a request.
    Connecting(Pending),
    /// There is one.
    Asking(Pending),
    /// A request is out.
    Waiting(Pending),
    /// A request has failed: its connection is dropped, and then nothing is done until then.
    Dropping {
        until: Instant,
    },
    Pausing {
        until: Instant,
    },
    Done,
}

impl Application for Client {
    fn on_event(&mut self, now: Instant, event: Event) {
        match (self.state, event) {
            (State::Connecting(mut pending), Event::Connected) => {
                pending.connect = Some(now.saturating_since(pending.due));
                self.state = State::Asking(pending);
            }
            (State::Waiting(pending), Event::Received(bytes)) => self.receive(now, pending, bytes),
            (_, Event::Lost) => {
                self.connection = None;
                if self.fail(now) {
                    self.state = State::Pausing { until: now + RETRY };
                }
            }
            _ => {}
        }
    }

    fn poll(&mut self, now: Instant) -> Action {
        match self.state {
            State::Playing if now >= self.stop => self.finish(),
            State::Playing => self.play(now),
            State::Connecting(pending) | State::Waiting(pending) => self.wait_or_fail(now, pending),
            State::Asking(pending) => self.ask(pending),
            State::Dropping { until } => {
                self.state = State::Pausing { until };
                Action::Abort
            }
            State::Pausing { until } if now < until => Action::Wait(until),
            State::Pausing { .. } => {
                self.state = State::Playing;
                self.poll(now)
            }
            State::Done => Action::Wait(Instant::NEVER),
        }
    }

    /// All that is missing; the first byte by itself, and pieces where a chunk may be given up.
    fn low_water(&self) -> Bytes {
        let State::Waiting(pending) = self.state else { return Bytes::new(1) };
        let left = pending.request.size_bytes - pending.received;
        Bytes::new(match pending.received {
            0 => 1,
            _ if self.config.abandon => left.min(SEEN),
            _ => left,
        })
    }

    fn take_results(&mut self, _now: Instant) -> Vec<Transaction> {
        std::mem::take(&mut self.results)
    }
}

impl Client {
    fn play(&mut self, now: Instant) -> Action {
        let Some(session) = &mut self.session else { return self.finish() };
        match session.poll(now) {
            Step::Ask(request) => {
                let (connect, first_byte) = (None, None);
                let pending = Pending { request, due: now, connect, first_byte, received: 0 };
                if self.connection.is_some() {
                    return self.ask(pending);
                }
                self.connection = Some(Connection { number: self.connections, requests: 0 });
                self.connections += 1;
                self.state = State::Connecting(pending);
                Action::Connect
            }
            Step::Wait(until) => Action::Wait(until.min(self.stop)),
            Step::Abandon => {
                self.connection = None;
                Action::Abort
            }
            Step::Done => self.finish(),
        }
    }

    fn finish(&mut self) -> Action {
        self.state = State::Done;
        match self.connection.take() {
            Some(_) => Action::Finish,
            None => Action::Wait(Instant::NEVER),
        }
    }

    fn ask(&mut self, pending: Pending) -> Action {
        let Some(connection) = &mut self.connection else { return self.finish() };
        let number = connection.requests;
        let order = Order { seed: self.seed, connection: connection.number, number };
        self.config.orders.place(order, Bytes::new(pending.request.size_bytes));
        connection.requests += 1;
        self.state = State::Waiting(pending);
        Action::Write(self.config.request)
    }

    fn receive(&mut self, now: Instant, mut pending: Pending, bytes: Bytes) {
        let Some(session) = &mut self.session else { return };
        pending.received += bytes.as_u64();
        pending.first_byte.get_or_insert(now.saturating_since(pending.due));
        session.on_bytes(now, bytes.as_u64());
        if pending.received >= pending.request.size_bytes {
            self.state = State::Playing;
            self.record(now, pending);
        } else {
            // A chunk that is given up is the player's next word.
            self.state =
                if session.is_waiting() { State::Waiting(pending) } else { State::Playing };
        }
    }

    fn record(&mut self, now: Instant, pending: Pending) {
        let row = self.session.as_ref().and_then(|session| session.rows().last());
        let (Some(row), Some(connection)) = (row, self.connection) else { return };
        self.results.push(Transaction {
            connection: connection.number,
            number: row.chunk.into(),
            due: pending.due,
            sent: self.config.request,
            answered: Bytes::new(pending.received),
            connect: pending.connect,
            first_byte: pending.first_byte,
            took: Some(now.saturating_since(pending.due)),
            detail: Detail::Chunk(*row),
        });
    }

    fn wait_or_fail(&mut self, now: Instant, pending: Pending) -> Action {
        let timeout = pending.due + self.config.timeout;
        if now < timeout {
            return Action::Wait(timeout);
        }
        self.connection = None;
        self.fail(now);
        self.state = State::Dropping { until: now + RETRY };
        self.poll(now)
    }

    /// What was asked for will not come; whether anything was.
    fn fail(&mut self, now: Instant) -> bool {
        let is_out =
            matches!(self.state, State::Connecting(_) | State::Asking(_) | State::Waiting(_));
        if let Some(session) = self.session.as_mut().filter(|_| is_out) {
            session.on_failed(now);
        }
        is_out
    }
}

/// The end that answers.
#[derive(Debug)]
struct Server {
    request: Bytes,
    orders: Orders,
    next: Order,
    /// Of the request that is coming in.
    received: Bytes,
    is_finishing: bool,
}

impl Application for Server {
    fn on_event(&mut self, _now: Instant, event: Event) {
        match event {
            Event::Received(bytes) => self.received += bytes,
            Event::PeerFinished => self.is_finishing = true,
            Event::Connected | Event::Lost | Event::Datagram(_) => {}
        }
    }

    fn poll(&mut self, _now: Instant) -> Action {
        if self.received >= self.request
            && let Some(size) = self.orders.of(self.next)
        {
            self.received -= self.request;
            self.next.number += 1;
            return Action::Write(size);
        }
        if self.is_finishing {
            self.is_finishing = false;
            return Action::Finish;
        }
        Action::Wait(Instant::NEVER)
    }
}
