//! Sessions over a rate trace in virtual time.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use skyhop_units::{Duration, Instant};

use crate::ahead::{Ahead as _, Errors, Made, OverPath};
use crate::chunk::score;
use crate::controllers::ControllerChoice;
use crate::qoe::Qoe;
use crate::session::{Playing, Session, Step};
use crate::{ChunkRow, Film, RateTrace, RateTraceError, Summary};

/// How often a player that may give up chunks looks at what has come.
const LOOKS: Duration = Duration::from_millis(100);

/// What lies between player and server.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Environment {
    /// The share of the rate that is the film's: headers take the rest.
    pub payload_share: f64,
    /// What each request takes beside its transfer.
    pub delay: Duration,
    /// Whether the trace stands still meanwhile.
    pub stands_still: bool,
}

impl Default for Environment {
    /// As Pensieve's simulator.
    fn default() -> Self {
        Self { payload_share: 0.95, delay: Duration::from_millis(80), stands_still: false }
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
    Erring(Errors),
    /// A model's predictions, in the trace's time.
    Predicted(Made),
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
    let mut oracle = None;
    if controller.looks_ahead() {
        match &setting.told {
            Told::Truth => oracle = Some(path.clone()),
            Told::Erring(errors) => oracle = Some(path.erring(*errors, seed)?),
            Told::Predicted(made) => session.look_ahead_by(made.for_session_at(path.offset_s)),
        }
    }
    drive(&mut session, path, oracle, setting.environment.stands_still);
    let rows = session.rows().to_vec();
    let qoe = score(&rows, film, qoe, setting.without_first);
    Ok(Played { summary: Summary::of(&rows), rows, qoe })
}

/// Has the session ask, wait and receive until it is done. `oracle` is what it is told of the path.
fn drive(
    session: &mut Session,
    mut path: OverPath,
    mut oracle: Option<OverPath>,
    stands_still: bool,
) {
    let mut now = Instant::START;
    oracle.iter().for_each(|oracle| session.look_ahead(Arc::new(oracle.clone())));
    loop {
        match session.poll(now) {
            Step::Ask(request) => {
                now = transfer(session, &path, now, request.size_bytes);
                if stands_still {
                    path.offset_s -= path.delay_s;
                    if let Some(oracle) = &mut oracle {
                        oracle.offset_s = path.offset_s;
                        session.look_ahead(Arc::new(oracle.clone()));
                    }
                }
            }
            Step::Wait(until) => now = until,
            Step::Abandon => {}
            Step::Done => return,
        }
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
        now += LOOKS;
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
