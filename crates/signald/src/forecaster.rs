//! Endless forecast of handovers, computed ahead on its own thread so that it delays no announcement.

use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::time::SystemTime;

use skyhop_path::{PathRequest, Place};
use skyhop_scenario::{NamedScenario, ScenarioError};
use skyhop_signal::Handover;
use skyhop_signal::forecast::{Forecast, median_age, timing_error};
use skyhop_units::{Duration, Instant, UtcInstant};
use tracing::{debug, info};

use crate::wall_clock::WallClock;
use skyhop_host::error::{Context, HostError};
use skyhop_host::thread::spawn;

/// Length of the forecast that one message of the thread covers.
const CHUNK: Duration = Duration::from_secs(60);
/// Maximum number of chunks that the thread computes ahead: two hours.
const MAX_CHUNKS_AHEAD: usize = 120;
/// Time after the caller's horizon up to which computed chunks are passed to the caller.
const READ_AHEAD: Duration = Duration::from_secs(60);
/// Length of a forecast. After it the next forecast begins, for which the element sets are read
/// from the file again.
const FORECAST_LENGTH: Duration = Duration::from_secs(24 * 3_600);
/// Median age of element sets above which the user gets a warning: operators publish new ones every few hours.
const OLD_ELEMENTS: Duration = Duration::from_secs(12 * 3_600);

/// Description of the forecast to compute.
#[derive(Debug, Clone, PartialEq)]
pub struct ForecastPlan {
    /// Scenario whose `[path]` gives the relay, the handover policy and their options.
    pub scenario: NamedScenario,
    /// File of element sets, which is read again when it changes.
    pub elements: PathBuf,
    /// Place of the terminal.
    pub from: Place,
    /// Place of the other end; if `None`, only the handovers of the terminal's own satellite are forecast.
    pub to: Option<Place>,
}

impl ForecastPlan {
    /// Check whether the forecast can begin now.
    ///
    /// # Errors
    /// The first problem with the file, the places or the policy.
    pub fn check(&self) -> Result<(), HostError> {
        let request = self.request(WallClock::read()?.utc());
        request.map(drop).map_err(|error| HostError::Unsupported(error.to_string()))
    }

    fn request(&self, start: UtcInstant) -> Result<PathRequest, ScenarioError> {
        let ends = (&self.from, self.to.as_ref());
        self.scenario.forecast_from(&self.elements, ends, start, FORECAST_LENGTH)
    }
}

/// Series of forecasts, each of which begins where the previous one ends.
#[derive(Debug)]
pub(crate) struct Forecaster {
    plan: ForecastPlan,
    current: ForecastThread,
    /// Forecast from the changed file of element sets; replaces `current` once it has begun.
    next: Option<ForecastThread>,
    /// Modification time of the file that the newest thread reads.
    modified: Option<SystemTime>,
}

/// Handovers and messages to the user since the last call of [`Forecaster::update`].
#[derive(Debug, Default)]
pub(crate) struct Update {
    /// Whether the handovers in `chunks` replace all earlier ones.
    pub(crate) replaces: bool,
    /// Handovers of each chunk, with the UTC time from which their times are counted.
    pub(crate) chunks: Vec<(UtcInstant, Vec<Handover>)>,
    pub(crate) notes: Vec<String>,
}

impl Forecaster {
    pub(crate) fn start(plan: &ForecastPlan, now: UtcInstant) -> Result<Self, HostError> {
        let modified = modified(plan);
        let current = ForecastThread::start(plan, now)?;
        Ok(Self { plan: plan.clone(), current, next: None, modified })
    }

    /// Discard the current forecast and begin another one at `now`.
    pub(crate) fn restart(&mut self, now: UtcInstant) -> Result<(), HostError> {
        self.next = None;
        self.current = ForecastThread::start(&self.plan, now)?;
        Ok(())
    }

    /// Return the handovers computed since the last call, up to [`READ_AHEAD`] after `until`, and
    /// messages to the user.
    pub(crate) fn update(
        &mut self,
        now: UtcInstant,
        until: UtcInstant,
    ) -> Result<Update, HostError> {
        let mut update = Update::default();
        self.replace_changed(now, &mut update)?;
        while self.current.until < until.after(READ_AHEAD) {
            match self.current.messages.try_recv() {
                Ok(ForecastMessage::Begun { age }) => update.notes.extend(self.warning(age)),
                Ok(ForecastMessage::Chunk { handovers, until }) => {
                    self.current.until = self.current.start.after(until - Instant::START);
                    debug!(handovers = handovers.len(), until = %self.current.until, "forecast");
                    update.chunks.push((self.current.start, handovers));
                }
                Ok(ForecastMessage::Failed(what)) => {
                    return Err(io::Error::other(what)).context("cannot continue the forecast");
                }
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => self.restart(now.max(self.current.until))?,
            }
        }
        Ok(update)
    }

    /// Start another forecast if the file has changed, and switch to it once it has begun. Until then the current
    /// forecast stays in use; it also stays in use if the new file cannot be used.
    fn replace_changed(&mut self, now: UtcInstant, update: &mut Update) -> Result<(), HostError> {
        let modified = modified(&self.plan);
        if modified.is_some() && modified != self.modified {
            self.modified = modified;
            self.next = Some(ForecastThread::start(&self.plan, now)?);
        }
        let Some(next) = &mut self.next else { return Ok(()) };
        match next.messages.try_recv() {
            Ok(ForecastMessage::Begun { age }) => {
                let file = self.plan.elements.display();
                update.notes.push(format!("{file} has changed; forecasting from it"));
                update.notes.extend(self.warning(age));
                update.replaces = true;
                self.current = self.next.take().expect("`next` is checked above");
            }
            Ok(ForecastMessage::Failed(what)) => {
                update
                    .notes
                    .push(format!("warning: {what}; continuing with the previous element sets"));
                self.next = None;
            }
            Ok(ForecastMessage::Chunk { .. }) | Err(TryRecvError::Disconnected) => self.next = None,
            Err(TryRecvError::Empty) => {}
        }
        Ok(())
    }

    fn warning(&self, age: Duration) -> Option<String> {
        (age > OLD_ELEMENTS).then(|| {
            let (file, hours) = (self.plan.elements.display(), age.as_secs_f64() / 3_600.0);
            let error_s = timing_error(age).as_secs_f64();
            format!(
                "warning: half of the element sets of {file} are more than {hours:.0} h old; one handover in ten \
                 will be off by more than {error_s:.1} s"
            )
        })
    }
}

/// Thread that computes one forecast.
#[derive(Debug)]
struct ForecastThread {
    start: UtcInstant,
    /// End of the last chunk that has been received.
    until: UtcInstant,
    messages: Receiver<ForecastMessage>,
}

/// Message of a forecast's thread: first `Begun`, then one message per chunk; or a failure.
#[derive(Debug)]
enum ForecastMessage {
    /// The forecast has begun; `age` is the median age of its element sets.
    Begun {
        age: Duration,
    },
    Chunk {
        handovers: Vec<Handover>,
        until: Instant,
    },
    Failed(String),
}

impl ForecastThread {
    fn start(plan: &ForecastPlan, now: UtcInstant) -> Result<Self, HostError> {
        const SECOND_NS: i64 = 1_000_000_000;
        // Begin on a full second, so that steps fall on the moments of a grid.
        let start = UtcInstant::from_unix_nanos(now.unix_nanos().div_euclid(SECOND_NS) * SECOND_NS);
        info!(elements = %plan.elements.display(), %start, "forecast starts");
        let (sender, messages) = sync_channel(MAX_CHUNKS_AHEAD);
        let plan = plan.clone();
        spawn("forecast".to_owned(), move || {
            forecast(&plan, start, &sender);
            Ok(())
        })?;
        Ok(Self { start, until: start, messages })
    }
}

/// Compute chunks until the receiver is dropped, at most [`MAX_CHUNKS_AHEAD`] more than the receiver has taken.
fn forecast(plan: &ForecastPlan, start: UtcInstant, sender: &SyncSender<ForecastMessage>) {
    let request = match plan.request(start) {
        Ok(request) => request,
        Err(error) => return sender.send(ForecastMessage::Failed(error.to_string())).unwrap_or(()),
    };
    let forecast = match Forecast::new(&request) {
        Ok(forecast) => forecast,
        Err(error) => return sender.send(ForecastMessage::Failed(error.to_string())).unwrap_or(()),
    };
    let age = median_age(&request, start).unwrap_or(Duration::ZERO);
    if sender.send(ForecastMessage::Begun { age }).is_err() {
        return;
    }
    let mut until = Instant::START + CHUNK;
    let mut handovers = Vec::new();
    for step in forecast {
        if step.at >= until {
            let chunk = ForecastMessage::Chunk { handovers: std::mem::take(&mut handovers), until };
            if sender.send(chunk).is_err() {
                return;
            }
            until += CHUNK;
        }
        handovers.extend(step.handover);
    }
    sender.send(ForecastMessage::Chunk { handovers, until }).unwrap_or(())
}

fn modified(plan: &ForecastPlan) -> Option<SystemTime> {
    std::fs::metadata(&plan.elements).and_then(|file| file.modified()).ok()
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use skyhop_scenario::parse_scenario;

    use super::*;

    const PLANES: u32 = 18;
    const SLOTS: u32 = 20;

    /// Walker pattern as OMM in CSV.
    fn fleet(epoch: &str) -> String {
        let mut csv = "OBJECT_NAME,EPOCH,MEAN_MOTION,ECCENTRICITY,INCLINATION,RA_OF_ASC_NODE,\
                       ARG_OF_PERICENTER,MEAN_ANOMALY,NORAD_CAT_ID,BSTAR\n"
            .to_owned();
        for number in 0..PLANES * SLOTS {
            let (node_deg, anomaly_deg) =
                (20 * (number / SLOTS), (18 * number + number / SLOTS) % 360);
            writeln!(
                csv,
                "SAT {number},{epoch},15.05,0.0001,53,{node_deg},0,{anomaly_deg},{number},0"
            )
            .unwrap();
        }
        csv
    }

    fn plan(name: &str, content: &str) -> ForecastPlan {
        let text = "[path]\nfrom = \"a\"\nto = \"a\"\nhandover = \"sticky\"\n";
        let file = format!("skyhop-forecast-{name}-{}.csv", std::process::id());
        let elements = std::env::temp_dir().join(file);
        std::fs::write(&elements, content).unwrap();
        ForecastPlan {
            scenario: parse_scenario(text, "x.toml", &[]).unwrap(),
            elements,
            from: Place::new("a", 48.4, -123.4),
            to: None,
        }
    }

    /// Return the handovers forecast for `seconds` from `now` on, in UTC.
    fn forecast_for(forecaster: &mut Forecaster, now: UtcInstant, seconds: u64) -> Vec<UtcInstant> {
        let until = now.after(Duration::from_secs(seconds));
        let mut moments = Vec::new();
        while forecaster.current.until < until {
            for (start, chunk) in forecaster.update(now, until).unwrap().chunks {
                let utc = |one: &Handover| start.after(one.at.saturating_since(Instant::START));
                moments.extend(chunk.iter().map(utc));
            }
            std::thread::yield_now();
        }
        moments.retain(|moment| *moment < until);
        moments
    }

    #[test]
    fn chunks_join_to_one_forecast_that_restarts_when_the_clock_is_set() {
        let plan = plan("steps", &fleet("2026-01-01T12:00:00"));
        let now: UtcInstant = "2026-01-01T12:00:07.3Z".parse().unwrap();
        let begin: UtcInstant = "2026-01-01T12:00:07Z".parse().unwrap();
        let request = plan.request(begin).unwrap();
        let whole = Forecast::new(&request).unwrap().take(1_201).filter_map(|step| step.handover);
        let expected: Vec<UtcInstant> =
            whole.map(|one| begin.after(one.at.saturating_since(Instant::START))).collect();

        let mut forecaster = Forecaster::start(&plan, now).unwrap();
        let first = forecast_for(&mut forecaster, now, 600);
        assert!(first.len() > 1, "{first:?}");
        assert_eq!(first, expected[..first.len()]);

        let set: UtcInstant = "2026-01-01T15:00:00Z".parse().unwrap();
        forecaster.restart(set).unwrap();
        let moments = forecast_for(&mut forecaster, set, 600);
        assert!(!moments.is_empty() && moments.iter().all(|moment| *moment >= set), "{moments:?}");
        std::fs::remove_file(&plan.elements).unwrap();
    }

    #[test]
    fn stale_elements_end_the_forecast() {
        let plan = plan("stale", &fleet("2025-10-01T12:00:00"));
        let now: UtcInstant = "2026-01-01T12:00:00Z".parse().unwrap();
        let mut forecaster = Forecaster::start(&plan, now).unwrap();
        let error = loop {
            match forecaster.update(now, now) {
                Ok(_) => std::thread::yield_now(),
                Err(error) => break error.to_string(),
            }
        };
        assert!(error.contains("--elements") && error.contains("stale"), "{error}");
        std::fs::remove_file(&plan.elements).unwrap();
    }
}
