//! Sessions over a rate trace in virtual time.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use skyhop_units::{Duration, Instant};

use crate::chunk::score;
use crate::controllers::ControllerChoice;
use crate::forecast::{Errors, PredictionHistory, RateForecast as _, TransferPath};
use crate::qoe::Qoe;
use crate::session::{PlayerSettings, Session, Step};
use crate::{ChunkRow, Film, RateTrace, RateTraceError, Summary};

/// Interval at which a player that may abandon chunks checks the progress of a transfer.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// Path properties between player and server, apart from the rate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Environment {
    /// Share of the rate that is available to the film, above 0 and up to 1; headers take the rest.
    pub payload_share: f64,
    /// Delay of each request in addition to its transfer; at most 1 h.
    pub delay: Duration,
    /// Whether the trace's time stands still during the delay of a request.
    pub stands_still: bool,
}

impl Default for Environment {
    /// Values of Pensieve's simulator: 95 % payload, 80 ms delay.
    fn default() -> Self {
        Self { payload_share: 0.95, delay: Duration::from_millis(80), stands_still: false }
    }
}

impl Environment {
    /// Check the ranges. The error is the invalid key and the reason.
    ///
    /// # Errors
    /// The share or the delay is out of range.
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

/// Source of the rate forecast for controllers that look ahead.
#[derive(Debug, Clone, Default)]
pub enum ForecastSource {
    /// True rate of the trace.
    #[default]
    Truth,
    /// True rate of the trace with random errors.
    Erring(Errors),
    /// Predictions of a model, in the trace's time.
    Predicted(PredictionHistory),
}

/// Complete setup of a session, except the time of the trace at which it starts.
#[derive(Debug, Clone)]
pub struct Setting {
    /// Film that the session plays.
    pub film: Arc<Film>,
    /// Controller that chooses tracks.
    pub controller: ControllerChoice,
    /// Quality of experience that the controller maximizes.
    pub qoe: Arc<Qoe>,
    /// Settings of the player.
    pub player: PlayerSettings,
    /// Path properties apart from the rate.
    pub environment: Environment,
    /// Source of the rate forecast, for controllers that look ahead.
    pub forecast: ForecastSource,
    /// Whether the score omits the first chunk, as Pensieve's published sums do.
    pub without_first: bool,
}

/// Result of a completed session.
#[derive(Debug, Clone, PartialEq)]
pub struct PlayedSession {
    /// Records of the chunks, in order.
    pub rows: Vec<ChunkRow>,
    /// Summary of the chunks.
    pub summary: Summary,
    /// Mean QoE per chunk, computed by the QoE function that the controller maximizes.
    pub qoe: f64,
}

/// Play a session that starts at `offset_s` of the trace; all random draws follow from the seed.
///
/// # Errors
/// An oracle with errors has no rate above 0.
pub fn play(
    setting: &Setting,
    trace: &Arc<RateTrace>,
    offset_s: f64,
    seed: u64,
) -> Result<PlayedSession, RateTraceError> {
    let path = TransferPath {
        trace: trace.clone(),
        offset_s: offset_s.rem_euclid(trace.length_s()),
        payload_share: setting.environment.payload_share,
        delay_s: setting.environment.delay.as_secs_f64(),
    };
    let Setting { film, controller, qoe, player, .. } = setting;
    let mut session =
        Session::new(film.clone(), qoe.clone(), controller, *player, Instant::START, seed);
    let mut oracle = None;
    if controller.looks_ahead() {
        match &setting.forecast {
            ForecastSource::Truth => oracle = Some(path.clone()),
            ForecastSource::Erring(errors) => oracle = Some(path.with_errors(*errors, seed)?),
            ForecastSource::Predicted(made) => {
                session.set_prediction_history(made.for_session_at(path.offset_s))
            }
        }
    }
    drive(&mut session, path, oracle, setting.environment.stands_still);
    let rows = session.rows().to_vec();
    let qoe = score(&rows, film, qoe, setting.without_first);
    Ok(PlayedSession { summary: Summary::of(&rows), rows, qoe })
}

/// Drive the session until it is done. `oracle` is the forecast that the session's controller gets.
fn drive(
    session: &mut Session,
    mut path: TransferPath,
    mut oracle: Option<TransferPath>,
    stands_still: bool,
) {
    let mut now = Instant::START;
    oracle.iter().for_each(|oracle| session.set_forecast(Arc::new(oracle.clone())));
    loop {
        match session.poll(now) {
            Step::Request(request) => {
                now = transfer(session, &path, now, request.size_bytes);
                if stands_still {
                    path.offset_s -= path.delay_s;
                    if let Some(oracle) = &mut oracle {
                        oracle.offset_s = path.offset_s;
                        session.set_forecast(Arc::new(oracle.clone()));
                    }
                }
            }
            Step::Wait(until) => now = until,
            Step::Abandon => {}
            Step::Done => return,
        }
    }
}

/// Transfer a chunk until it is complete or the player abandons it; return the time at which that happens.
fn transfer(
    session: &mut Session,
    path: &TransferPath,
    requested_at: Instant,
    size_bytes: u64,
) -> Instant {
    let (asked_s, bytes) = (requested_at.as_secs_f64(), size_bytes as f64);
    let arrives =
        instant(path.arrives_s(asked_s, bytes)).max(requested_at + Duration::from_nanos(1));
    if !session.may_abandon() {
        session.on_bytes(arrives, size_bytes);
        return arrives;
    }
    let (mut now, mut arrived) = (requested_at, 0);
    loop {
        now += PROGRESS_INTERVAL;
        if now >= arrives {
            session.on_bytes(arrives, size_bytes - arrived);
            return arrives;
        }
        let by_now = path.received_by(asked_s, now.as_secs_f64(), bytes) as u64;
        // The last byte arrives exactly at `arrives`, so that at least one byte is missing before.
        let more = by_now.min(size_bytes - 1).saturating_sub(arrived);
        if more > 0 {
            session.on_bytes(now, more);
            arrived += more;
        }
        if !session.is_waiting() {
            return now;
        }
    }
}

fn instant(since_start_s: f64) -> Instant {
    Instant::START + Duration::from_secs_f64(since_start_s)
}
