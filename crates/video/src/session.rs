//! Video player, sans IO: decides which chunk to request in which track and when, and keeps account
//! of its buffer and stalls.
//!
//! A driver (virtual time over a rate, TCP, a browser) asks [`Session::poll`] for the next step, and reports
//! the data that has arrived. Playback starts when the first chunk is complete. It stalls whenever the
//! buffer is empty, until the next chunk is complete.

mod abandon;

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use skyhop_model::PlayerCompat;
use skyhop_units::{Duration, Instant};

use crate::controllers::{ArrivedChunk, Controller, ControllerChoice, View};
use crate::forecast::{PredictionHistory, RateForecast};
use crate::qoe::Qoe;
use crate::{ChunkRow, Film};
use abandon::TransferProgress;

/// Settings of a player.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PlayerSettings {
    /// Track of the first chunk, counted from 0; the highest track if the film has fewer.
    pub start_track: u32,
    /// Buffered playback time above which the player waits before the next request, 100 ms to 1 h.
    pub buffer_cap: Duration,
    /// Step of waits for room in the buffer, at most 60 s: a wait is rounded up to whole steps. 0 s:
    /// waits are exactly as long as necessary.
    pub wait_step: Duration,
    /// Whether the player abandons a chunk that arrives too slowly and requests it in a lower track
    /// (dash.js's AbandonRequestsRule).
    pub abandon: bool,
}

impl Default for PlayerSettings {
    /// Settings of Pensieve's player: 60 s of buffer, waits in steps of 500 ms, and the second track first.
    fn default() -> Self {
        Self {
            start_track: 1,
            buffer_cap: Duration::from_secs(60),
            wait_step: Duration::from_millis(500),
            abandon: false,
        }
    }
}

impl PlayerSettings {
    /// Default step of waits for room in the buffer.
    pub const fn wait_step_of(compat: PlayerCompat) -> Duration {
        match compat {
            PlayerCompat::None => Duration::ZERO,
            // DRAIN_BUFFER_SLEEP_TIME of Pensieve's env.py.
            PlayerCompat::Pensieve => Duration::from_millis(500),
        }
    }

    /// Check the ranges. The error is the invalid key and the reason.
    ///
    /// # Errors
    /// The buffer's cap or the wait step is out of range.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        let hour = Duration::from_secs(3600);
        if self.buffer_cap < Duration::from_millis(100) || self.buffer_cap > hour {
            return Err(("buffer_cap", format!("is {}; expected 100 ms to 1 h", self.buffer_cap)));
        }
        if self.wait_step > Duration::from_secs(60) {
            return Err(("wait_step", format!("is {}; expected at most 60 s", self.wait_step)));
        }
        Ok(())
    }
}

/// Step of the player, for its driver to carry out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Send the request for a chunk.
    Request(Request),
    /// Abort the outstanding request.
    Abandon,
    /// Do nothing until this time or the next arrival, whichever is first; with [`Instant::NEVER`],
    /// until the next arrival.
    Wait(Instant),
    /// All chunks have arrived.
    Done,
}

/// Request for a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Number of the chunk, counted from 0.
    pub chunk: usize,
    /// Track of the chunk, counted from 0.
    pub track: usize,
    /// Size of the chunk in bytes.
    pub size_bytes: u64,
}

/// State machine of a player; see the [module](self).
#[derive(Debug)]
pub struct Session {
    film: Arc<Film>,
    qoe: Arc<Qoe>,
    controller: Box<dyn Controller>,
    forecast: Option<Arc<dyn RateForecast>>,
    prediction_history: Option<PredictionHistory>,
    player: PlayerSettings,
    /// Start of the session, from which recorded times are counted.
    began: Instant,
    state: State,
    /// Time at which the buffer runs empty; `None` before playback starts.
    plays_until: Option<Instant>,
    chunk: usize,
    last_track: Option<usize>,
    rows: Vec<ChunkRow>,
}

/// Choice for the next chunk, before its request is made.
#[derive(Debug, Clone, Copy)]
struct Chosen {
    track: usize,
    estimate_bps: Option<u64>,
}

#[derive(Debug)]
enum State {
    /// The next chunk is to be requested as soon as the buffer has room.
    Ready {
        since: Instant,
        /// Bytes received by a request for the chunk that failed; `None` if no request has failed.
        failed_bytes: Option<u64>,
    },
    /// The controller demands a wait.
    Pausing {
        since: Instant,
        until: Instant,
        waited_for_room: Duration,
        chosen: Chosen,
    },
    /// A request is outstanding.
    Waiting(Pending),
    /// The request is to be aborted; the chunk is then requested in this track.
    Dropping {
        pending: Pending,
        track: usize,
    },
    /// The request has been aborted.
    Retrying {
        chosen: Chosen,
        waited: [Duration; 2],
        abandoned_bytes: u64,
    },
    Done,
}

#[derive(Debug, Clone)]
struct Pending {
    request: Request,
    requested_at: Instant,
    received: u64,
    /// Wait before the request: because the buffer was full (`waited_for_room`), and in total.
    waited_for_room: Duration,
    waited: Duration,
    estimate_bps: Option<u64>,
    abandoned_bytes: u64,
    progress: TransferProgress,
}

impl Session {
    /// Create a session that starts at `began`; random draws of its controller follow from the seed.
    pub fn new(
        film: Arc<Film>,
        qoe: Arc<Qoe>,
        controller: &ControllerChoice,
        player: PlayerSettings,
        began: Instant,
        seed: u64,
    ) -> Self {
        let controller = controller.build(&film, &qoe, seed);
        Self {
            rows: Vec::with_capacity(film.chunks()),
            film,
            qoe,
            controller,
            forecast: None,
            prediction_history: None,
            player,
            began,
            state: State::Ready { since: began, failed_bytes: None },
            plays_until: None,
            chunk: 0,
            last_track: None,
        }
    }

    /// Set the forecast of the rate, for controllers that look ahead.
    pub fn set_forecast(&mut self, forecast: Arc<dyn RateForecast>) {
        self.forecast = Some(forecast);
    }

    /// Set predictions, each with the time at which it was made. A choice uses the newest
    /// prediction made by the time of the choice.
    pub fn set_prediction_history(&mut self, prediction_history: PredictionHistory) {
        self.prediction_history = Some(prediction_history);
    }

    /// Film that is played.
    pub fn film(&self) -> &Film {
        &self.film
    }

    /// Records of the chunks that have arrived.
    pub fn rows(&self) -> &[ChunkRow] {
        &self.rows
    }

    /// Playback time left in the buffer.
    pub fn buffer(&self, now: Instant) -> Duration {
        self.plays_until.map_or(Duration::ZERO, |until| until.saturating_since(now))
    }

    /// Whether the player may abandon chunks.
    pub const fn may_abandon(&self) -> bool {
        self.player.abandon
    }

    /// Whether a request is outstanding that is not about to be aborted.
    pub const fn is_waiting(&self) -> bool {
        matches!(self.state, State::Waiting(_))
    }

    /// Return the next step. The driver calls this again after every step except [`Step::Wait`].
    pub fn poll(&mut self, now: Instant) -> Step {
        match &self.state {
            State::Ready { since, failed_bytes } => {
                let (since, failed_bytes) = (*since, *failed_bytes);
                match self.room_at(since) {
                    Some(at) if now < at => Step::Wait(at),
                    _ => self.choose(now, since, failed_bytes),
                }
            }
            State::Pausing { until, .. } if now < *until => Step::Wait(*until),
            State::Pausing { since, waited_for_room, chosen, .. } => {
                let (waited, room, chosen) =
                    (now.saturating_since(*since), *waited_for_room, *chosen);
                self.ask(now, [room, waited], chosen, 0)
            }
            State::Waiting(_) => Step::Wait(Instant::NEVER),
            State::Dropping { pending, track } => {
                let chosen = Chosen { track: *track, estimate_bps: pending.estimate_bps };
                let abandoned_bytes = pending.abandoned_bytes + pending.received;
                let waited = [pending.waited_for_room, pending.waited];
                self.state = State::Retrying { chosen, waited, abandoned_bytes };
                Step::Abandon
            }
            State::Retrying { chosen, waited, abandoned_bytes } => {
                let (chosen, waited, abandoned_bytes) = (*chosen, *waited, *abandoned_bytes);
                self.ask(now, waited, chosen, abandoned_bytes)
            }
            State::Done => Step::Done,
        }
    }

    /// Report newly received bytes of the outstanding request.
    pub fn on_bytes(&mut self, now: Instant, bytes: u64) {
        let State::Waiting(pending) = &mut self.state else { return };
        pending.received += bytes;
        if pending.received >= pending.request.size_bytes {
            let pending = pending.clone();
            self.on_chunk(now, &pending);
        } else if self.player.abandon {
            self.check_abandon(now);
        }
    }

    /// Report that the outstanding request has failed; the chunk is requested again.
    pub fn on_failed(&mut self, now: Instant) {
        if let State::Waiting(pending) | State::Dropping { pending, .. } = &self.state {
            let failed_bytes = Some(pending.abandoned_bytes + pending.received);
            self.state = State::Ready { since: now, failed_bytes };
        }
    }

    /// Time at which the buffer has room for the next chunk, if that is later than `since`; else `None`.
    fn room_at(&self, since: Instant) -> Option<Instant> {
        let over = self.buffer(since).saturating_sub(self.player.buffer_cap);
        let step_ns = self.player.wait_step.as_nanos();
        let waits_ns = match step_ns {
            0 => over.as_nanos(),
            _ => over.as_nanos().div_ceil(step_ns) * step_ns,
        };
        (waits_ns > 0).then(|| since + Duration::from_nanos(waits_ns))
    }

    fn choose(&mut self, now: Instant, since: Instant, failed_bytes: Option<u64>) -> Step {
        let abandoned_bytes = failed_bytes.unwrap_or(0);
        let waited = now.saturating_since(since);
        if self.last_track.is_none() {
            // As long as no throughput has been measured, the track is that of the settings.
            let start_track = self.player.start_track as usize;
            let track = failed_bytes.map_or(start_track.min(self.film.top()), |_| 0);
            return self.ask(
                now,
                [waited; 2],
                Chosen { track, estimate_bps: None },
                abandoned_bytes,
            );
        }
        let now_s = now.saturating_since(self.began).as_secs_f64();
        if let Some(last) =
            self.prediction_history.as_ref().and_then(|history| history.latest_at(now_s))
        {
            self.forecast = Some(Arc::new(last));
        }
        let view = View {
            film: &self.film,
            qoe: &self.qoe,
            chunk: self.chunk,
            last_track: self.last_track,
            buffer_s: self.buffer(now).as_secs_f64(),
            now_s,
            cap_s: self.player.buffer_cap.as_secs_f64(),
            forecast: self.forecast.as_deref(),
        };
        let choice = self.controller.choose(&view);
        let estimate_bps = choice.estimate_bps.map(|bps| bps as u64);
        let chosen = Chosen { track: choice.track, estimate_bps };
        // A chunk whose request has failed is not delayed further.
        if choice.wait_s > 0.0 && failed_bytes.is_none() {
            let until = now + Duration::from_secs_f64(choice.wait_s);
            self.state = State::Pausing { since, until, waited_for_room: waited, chosen };
            return self.poll(now);
        }
        self.ask(now, [waited; 2], chosen, abandoned_bytes)
    }

    fn ask(
        &mut self,
        now: Instant,
        [waited_for_room, waited]: [Duration; 2],
        chosen: Chosen,
        abandoned_bytes: u64,
    ) -> Step {
        let Chosen { track, estimate_bps } = chosen;
        let size_bytes = self.film.size_bytes(self.chunk, track);
        let request = Request { chunk: self.chunk, track, size_bytes };
        self.state = State::Waiting(Pending {
            request,
            requested_at: now,
            received: 0,
            waited_for_room,
            waited,
            estimate_bps,
            abandoned_bytes,
            progress: TransferProgress::default(),
        });
        Step::Request(request)
    }

    fn on_chunk(&mut self, now: Instant, pending: &Pending) {
        let Request { chunk, track, size_bytes } = pending.request;
        let stall = self.plays_until.map_or(Duration::ZERO, |until| now.saturating_since(until));
        let plays_from = self.plays_until.map_or(now, |until| until.max(now));
        self.plays_until = Some(plays_from + self.film.chunk);
        let since_began = |at: Instant| at.saturating_since(self.began).as_nanos();
        self.rows.push(ChunkRow {
            chunk: chunk as u32,
            track: track as u32,
            bitrate_bps: self.film.bitrate_bps(track),
            size_bytes,
            asked_ns: since_began(pending.requested_at),
            arrived_ns: since_began(now),
            stall_ns: stall.as_nanos(),
            buffer_ns: self.buffer(now).as_nanos(),
            waited_ns: pending.waited.as_nanos(),
            abandoned_bytes: pending.abandoned_bytes,
            predicted_bps: pending.estimate_bps,
        });
        let took = now.saturating_since(pending.requested_at).max(Duration::from_nanos(1));
        self.controller.on_chunk(&ArrivedChunk {
            chunk,
            track,
            bytes: size_bytes as f64,
            took_s: took.as_secs_f64(),
            waited_s: pending.waited_for_room.as_secs_f64(),
        });
        self.last_track = Some(track);
        self.chunk += 1;
        self.state = if self.chunk == self.film.chunks() {
            State::Done
        } else {
            State::Ready { since: now, failed_bytes: None }
        };
    }

    fn check_abandon(&mut self, now: Instant) {
        let buffer = self.buffer(now);
        let State::Waiting(pending) = &mut self.state else { return };
        let elapsed = now.saturating_since(pending.requested_at);
        let (request, received) = (pending.request, pending.received);
        let track = pending.progress.lower_track(&self.film, request, elapsed, received, buffer);
        if let Some(track) = track {
            let pending = pending.clone();
            self.state = State::Dropping { pending, track };
        }
    }
}
