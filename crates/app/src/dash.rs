//! Adaptive video over TCP (DASH). The client is a player that requests the chunks of a film in order, each
//! in the track that its controller chooses; the server answers with as many bytes as the chunk has.

mod predicted;
mod requested_sizes;

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use skyhop_model::{AppTable, PlayerCompat};
use skyhop_units::{Bytes, Duration, Instant, Rate};
use skyhop_video::chunk::score;
use skyhop_video::controllers::ControllerChoice;
use skyhop_video::qoe::Qoe;
use skyhop_video::session::{PlayerSettings, Request, Session, Step};
use skyhop_video::{ChunkRow, Film, Summary};

pub use self::predicted::{Oracle, Predicted, RateOracle};
use self::requested_sizes::{RequestId, RequestedSizes};
use crate::{Action, AppKind, Application, Detail, Event, FlowFacts, Side, Transaction};

/// Pause between a failed request and its retry.
const RETRY: Duration = Duration::from_millis(100);
/// Low-water mark in bytes of a player that may abandon chunks: it is notified of received data in
/// pieces of this size.
const ABANDON_CHECK_BYTES: u64 = 16_384;

/// Plays adaptive video (DASH) over TCP.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Dash {
    /// Compatibility mode: "none", or "pensieve" for the conventions of Pensieve's simulator (waits in steps
    /// of 500 ms, QoE without the first chunk).
    #[serde(default)]
    pub compat: PlayerCompat,
    /// Film to play: the name of one that comes with skyhop ("pensieve", "satpipe", "six-tracks"), a film in
    /// TOML, a DASH manifest (.mpd), or a directory of Pensieve's lists of chunk sizes.
    #[serde(default = "default_film")]
    pub film: String,
    /// Bitrate of the film's highest track. The bitrates of the other tracks and all chunk sizes are scaled
    /// with it. Default: as in the film.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top: Option<Rate>,
    /// Controller that chooses tracks: its name, or a table with `kind` and its parameters.
    #[serde(default)]
    pub controller: ControllerChoice,
    /// Quality of experience (QoE) that the controller maximizes and that rates the session:
    /// "pensieve-linear", "pensieve-log", "pensieve-hd", or SatPipe's "satpipe-linear-balance" and its like.
    #[serde(default = "default_qoe")]
    pub qoe: String,
    /// Track of the first chunk, counted from 0 (the lowest); the highest track if the film has fewer.
    #[serde(default = "default_start_track")]
    pub start_track: u32,
    /// Buffered playback time above which the player waits before it requests the next chunk.
    #[serde(default = "default_buffer_cap")]
    pub buffer_cap: Duration,
    /// Step of waits for room in the buffer: a wait is rounded up to whole steps. 0 s: waits are exactly as
    /// long as necessary. Default: 0 s, or 500 ms with compat = "pensieve".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_step: Option<Duration>,
    /// Whether the player abandons a chunk that arrives too slowly and requests it in a lower track
    /// (dash.js's AbandonRequestsRule).
    #[serde(default)]
    pub abandon: bool,
    /// Prediction of the rate for the controllers mpc-l and mpc-o: a model's directory from `skyhop predict
    /// train`, { oracle = { … } }, or a list with the rate of each second of the session.
    #[serde(default, skip_serializing_if = "Predicted::is_none")]
    pub predicted: Predicted,
    /// Size of a request; above 0 B.
    #[serde(default = "default_request")]
    pub request: Bytes,
    /// Time after which an incomplete request has failed: its connection is dropped, and the chunk is
    /// requested again. Above 0 s.
    #[serde(default = "default_timeout")]
    pub timeout: Duration,
    /// Film read from a file, set by the caller that reads files; `None` if the film comes with skyhop.
    #[serde(skip)]
    read: Option<Arc<Film>>,
    /// Rate of the run over time, for a model or an oracle; set by the caller that builds the run.
    #[serde(skip)]
    pub rate_oracle: Option<RateOracle>,
    /// Chunk sizes that the requests ask for. They are kept here because the bytes of simulated
    /// requests have no content.
    #[serde(skip)]
    requested_sizes: RequestedSizes,
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
    PlayerSettings::default().buffer_cap
}

fn default_request() -> Bytes {
    Bytes::new(300)
}

fn default_timeout() -> Duration {
    Duration::from_secs(30)
}

impl Dash {
    /// Set the film that the key `film` names.
    pub fn with_film(self, film: Film) -> Self {
        Self { read: Some(Arc::new(film)), ..self }
    }

    /// Set the path of the model that `predicted` names.
    pub fn with_model(self, path: String) -> Self {
        Self { predicted: Predicted::Model(path), ..self }
    }

    /// Return the film, scaled to `top` if that is given.
    ///
    /// # Errors
    /// The film is unknown, or cannot be scaled to `top`; the error is the key and the reason.
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

    /// Return the QoE that rates the film's chunks.
    ///
    /// # Errors
    /// The QoE is unknown, or not defined for the film; the error is the key and the reason.
    pub fn qoe(&self, film: &Film) -> Result<Qoe, (&'static str, String)> {
        Qoe::new(&self.qoe, film).map_err(|error| ("qoe", error.to_string()))
    }

    /// Summarize a session's chunks; return the summary and the mean QoE per chunk (`None` without
    /// chunks or film).
    pub fn summary(&self, rows: &[ChunkRow]) -> (Summary, Option<f64>) {
        let scored = self.film().ok().and_then(|film| {
            let qoe = self.qoe(&film).ok()?;
            Some(score(rows, &film, &qoe, self.compat == PlayerCompat::Pensieve))
        });
        (Summary::of(rows), scored)
    }

    /// Check the film, after it has been read, and the keys that depend on it.
    ///
    /// # Errors
    /// The invalid key and the reason.
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
        if self.controller.looks_ahead() && self.predicted.is_none() {
            let name = self.controller.name();
            let what = format!(
                "{name} plans with predictions; expected `predicted`: a model's directory, {{ oracle = {{}} }}, or a list of \
                 rates, one per second"
            );
            return Err(("controller", what));
        }
        Ok(())
    }

    fn player_settings(&self) -> PlayerSettings {
        let Self { start_track, buffer_cap, abandon, .. } = *self;
        let wait_step = self.wait_step.unwrap_or(PlayerSettings::wait_step_of(self.compat));
        PlayerSettings { start_track, buffer_cap, wait_step, abandon }
    }

    fn session(&self, flow: &FlowFacts) -> Option<Session> {
        let film = self.film().ok()?;
        let qoe = Arc::new(self.qoe(&film).ok()?);
        let mut session = Session::new(
            film,
            qoe,
            &self.controller,
            self.player_settings(),
            flow.start,
            flow.seed,
        );
        let rate_oracle = self.rate_oracle.as_ref();
        self.predicted.configure(&mut session, rate_oracle, flow.start, flow.seed).ok()?;
        Some(session)
    }
}

impl AppKind for Dash {
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
            requested_sizes: self.requested_sizes.clone(),
            next: RequestId { seed: flow.seed, connection, number: 0 },
            received: Bytes::ZERO,
            is_finishing: false,
        })
    }

    fn check(&self) -> Result<(), (&'static str, String)> {
        self.player_settings().check()?;
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

/// Client end: the player.
#[derive(Debug)]
struct Client {
    config: Dash,
    /// Playback session; `None` only without a film, which [`Dash::check_film`] excludes.
    session: Option<Session>,
    seed: u64,
    stop: Instant,
    state: State,
    connections: u32,
    connection: Option<Connection>,
    results: Vec<Transaction>,
}

/// Connection that the player uses.
#[derive(Debug, Clone, Copy)]
struct Connection {
    number: u32,
    /// Number of requests that the connection has carried so far.
    requests: u32,
}

/// Chunk that has been requested, or is about to be requested.
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
    /// The session decides what to do next.
    Playing,
    /// A connection is being opened for a request.
    Connecting(Pending),
    /// The connection is open, and the request is to be written.
    Asking(Pending),
    /// The request is written, and the player waits for the answer.
    Waiting(Pending),
    /// A request has failed: its connection is to be dropped, and the player pauses until the given time.
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

    /// Number of bytes after which the player is to be notified: all missing bytes of the chunk;
    /// but 1 for the first byte, and [`ABANDON_CHECK_BYTES`] if the chunk may be abandoned.
    fn low_water(&self) -> Bytes {
        let State::Waiting(pending) = self.state else { return Bytes::new(1) };
        let left = pending.request.size_bytes - pending.received;
        Bytes::new(match pending.received {
            0 => 1,
            _ if self.config.abandon => left.min(ABANDON_CHECK_BYTES),
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
            Step::Request(request) => {
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
        let id = RequestId { seed: self.seed, connection: connection.number, number };
        self.config.requested_sizes.insert(id, Bytes::new(pending.request.size_bytes));
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
            // If the session is no longer waiting for the chunk, it has decided to abandon it.
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

    /// Report to the session that the requested chunk will not arrive; return whether a chunk was requested.
    fn fail(&mut self, now: Instant) -> bool {
        let is_out =
            matches!(self.state, State::Connecting(_) | State::Asking(_) | State::Waiting(_));
        if let Some(session) = self.session.as_mut().filter(|_| is_out) {
            session.on_failed(now);
        }
        is_out
    }
}

/// Server end, which answers requests.
#[derive(Debug)]
struct Server {
    request: Bytes,
    requested_sizes: RequestedSizes,
    next: RequestId,
    /// Bytes of the incoming request received so far.
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
            && let Some(size) = self.requested_sizes.get(self.next)
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
