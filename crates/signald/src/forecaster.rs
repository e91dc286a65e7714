//! A forecast that goes on and on, computed ahead on a thread of its own so that no announcement waits for it.

use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::time::SystemTime;

use skyhop_path::{PathRequest, Place};
use skyhop_scenario::{NamedScenario, ScenarioError};
use skyhop_signal::Handover;
use skyhop_signal::forecast::{Forecast, median_age, timing_error};
use skyhop_units::{Duration, Instant, UtcInstant};

use crate::wall_clock::WallClock;
use skyhop_host::error::{Context, HostError};
use skyhop_host::thread::spawn;

/// How much is computed at a time.
const PIECE: Duration = Duration::from_secs(60);
/// How many pieces the thread is ahead, at most: two hours.
const PIECES_AHEAD: usize = 120;
/// How far ahead handovers are taken over.
const TAKEN: Duration = Duration::from_secs(60);
/// How long a forecast lasts; then the next one begins, with element sets read anew.
const LASTS: Duration = Duration::from_secs(24 * 3_600);
/// Older element sets are worth a warning: operators publish every few hours.
const OLD: Duration = Duration::from_secs(12 * 3_600);

/// What is forecast.
#[derive(Debug, Clone, PartialEq)]
pub struct ForecastPlan {
    /// Its `[path]` says how.
    pub scenario: NamedScenario,
    /// The file of element sets, which is read again when it changes.
    pub elements: PathBuf,
    /// Where the terminal stands.
    pub from: Place,
    /// The other end; without it only the terminal's own satellite counts.
    pub to: Option<Place>,
}

impl ForecastPlan {
    /// Finds out now whether the forecast can begin.
    ///
    /// # Errors
    /// The first thing that is wrong with the file, the places or the policy.
    pub fn check(&self) -> Result<(), HostError> {
        let request = self.request(WallClock::read()?.utc());
        request.map(drop).map_err(|error| HostError::Unsupported(error.to_string()))
    }

    fn request(&self, start: UtcInstant) -> Result<PathRequest, ScenarioError> {
        let ends = (&self.from, self.to.as_ref());
        self.scenario.forecast_from(&self.elements, ends, start, LASTS)
    }
}

/// Forecasts one after the other.
#[derive(Debug)]
pub(crate) struct Forecaster {
    plan: ForecastPlan,
    current: Running,
    /// The forecast from a file that has changed, until it has something to say.
    next: Option<Running>,
    /// When the file was written that is read now.
    written: Option<SystemTime>,
}

/// What a forecaster has to say.
#[derive(Debug, Default)]
pub(crate) struct Update {
    /// Whether it replaces whatever was said before.
    pub(crate) replaces: bool,
    /// Handovers, and the moment from which their times count.
    pub(crate) pieces: Vec<(UtcInstant, Vec<Handover>)>,
    pub(crate) notes: Vec<String>,
}

impl Forecaster {
    pub(crate) fn start(plan: &ForecastPlan, now: UtcInstant) -> Result<Self, HostError> {
        let written = written(plan);
        let current = Running::start(plan, now)?;
        Ok(Self { plan: plan.clone(), current, next: None, written })
    }

    /// Begins anew at `now`.
    pub(crate) fn restart(&mut self, now: UtcInstant) -> Result<(), HostError> {
        self.next = None;
        self.current = Running::start(&self.plan, now)?;
        Ok(())
    }

    /// What has been computed since the last call, as far as `until` and a little further.
    pub(crate) fn update(
        &mut self,
        now: UtcInstant,
        until: UtcInstant,
    ) -> Result<Update, HostError> {
        let mut update = Update::default();
        self.replace_changed(now, &mut update)?;
        while self.current.until < until.after(TAKEN) {
            match self.current.outputs.try_recv() {
                Ok(Output::Begins { age }) => update.notes.extend(self.warning(age)),
                Ok(Output::Piece { handovers, until }) => {
                    self.current.until = self.current.start.after(until - Instant::START);
                    update.pieces.push((self.current.start, handovers));
                }
                Ok(Output::Failed(what)) => {
                    return Err(io::Error::other(what)).context("cannot continue the forecast");
                }
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => self.restart(now.max(self.current.until))?,
            }
        }
        Ok(update)
    }

    /// Looks whether the file has changed, and takes over the forecast from it once it is there. What was forecast
    /// before holds until then, and for good where the new file cannot be used.
    fn replace_changed(&mut self, now: UtcInstant, update: &mut Update) -> Result<(), HostError> {
        let written = written(&self.plan);
        if written.is_some() && written != self.written {
            self.written = written;
            self.next = Some(Running::start(&self.plan, now)?);
        }
        let Some(next) = &mut self.next else { return Ok(()) };
        match next.outputs.try_recv() {
            Ok(Output::Begins { age }) => {
                let file = self.plan.elements.display();
                update.notes.push(format!("{file} has changed; forecasting from it"));
                update.notes.extend(self.warning(age));
                update.replaces = true;
                self.current = self.next.take().expect("it was there");
            }
            Ok(Output::Failed(what)) => {
                update
                    .notes
                    .push(format!("warning: {what}; continuing with the previous element sets"));
                self.next = None;
            }
            Ok(Output::Piece { .. }) | Err(TryRecvError::Disconnected) => self.next = None,
            Err(TryRecvError::Empty) => {}
        }
        Ok(())
    }

    fn warning(&self, age: Duration) -> Option<String> {
        (age > OLD).then(|| {
            let (file, hours) = (self.plan.elements.display(), age.as_secs_f64() / 3_600.0);
            let error_s = timing_error(age).as_secs_f64();
            format!(
                "warning: half of the element sets of {file} are more than {hours:.0} h old; one handover in ten \
                 will be off by more than {error_s:.1} s"
            )
        })
    }
}

/// One forecast on its way.
#[derive(Debug)]
struct Running {
    start: UtcInstant,
    /// What has been taken over.
    until: UtcInstant,
    outputs: Receiver<Output>,
}

/// What its thread says: how it begins, then piece after piece; or why it does not.
#[derive(Debug)]
enum Output {
    Begins { age: Duration },
    Piece { handovers: Vec<Handover>, until: Instant },
    Failed(String),
}

impl Running {
    fn start(plan: &ForecastPlan, now: UtcInstant) -> Result<Self, HostError> {
        const SECOND_NS: i64 = 1_000_000_000;
        // On the full second, so that a step falls on the moments of a grid.
        let start = UtcInstant::from_unix_nanos(now.unix_nanos().div_euclid(SECOND_NS) * SECOND_NS);
        let (sender, outputs) = sync_channel(PIECES_AHEAD);
        let plan = plan.clone();
        spawn("forecast".to_owned(), move || {
            forecast(&plan, start, &sender);
            Ok(())
        })?;
        Ok(Self { start, until: start, outputs })
    }
}

/// Computes as fast as its output is taken over; ends when nobody takes it any more.
fn forecast(plan: &ForecastPlan, start: UtcInstant, sender: &SyncSender<Output>) {
    let request = match plan.request(start) {
        Ok(request) => request,
        Err(error) => return sender.send(Output::Failed(error.to_string())).unwrap_or(()),
    };
    let forecast = match Forecast::new(&request) {
        Ok(forecast) => forecast,
        Err(error) => return sender.send(Output::Failed(error.to_string())).unwrap_or(()),
    };
    let age = median_age(&request, start).unwrap_or(Duration::ZERO);
    if sender.send(Output::Begins { age }).is_err() {
        return;
    }
    let mut until = Instant::START + PIECE;
    let mut handovers = Vec::new();
    for step in forecast {
        if step.at >= until {
            let piece = Output::Piece { handovers: std::mem::take(&mut handovers), until };
            if sender.send(piece).is_err() {
                return;
            }
            until += PIECE;
        }
        handovers.extend(step.handover);
    }
    sender.send(Output::Piece { handovers, until }).unwrap_or(())
}

fn written(plan: &ForecastPlan) -> Option<SystemTime> {
    std::fs::metadata(&plan.elements).and_then(|file| file.modified()).ok()
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use skyhop_scenario::parse_scenario;

    use super::*;

    const PLANES: u32 = 18;
    const SLOTS: u32 = 20;

    /// A Walker pattern as OMM in CSV.
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

    /// What is forecast from `now` for so many seconds, in UTC.
    fn forecast_for(forecaster: &mut Forecaster, now: UtcInstant, seconds: u64) -> Vec<UtcInstant> {
        let until = now.after(Duration::from_secs(seconds));
        let mut moments = Vec::new();
        while forecaster.current.until < until {
            for (start, piece) in forecaster.update(now, until).unwrap().pieces {
                let utc = |one: &Handover| start.after(one.at.saturating_since(Instant::START));
                moments.extend(piece.iter().map(utc));
            }
            std::thread::yield_now();
        }
        moments.retain(|moment| *moment < until);
        moments
    }

    #[test]
    fn it_goes_on_as_one_forecast_does_and_begins_anew_when_the_clock_is_set() {
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
    fn elements_that_have_become_useless_end_it() {
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
