//! Sessions over a rate trace in virtual time.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use skyhop_units::{Duration, Instant};

use crate::ahead::{Ahead, Erring, OverPath, Predictions};
use crate::chunk::score;
use crate::controllers::ControllerChoice;
use crate::qoe::Qoe;
use crate::session::{Playing, Session, Step};
use crate::{ChunkRow, Film, RateTrace, RateTraceError, Summary};

/// How often a player that may give up chunks looks at what has come.
const LOOKS: Duration = Duration::from_millis(100);

/// What lies between player and server.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// The share of the rate that is the film's: headers take the rest.
    pub payload_share: f64,
    /// What each request takes beside its transfer.
    pub delay: Duration,
}

impl Default for Environment {
    /// As Pensieve's simulator.
    fn default() -> Self {
        Self { payload_share: 0.95, delay: Duration::from_millis(80) }
    }
}

impl Environment {
    /// What cannot be: the key and why.
    ///
    /// # Errors
    /// The share is none, or the delay is too long.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        if !(self.payload_share > 0.0 && self.payload_share <= 1.0) {
            return Err((
                "payload_share",
                format!("is {}; expected above 0, up to 1", self.payload_share),
            ));
        }
        if self.delay > Duration::from_secs(3600) {
            return Err(("delay", format!("is {}; expected at most 1 h", self.delay)));
        }
        Ok(())
    }
}

/// What the controller is told of what lies ahead.
#[derive(Debug, Clone, Default)]
pub enum Told {
    /// Nothing, or the truth if it asks for it.
    #[default]
    Truth,
    /// The truth with an error.
    Erring {
        /// Of each second's rate.
        relative_sd: f64,
    },
    /// A model's predictions, by when they were made, in the trace's time: at each decision the last that were made by then.
    Predicted(Arc<[Predictions]>),
}

/// Everything about a session but where in the trace it begins.
#[derive(Debug, Clone)]
pub struct Setting {
    /// What is played.
    pub film: Arc<Film>,
    /// Who chooses.
    pub controller: ControllerChoice,
    /// What it wants.
    pub qoe: Arc<Qoe>,
    /// How it plays.
    pub playing: Playing,
    /// Over what.
    pub environment: Environment,
    /// What the controller is told.
    pub told: Told,
    /// Whether the first chunk is left out of the score, as in Pensieve's published sums.
    pub without_first: bool,
}

/// A session that is over.
#[derive(Debug, Clone, PartialEq)]
pub struct Played {
    /// By chunk.
    pub rows: Vec<ChunkRow>,
    /// What they amount to.
    pub summary: Summary,
    /// What they are worth per chunk to the QoE that the controller wanted.
    pub qoe: f64,
}

/// Plays a session that begins at `offset_s` of the trace; whatever is drawn follows from the seed.
///
/// # Errors
/// What lies ahead with an error has no rate.
pub fn play(
    setting: &Setting,
    trace: &Arc<RateTrace>,
    offset_s: f64,
    seed: u64,
) -> Result<Played, RateTraceError> {
    let path = OverPath {
        trace: trace.clone(),
        offset_s: offset_s.rem_euclid(trace.length_s()),
        payload_share: setting.environment.payload_share,
        delay_s: setting.environment.delay.as_secs_f64(),
    };
    let Setting { film, controller, qoe, playing, .. } = setting;
    let mut session =
        Session::new(film.clone(), qoe.clone(), controller, *playing, Instant::START, seed);
    if controller.looks_ahead() {
        match &setting.told {
            Told::Truth => session.look_ahead(Arc::new(path.clone())),
            Told::Erring { relative_sd } => {
                session.look_ahead(Arc::new(Erring::new(&path, *relative_sd, seed)?));
            }
            Told::Predicted(_) => {}
        }
    }
    drive(&mut session, &path, &setting.told);
    let rows = session.rows().to_vec();
    let qoe = score(&rows, film, qoe, setting.without_first);
    Ok(Played { summary: Summary::of(&rows), rows, qoe })
}

/// Has the session ask, wait and receive until it is done.
fn drive(session: &mut Session, path: &OverPath, told: &Told) {
    let mut now = Instant::START;
    loop {
        tell(session, now, path.offset_s, told);
        match session.poll(now) {
            Step::Ask(request) => now = transfer(session, path, now, request.size_bytes),
            Step::Wait(until) => now = until,
            Step::Abandon => {}
            Step::Done => return,
        }
    }
}

/// The last predictions made by now.
fn tell(session: &mut Session, now: Instant, offset_s: f64, told: &Told) {
    let Told::Predicted(predictions) = told else { return };
    let in_trace_s = now.as_secs_f64() + offset_s;
    let made = predictions.partition_point(|prediction| prediction.from_s() <= in_trace_s);
    if let Some(last) = made.checked_sub(1).and_then(|last| predictions.get(last)) {
        session.look_ahead(Arc::new(last.since(offset_s)));
    }
}

/// Lets a chunk come, all of it or until the player gives it up; returns when that is.
fn transfer(session: &mut Session, path: &OverPath, asked: Instant, size_bytes: u64) -> Instant {
    let (asked_s, bytes) = (asked.as_secs_f64(), size_bytes as f64);
    let arrives = instant(path.arrives_s(asked_s, bytes)).max(asked + Duration::from_nanos(1));
    if !session.gives_up() {
        session.on_bytes(arrives, size_bytes);
        return arrives;
    }
    let (mut now, mut come) = (asked, 0);
    loop {
        now = now + LOOKS;
        if now >= arrives {
            session.on_bytes(arrives, size_bytes - come);
            return arrives;
        }
        let by_now = path.come_by(asked_s, now.as_secs_f64(), bytes) as u64;
        // The last byte comes with the last moment.
        let more = by_now.min(size_bytes - 1).saturating_sub(come);
        if more > 0 {
            session.on_bytes(now, more);
            come += more;
        }
        if !session.is_waiting() {
            return now;
        }
    }
}

fn instant(since_start_s: f64) -> Instant {
    Instant::START + Duration::from_secs_f64(since_start_s)
}
